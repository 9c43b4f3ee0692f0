// Pairs of texts as a data set of symbols.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <heed/data/pair_dataset.h>
#include <heed/data/text/text_pairs.h>
#include <heed/data/text/tokenizer.h>

namespace heed::data {

/// All pairs, tokenized once.
class TextDataset final : public PairDataset {
 public:
  /// Pairs of which a side has more than max_tokens (0: any number) are left out. DataError where a text is
  /// not UTF-8.
  TextDataset(const TextPairs& pairs, const Tokenizer& source, const Tokenizer& target,
              int64_t max_tokens = 0);

  int64_t size() const override { return static_cast<int64_t>(first_.size() / 2); }
  Pair get(int64_t epoch, int64_t index) const override;
  int64_t vocab() const override { return vocab_; }
  int64_t longest_source() const override { return longest_source_; }
  int64_t longest_target() const override { return longest_target_; }
  std::string fingerprint() const override { return fingerprint_; }

  /// Pairs that were left out.
  int64_t too_long() const { return too_long_; }

 private:
  std::vector<int32_t> symbols_;  // of all sources and targets, in the order of the pairs
  std::vector<int64_t> first_;    // where source 0, target 0, source 1, … begin in symbols_
  int64_t vocab_ = 0;
  int64_t longest_source_ = 0;
  int64_t longest_target_ = 0;
  int64_t too_long_ = 0;
  std::string fingerprint_;
};

}  // namespace heed::data
