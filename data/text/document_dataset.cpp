#include <algorithm>

#include <heed/core/base/check.h>
#include <heed/core/io/sha256.h>
#include <heed/data/text/document_dataset.h>
#include <heed/data/text/pretrained_tokenizer.h>

namespace heed::data {
namespace {

TokenIds encode_plain(const Tokenizer& tokenizer, std::string_view text) {
  const auto* const pretrained = dynamic_cast<const PretrainedTokenizer*>(&tokenizer);
  return pretrained ? pretrained->encode(text, {.add_marks = false, .special_tokens = false})
                    : tokenizer.encode(text);
}

// Numbers that differ from epoch to epoch and from document to document (Steele et al., OOPSLA 2014).
uint64_t mixed(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

DocumentDataset::DocumentDataset(std::span<const std::string> documents, const Tokenizer& tokenizer,
                                 const DocumentOptions& options)
    : context_(options.context) {
  HEED_CHECK(context_ >= 1, ConfigError, "sequences of ", context_, " tokens; expected 1 or more");
  for (const std::string& document : documents) {
    const auto first = static_cast<int64_t>(ids_.size());
    if (options.start >= 0) ids_.push_back(static_cast<int32_t>(options.start));
    const TokenIds symbols = encode_plain(tokenizer, document);
    ids_.insert(ids_.end(), symbols.begin(), symbols.end());
    if (options.end >= 0) ids_.push_back(static_cast<int32_t>(options.end));
    add(first, std::ssize(ids_) - first - 1);
    characters_ += count_code_points(document);
  }
  Sha256 hash;
  hash.update(ids_.data(), ids_.size() * sizeof(int32_t));
  for (const Document& document : documents_) hash.update(&document.first, sizeof(document.first));
  hash.update(&context_, sizeof(context_));
  fingerprint_ = "documents " + to_hex(hash.finish());
}

// As many sequences in each epoch, none of them empty: the whole ones between first and last leave `rest`
// tokens for the last where the first is whole. Where that is much, first and last share it instead.
void DocumentDataset::add(int64_t first, int64_t tokens) {
  if (tokens <= 0) return;
  const int64_t whole = (tokens - 1) / context_, rest = tokens - whole * context_;
  Document document{first, tokens, size(), whole + 1, rest, context_};
  if (whole == 0) document.most = rest;
  if (whole > 0 && rest > context_ / 2 && rest > 1) {
    ++document.pieces;
    document.least = 1;
    document.most = rest - 1;
  }
  document_of_.insert(document_of_.end(), static_cast<size_t>(document.pieces),
                      static_cast<int32_t>(documents_.size()));
  documents_.push_back(document);
  tokens_ += tokens;
  longest_ = std::max(longest_, std::min(tokens, context_));
}

TokenIds DocumentDataset::get(int64_t epoch, int64_t index) const {
  HEED_CHECK(index >= 0 && index < size(), IndexError, "sequence ", index, " is not in 0 to ", size() - 1);
  const auto number = static_cast<uint64_t>(document_of_[static_cast<size_t>(index)]);
  const Document& document = documents_[number];
  const uint64_t drawn = mixed((static_cast<uint64_t>(epoch) << 32) + number + 1);
  const int64_t head =
      document.least +
      static_cast<int64_t>(drawn % static_cast<uint64_t>(document.most - document.least + 1));
  const int64_t piece = index - document.first_piece;
  const int64_t begin = piece == 0 ? 0 : head + (piece - 1) * context_;
  const int64_t end = std::min(head + piece * context_, document.tokens);
  const auto ids = ids_.begin() + document.first;
  return TokenIds(ids + begin, ids + end + 1);
}

}  // namespace heed::data
