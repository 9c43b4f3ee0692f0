// Any bytes as a published model's tokenizer, and as a text for some.
#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <heed/core/base/check.h>
#include <heed/data/text/pretrained_tokenizer.h>

#include "fuzz.h"

using heed::data::PretrainedTokenizer;
using heed::fuzz::require;

namespace {

void encode(const PretrainedTokenizer& tokenizer, std::string_view text, bool lossless) {
  try {
    const heed::data::TokenIds ids = tokenizer.encode(text);
    heed::data::StreamDecoder stream(tokenizer);
    std::string streamed;
    for (const int64_t id : ids) {
      require(id >= 0 && id < tokenizer.vocab());
      const std::string part = stream.push(id);
      require(!heed::data::invalid_utf8(part));
      streamed += part;
    }
    streamed += stream.finish();
    const std::string decoded = tokenizer.decode(ids);
    require(decoded == streamed && (!lossless || decoded == text));
    const heed::data::TokenIds cut = tokenizer.encode(text, {.special_tokens = false, .max_length = 8});
    require(cut.size() <= 8);
    const heed::data::PairEncoding pair = tokenizer.encode_pair(text, "a b c d e f g", {.max_length = 9});
    require(pair.ids.size() <= 9 && pair.segments.size() == pair.ids.size());
  } catch (const heed::DataError&) {
    require(heed::data::invalid_utf8(text).has_value());
  } catch (const heed::ConfigError&) {  // more marks than max_length
  }
}

/// The beginning of a text that ends between two characters, if it is UTF-8.
std::string_view beginning(std::string_view text) {
  size_t end = std::min<size_t>(text.size(), 64);
  while (end > 0 && end < text.size() && (text[end] & 0xc0) == 0x80) --end;
  return text.substr(0, end);
}

template <class F>
void read(F&& parse, std::string_view text) {
  std::shared_ptr<const PretrainedTokenizer> tokenizer;
  try {
    tokenizer = parse();
  } catch (const heed::CheckpointError&) {
    return;
  } catch (const heed::ConfigError&) {
    return;
  }
  require(heed::data::parse_tokenizer(tokenizer->serialize(), "again")->serialize() ==
          tokenizer->serialize());
  // All of it may decode to the square of its length, since a piece may be most of it.
  encode(*tokenizer, beginning(text), false);
  encode(*tokenizer, "It's 12 \xc3\xa9t\xc3\xa9s.\n", false);
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines(1);
  for (const char c : text) {
    if (c == '\n')
      lines.emplace_back();
    else
      lines.back() += c;
  }
  return lines;
}

/// GPT-2's pieces of all bytes, a mark, and a few merges.
heed::data::GgufVocabulary byte_vocabulary() {
  heed::data::GgufVocabulary v{.model = "gpt2"};
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool seen = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
    const int c = seen ? byte : next++;
    v.tokens.push_back(
        c < 0x80 ? std::string(1, static_cast<char>(c))
                 : std::string{static_cast<char>(0xc0 | c >> 6), static_cast<char>(0x80 | (c & 0x3f))});
  }
  for (const char* merge : {"a a", "aa a", "aa aa", "e t", "\xc4\xa0 et", "\xc3\x83 \xc2\xa9"}) {
    v.merges.emplace_back(merge);
    std::string piece = merge;
    v.tokens.push_back(piece.erase(piece.find(' '), 1));
  }
  v.token_types.assign(v.tokens.size(), 1);
  v.tokens.emplace_back("<|x|>");
  v.token_types.push_back(4);
  return v;
}

std::vector<std::shared_ptr<const PretrainedTokenizer>> byte_tokenizers() {
  std::vector<std::shared_ptr<const PretrainedTokenizer>> tokenizers;
  for (const char* pre : {"gpt-2", "smollm", "llama-bpe"}) {
    heed::data::GgufVocabulary v = byte_vocabulary();
    v.pre = pre;
    tokenizers.push_back(heed::data::make_tokenizer(v, "built in"));
  }
  return tokenizers;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto kByteTokenizers = byte_tokenizers();
  static const auto kBert = heed::data::parse_vocab_txt(
      "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n##a\n##aa\ne\n##t\n.\n'\n1\n##1\n\xe4\xb8\xad\n", "built in");
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const auto& tokenizer : kByteTokenizers) encode(*tokenizer, text, true);
  encode(*kBert, text, false);
  read([&] { return heed::data::parse_tokenizer_json(text, "input"); }, text);
  read([&] { return heed::data::parse_vocab_txt(text, "input"); }, text);
  const size_t half = std::min(text.find("\n\n"), text.size());
  read([&] { return heed::data::parse_vocab_and_merges(text.substr(0, half), text.substr(half), "input"); },
       text);
  heed::data::GgufVocabulary v{.model = "gpt2", .pre = "qwen2", .tokens = lines_of(text.substr(0, half))};
  v.merges = lines_of(text.substr(std::min(half + 2, text.size())));
  v.bos = 0;
  v.add_bos = true;
  read([&] { return heed::data::make_tokenizer(v, "input"); }, text);
  v.model = "bert";
  v.unknown = 0;
  read([&] { return heed::data::make_tokenizer(v, "input"); }, text);
  return 0;
}
