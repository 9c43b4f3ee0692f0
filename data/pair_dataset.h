// A numbered collection of pairs, from a generator or a file.
#pragma once

#include <cstdint>
#include <string>

#include <heed/data/pair_batch.h>

namespace heed::data {

/// Any pair can be had at any time, from several threads at once.
class PairDataset {
 public:
  virtual ~PairDataset() = default;

  /// Pairs in one epoch.
  virtual int64_t size() const = 0;

  /// Pair `index` (0 to size() - 1) of an epoch; only generators of fresh pairs look at the epoch.
  virtual Pair get(int64_t epoch, int64_t index) const = 0;

  /// One more than the largest symbol that can occur.
  virtual int64_t vocab() const = 0;

  /// Symbols of the longest source and target that can occur, without marks.
  virtual int64_t longest_source() const = 0;
  virtual int64_t longest_target() const = 0;

  /// A text that two data sets share only if they hold the same pairs; saved to notice changed data on
  /// resuming.
  virtual std::string fingerprint() const = 0;
};

}  // namespace heed::data
