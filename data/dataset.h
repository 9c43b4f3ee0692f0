// A numbered collection of samples, from a generator or a file.
#pragma once

#include <cstdint>
#include <string>

namespace heed::data {

/// Any sample can be had at any time, from several threads at once.
template <class S>
class Dataset {
 public:
  virtual ~Dataset() = default;

  /// Samples in one epoch.
  virtual int64_t size() const = 0;

  /// Sample `index` (0 to size() - 1) of an epoch; only generators of fresh samples look at the epoch.
  virtual S get(int64_t epoch, int64_t index) const = 0;

  /// A text that two data sets share only if they hold the same samples; saved to notice changed data on
  /// resuming.
  virtual std::string fingerprint() const = 0;
};

}  // namespace heed::data
