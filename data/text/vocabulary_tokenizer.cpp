#include "detail/vocabulary_tokenizer.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include <heed/core/base/check.h>

namespace heed::data::detail {
namespace {

constexpr int64_t kBytes = 256;
constexpr int64_t kUnknown = kFirstSymbol;  // of symbols; of the others the first byte

/// Words: a run of word characters or one other character, each with one space before it, or one white space.
template <class F>
void split_words(std::string_view text, F&& f) {
  size_t begin = 0, end = 0;  // the piece so far
  bool word = false;          // it ends with a word character
  bool space = false;         // it is one space, which the next character may join
  const auto cut = [&] {
    if (end > begin) f(text.substr(begin, end - begin));
    begin = end;
    word = space = false;
  };
  for_each_code_point(text, [&](int32_t code_point, std::string_view bytes) {
    const CharacterClass c = character_class(code_point);
    const bool joins = c == CharacterClass::word ? word || space : c == CharacterClass::other && space;
    if (!joins) cut();
    end += bytes.size();
    word = c == CharacterClass::word;
    space = code_point == ' ';
    if (c == CharacterClass::other) cut();
  });
  cut();
}

template <class F>
void split_symbols(std::string_view text, F&& f) {
  size_t begin = 0, end = 0;
  for_each_code_point(text, [&](int32_t code_point, std::string_view bytes) {
    if (character_class(code_point) == CharacterClass::space) {
      if (end > begin) f(text.substr(begin, end - begin));
      begin = end + bytes.size();
    }
    end += bytes.size();
  });
  if (end > begin) f(text.substr(begin, end - begin));
}

/// Calls f with each piece of a text in normal form.
template <class F>
void split(TokenizerKind kind, std::string_view text, F&& f) {
  switch (kind) {
    case TokenizerKind::words:
      return split_words(text, f);
    case TokenizerKind::symbols:
      return split_symbols(text, f);
    case TokenizerKind::bytes:
      for (size_t i = 0; i < text.size(); ++i) f(text.substr(i, 1));
      return;
    default:
      for_each_code_point(text, [&](int32_t, std::string_view bytes) { f(bytes); });
  }
}

struct StringHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};

std::string prepared(std::string_view text, const TokenizerOptions& options) {
  std::string result = normalize(text, options.normalization, options.lowercase);
  // The first word looks as it would in the middle.
  if (options.kind == TokenizerKind::words && !result.empty()) result.insert(0, 1, ' ');
  return result;
}

}  // namespace

int64_t first_piece(TokenizerKind kind) {
  return kind == TokenizerKind::symbols ? kUnknown + 1 : kFirstSymbol + kBytes;
}

VocabularyTokenizer::VocabularyTokenizer(const TokenizerOptions& options, Vocabulary pieces)
    : options_(options), pieces_(std::move(pieces)) {}

int64_t VocabularyTokenizer::vocab() const { return first_piece(options_.kind) + pieces_.size(); }

TokenIds VocabularyTokenizer::encode(std::string_view text) const {
  TokenIds ids;
  const std::string ready = prepared(text, options_);
  split(options_.kind, ready, [&](std::string_view piece) {
    if (const auto found = pieces_.find(piece))
      ids.push_back(first_piece(options_.kind) + *found);
    else if (options_.kind == TokenizerKind::symbols)
      ids.push_back(kUnknown);
    else
      for (const char c : piece) ids.push_back(kFirstSymbol + static_cast<unsigned char>(c));
  });
  return ids;
}

std::string VocabularyTokenizer::bytes(int64_t id, bool first) const {
  if (is_mark(id)) return {};
  if (options_.kind == TokenizerKind::symbols) return (first ? "" : " ") + piece(id);
  std::string text =
      id < first_piece(options_.kind) ? std::string(1, static_cast<char>(id - kFirstSymbol)) : piece(id);
  if (options_.kind == TokenizerKind::words && first && text.starts_with(' ')) text.erase(0, 1);
  return text;
}

std::string VocabularyTokenizer::piece(int64_t id) const {
  static constexpr char kDigits[] = "0123456789abcdef";
  HEED_CHECK(id >= 0 && id < vocab(), IndexError, "id ", id, " is not in 0 to ", vocab() - 1);
  if (id == kPad) return "<pad>";
  if (id == kStart) return "<start>";
  if (id == kEnd) return "<end>";
  if (id >= first_piece(options_.kind)) return pieces_.piece(id - first_piece(options_.kind));
  if (options_.kind == TokenizerKind::symbols) return "<unk>";
  const auto byte = static_cast<size_t>(id - kFirstSymbol);
  return std::string("<0x") + kDigits[byte >> 4] + kDigits[byte & 15] + ">";
}

std::string VocabularyTokenizer::serialize() const { return write_header(options_) + write_pieces(pieces_); }

std::vector<std::string> frequent_pieces(const TokenizerOptions& options, const TextStream& texts) {
  HEED_CHECK(options.max_vocab >= first_piece(options.kind), ConfigError, "max_vocab is ", options.max_vocab,
             "; the marks and bytes of a tokenizer of ", name(options.kind), " take ",
             first_piece(options.kind));
  HEED_CHECK(options.min_count >= 1, ConfigError, "min_count is ", options.min_count,
             "; expected at least 1");
  if (options.kind == TokenizerKind::bytes) return {};
  std::unordered_map<std::string, int64_t, StringHash, std::equal_to<>> counts;
  texts([&](std::string_view text) {
    split(options.kind, prepared(text, options), [&](std::string_view piece) {
      const auto found = counts.find(piece);
      if (found != counts.end())
        ++found->second;
      else
        counts.emplace(piece, 1);
    });
  });
  std::vector<std::pair<int64_t, std::string>> sorted;
  for (const auto& entry : counts)
    if (entry.second >= options.min_count) sorted.emplace_back(-entry.second, entry.first);
  std::sort(sorted.begin(), sorted.end());
  const int64_t room = options.max_vocab - first_piece(options.kind);
  if (std::ssize(sorted) > room) sorted.resize(static_cast<size_t>(room));
  std::vector<std::string> pieces;
  pieces.reserve(sorted.size());
  for (auto& entry : sorted) pieces.push_back(std::move(entry.second));
  return pieces;
}

}  // namespace heed::data::detail
