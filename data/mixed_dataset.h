// Several data sets of pairs as one, of which a small one may be drawn from more often than it is large.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <heed/data/pair_dataset.h>

namespace heed::data {

/// An epoch has as many samples as all parts together. A part with n samples has a share of n^(1/temperature)
/// in it: at 1 each sample once, at higher temperatures about equally many of each part (arXiv 1907.05019,
/// 4.1). Of a part with a share smaller or larger than itself each epoch goes on behind the sample where the
/// one before it ended, so that all are taken equally often.
class MixedDataset final : public PairDataset {
 public:
  /// ConfigError for no part, an empty one, or a temperature that is not positive.
  MixedDataset(std::vector<std::shared_ptr<const PairDataset>> parts, double temperature);

  int64_t size() const override { return first_.back(); }
  Pair get(int64_t epoch, int64_t index) const override;
  int64_t vocab() const override;
  int64_t longest_source() const override;
  int64_t longest_target() const override;
  std::string fingerprint() const override;

  /// Samples of a part in an epoch.
  int64_t share(size_t part) const { return first_[part + 1] - first_[part]; }

 private:
  std::vector<std::shared_ptr<const PairDataset>> parts_;
  std::vector<int64_t> first_;  // where each part's share begins in an epoch, and the end
};

}  // namespace heed::data
