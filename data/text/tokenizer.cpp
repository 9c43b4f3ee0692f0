#include <algorithm>
#include <charconv>
#include <utility>

#include <heed/core/base/check.h>
#include <heed/core/io/atomic_file.h>
#include <heed/core/io/file.h>
#include <heed/data/text/pretrained_tokenizer.h>

#include "detail/vocabulary_tokenizer.h"

namespace heed::data {
namespace {

constexpr std::pair<const char*, TokenizerKind> kKinds[] = {
    {"characters", TokenizerKind::characters}, {"words", TokenizerKind::words},
    {"symbols", TokenizerKind::symbols},       {"bytes", TokenizerKind::bytes},
    {"unigram", TokenizerKind::unigram},       {"bpe", TokenizerKind::bpe},
    {"pretrained", TokenizerKind::pretrained}};

constexpr std::string_view kFormat = "heed-tokenizer 1";
constexpr uint64_t kMaxFileBytes = uint64_t{1} << 28;
constexpr size_t kMaxPieceBytes = 4096;
constexpr int64_t kMaxIds = int64_t{1} << 24;

bool of_sub_words(TokenizerKind kind) { return kind == TokenizerKind::unigram || kind == TokenizerKind::bpe; }

/// The text up to the next newline, taken off; nothing where there is none.
std::optional<std::string_view> take_line(std::string_view& text) {
  const size_t newline = text.find('\n');
  if (newline == std::string_view::npos) return std::nullopt;
  const std::string_view line = text.substr(0, newline);
  text.remove_prefix(newline + 1);
  return line;
}

std::string_view take_value(std::string_view& content, std::string_view key, std::string_view file) {
  const std::optional<std::string_view> line = take_line(content);
  HEED_CHECK(line && line->starts_with(key) && line->substr(key.size()).starts_with(' '), CheckpointError,
             file, ": this is no tokenizer: the line '", key, " …' is missing");
  return line->substr(key.size() + 1);
}

int64_t to_count(std::string_view text, std::string_view key, std::string_view file) {
  int64_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  HEED_CHECK(
      parsed.ec == std::errc() && parsed.ptr == text.data() + text.size() && value >= 1 && value <= kMaxIds,
      CheckpointError, file, ": ", key, " is no number from 1 to ", kMaxIds);
  return value;
}

/// A tokenizer's file without its options.
std::string_view vocabulary(std::string_view content) {
  if (content.starts_with(kFormat)) content.remove_prefix(std::min(content.find("\n\n"), content.size()));
  return content;
}

}  // namespace

const char* name(TokenizerKind kind) {
  for (const auto& entry : kKinds)
    if (entry.second == kind) return entry.first;
  return "?";
}

TokenizerKind parse_tokenizer_kind(std::string_view text) {
  for (const auto& entry : kKinds)
    if (text == entry.first && entry.second != TokenizerKind::pretrained) return entry.second;
  throw ConfigError(
      concat("unknown tokenizer '", text, "'; expected characters, words, symbols, bytes, unigram or bpe"));
}

bool Tokenizer::is_mark(int64_t id) const {
  HEED_CHECK(id >= 0 && id < vocab(), IndexError, "id ", id, " is not in 0 to ", vocab() - 1);
  return id < kFirstSymbol;
}

std::string Tokenizer::decode(std::span<const int64_t> ids) const {
  StreamDecoder decoder(*this);
  std::string text;
  for (const int64_t id : ids) text += decoder.push(id);
  return text + decoder.finish();
}

std::string StreamDecoder::push(int64_t id) {
  std::string text;
  if (tokenizer_.is_mark(id)) return text;
  assembler_.push(tokenizer_.bytes(id, std::exchange(first_, false)), text);
  return text;
}

std::string StreamDecoder::finish() {
  std::string text;
  assembler_.finish(text);
  first_ = true;
  return text;
}

namespace detail {

std::string write_header(const TokenizerOptions& o) {
  return concat(kFormat, "\nkind ", name(o.kind), "\nnormalization ", name(o.normalization), "\nlowercase ",
                o.lowercase ? "true" : "false", "\nmax_vocab ", o.max_vocab, "\nmin_count ", o.min_count,
                "\n\n");
}

TokenizerOptions read_header(std::string_view& content, std::string_view file) {
  const std::optional<std::string_view> first = take_line(content);
  HEED_CHECK(first == kFormat, CheckpointError, file, ": this is no tokenizer: it does not begin with '",
             kFormat, "'");
  TokenizerOptions o;
  try {
    o.kind = parse_tokenizer_kind(take_value(content, "kind", file));
    o.normalization = parse_normalization(take_value(content, "normalization", file));
  } catch (const ConfigError&) {
    throw CheckpointError(concat(file, ": the kind or the normal form of the tokenizer is unknown"));
  }
  const std::string_view lowercase = take_value(content, "lowercase", file);
  HEED_CHECK(lowercase == "true" || lowercase == "false", CheckpointError, file,
             ": lowercase is neither true nor false");
  o.lowercase = lowercase == "true";
  o.max_vocab = to_count(take_value(content, "max_vocab", file), "max_vocab", file);
  o.min_count = to_count(take_value(content, "min_count", file), "min_count", file);
  HEED_CHECK(take_line(content) == "", CheckpointError, file,
             ": an empty line is missing before the vocabulary");
  return o;
}

// A piece a line; a newline in it is \n, a backslash \\.
std::string write_pieces(const Vocabulary& pieces) {
  std::string text;
  for (int32_t id = 0; id < pieces.size(); ++id) {
    for (const char c : pieces.piece(id)) {
      if (c == '\n')
        text += "\\n";
      else if (c == '\\')
        text += "\\\\";
      else
        text += c;
    }
    text += '\n';
  }
  return text;
}

Vocabulary read_pieces(std::string_view text, std::string_view file) {
  std::vector<std::string> pieces;
  while (!text.empty()) {
    const std::optional<std::string_view> line = take_line(text);
    const auto check = [&](bool holds, const char* what) {
      HEED_CHECK(holds, CheckpointError, file, ": piece ", pieces.size() + 1, " of the vocabulary ", what);
    };
    check(line.has_value(), "is cut short");
    check(!line->empty() && line->size() <= kMaxPieceBytes, "is empty or too long");
    check(!invalid_utf8(*line), "is not UTF-8");
    std::string piece;
    for (size_t i = 0; i < line->size(); ++i) {
      char c = (*line)[i];
      if (c == '\\') {
        c = ++i < line->size() ? (*line)[i] : ' ';
        check(c == 'n' || c == '\\', "has an unknown escape");
        if (c == 'n') c = '\n';
      }
      piece += c;
    }
    check(std::ssize(pieces) < kMaxIds, "is one too many");
    pieces.push_back(std::move(piece));
  }
  Vocabulary vocabulary(std::move(pieces), concat(file, ": the vocabulary"));
  for (int32_t id = 0; id < vocabulary.size(); ++id)
    HEED_CHECK(vocabulary.find(vocabulary.piece(id)) == id, CheckpointError, file, ": piece ", id + 1,
               " of the vocabulary stands there twice");
  return vocabulary;
}

}  // namespace detail

std::shared_ptr<const Tokenizer> train_tokenizer_on_stream(const TokenizerOptions& options,
                                                           const TextStream& texts) {
  HEED_CHECK(options.max_vocab <= kMaxIds && options.min_count <= kMaxIds, ConfigError,
             "max_vocab and min_count are at most ", kMaxIds);
  HEED_CHECK(options.kind != TokenizerKind::pretrained, ConfigError,
             "a pretrained tokenizer is loaded, not trained");
  if (of_sub_words(options.kind)) return detail::train_sub_words(options, texts);
  return std::make_shared<detail::VocabularyTokenizer>(
      options, detail::Vocabulary(detail::frequent_pieces(options, texts), "the vocabulary"));
}

std::shared_ptr<const Tokenizer> train_tokenizer(const TokenizerOptions& options,
                                                 const std::vector<std::span<const std::string>>& corpora) {
  return train_tokenizer_on_stream(options, [&](const std::function<void(std::string_view)>& f) {
    for (const std::span<const std::string> corpus : corpora)
      for (const std::string& text : corpus) f(text);
  });
}

std::shared_ptr<const Tokenizer> parse_tokenizer(std::string_view content, std::string_view file) {
  if (content.substr(0, content.find_first_not_of(" \t\r\n") + 1).ends_with('{'))
    return parse_tokenizer_json(content, file);
  const TokenizerOptions options = detail::read_header(content, file);
  if (of_sub_words(options.kind)) return detail::load_sub_words(options, content, file);
  HEED_CHECK(options.kind != TokenizerKind::bytes || content.empty(), CheckpointError, file,
             ": a tokenizer of bytes has no vocabulary");
  return std::make_shared<detail::VocabularyTokenizer>(options, detail::read_pieces(content, file));
}

std::string difference(const Tokenizer& first, const Tokenizer& second) {
  const TokenizerOptions &a = first.options(), &b = second.options();
  if (a.kind != b.kind) return concat("its tokens are ", name(b.kind), ", not ", name(a.kind));
  if (a.normalization != b.normalization)
    return concat("its normal form is ", name(b.normalization), ", not ", name(a.normalization));
  if (a.lowercase != b.lowercase)
    return b.lowercase ? "it makes letters small" : "it leaves capital letters as they are";
  const int64_t common = std::min(first.vocab(), second.vocab());
  for (int64_t id = 0; id < common; ++id)
    if (first.piece(id) != second.piece(id))
      return concat("id ", id, " is '", second.piece(id), "', not '", first.piece(id), "'");
  if (first.vocab() != second.vocab()) return concat("it has ", second.vocab(), " ids, not ", first.vocab());
  // What sub-words a text is cut into depends on more than their list.
  const std::string content = first.serialize(), other = second.serialize();
  return vocabulary(content) == vocabulary(other) ? "" : "it cuts texts into the same tokens by other rules";
}

void save_tokenizer(const Tokenizer& tokenizer, const std::string& path) {
  write_whole_file(path, tokenizer.serialize());
}

std::shared_ptr<const Tokenizer> load_tokenizer(const std::string& path) {
  return parse_tokenizer(read_whole_file(path, kMaxFileBytes), path);
}

}  // namespace heed::data
