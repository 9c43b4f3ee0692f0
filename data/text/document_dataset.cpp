#include <algorithm>

#include <heed/core/base/check.h>
#include <heed/core/io/sha256.h>
#include <heed/data/text/document_dataset.h>
#include <heed/data/text/pretrained_tokenizer.h>

namespace heed::data {
namespace {

Symbols encode_plain(const Tokenizer& tokenizer, std::string_view text) {
  const auto* const pretrained = dynamic_cast<const PretrainedTokenizer*>(&tokenizer);
  return pretrained ? pretrained->encode(text, {.add_marks = false, .special_tokens = false})
                    : tokenizer.encode(text);
}

}  // namespace

DocumentDataset::DocumentDataset(std::span<const std::string> documents, const Tokenizer& tokenizer,
                                 const DocumentOptions& options) {
  HEED_CHECK(options.context >= 1, ConfigError, "sequences of ", options.context,
             " tokens; expected 1 or more");
  for (const std::string& document : documents) {
    const auto begin = static_cast<int64_t>(ids_.size());
    if (options.start >= 0) ids_.push_back(static_cast<int32_t>(options.start));
    const Symbols symbols = encode_plain(tokenizer, document);
    ids_.insert(ids_.end(), symbols.begin(), symbols.end());
    if (options.end >= 0) ids_.push_back(static_cast<int32_t>(options.end));
    const int64_t predicted = std::ssize(ids_) - begin - 1;
    for (int64_t i = 0; i < predicted; i += options.context) {
      const int64_t tokens = std::min(options.context, predicted - i);
      pieces_.push_back({begin + i, tokens});
      longest_ = std::max(longest_, tokens);
    }
    tokens_ += std::max<int64_t>(predicted, 0);
    characters_ += count_code_points(document);
  }
  Sha256 hash;
  hash.update(ids_.data(), ids_.size() * sizeof(int32_t));
  hash.update(pieces_.data(), pieces_.size() * sizeof(Piece));
  fingerprint_ = "documents " + to_hex(hash.finish());
}

Symbols DocumentDataset::get(int64_t, int64_t index) const {
  HEED_CHECK(index >= 0 && index < size(), IndexError, "sequence ", index, " is not in 0 to ", size() - 1);
  const Piece& piece = pieces_[static_cast<size_t>(index)];
  const auto first = ids_.begin() + piece.first;
  return Symbols(first, first + piece.tokens + 1);
}

}  // namespace heed::data
