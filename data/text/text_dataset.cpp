#include <algorithm>

#include <heed/core/base/check.h>
#include <heed/core/io/sha256.h>
#include <heed/data/text/text_dataset.h>

namespace heed::data {

TextDataset::TextDataset(const TextPairs& pairs, const Tokenizer& source, const Tokenizer& target,
                         int64_t max_tokens)
    : vocab_(std::max(source.vocab(), target.vocab())) {
  for (size_t i = 0; i < pairs.sources.size(); ++i) {
    const TokenIds from = source.encode(pairs.sources[i]), to = target.encode(pairs.targets[i]);
    if (max_tokens > 0 && std::max(std::ssize(from), std::ssize(to)) > max_tokens) {
      ++too_long_;
      continue;
    }
    for (const TokenIds* side : {&from, &to}) {
      first_.push_back(static_cast<int64_t>(symbols_.size()));
      symbols_.insert(symbols_.end(), side->begin(), side->end());
    }
    longest_source_ = std::max<int64_t>(longest_source_, std::ssize(from));
    longest_target_ = std::max<int64_t>(longest_target_, std::ssize(to));
  }
  Sha256 hash;
  hash.update(first_.data(), first_.size() * sizeof(int64_t));
  hash.update(symbols_.data(), symbols_.size() * sizeof(int32_t));
  fingerprint_ = "text " + to_hex(hash.finish());
}

Pair TextDataset::get(int64_t, int64_t index) const {
  HEED_CHECK(index >= 0 && index < size(), IndexError, "pair ", index, " is not in 0 to ", size() - 1);
  const auto at = [&](size_t i) {
    return symbols_.begin() + (i < first_.size() ? first_[i] : static_cast<int64_t>(symbols_.size()));
  };
  const auto side = static_cast<size_t>(2 * index);
  return {TokenIds(at(side), at(side + 1)), TokenIds(at(side + 1), at(side + 2))};
}

}  // namespace heed::data
