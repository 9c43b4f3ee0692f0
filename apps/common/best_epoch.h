// Which epoch of a training was the best so far, and whether to wait for a better one.
#pragma once

#include <cstdint>
#include <limits>

namespace heed::apps {

/// Told each epoch's number and the value that should be small.
class BestEpoch {
 public:
  /// patience: epochs without a better one after which exhausted(); 0: never.
  explicit BestEpoch(int64_t patience) : patience_(patience) {}

  /// True if the value is the smallest so far; a NaN never is.
  bool update(int64_t epoch, double value) {
    last_ = epoch;
    if (!(value < value_)) return false;
    value_ = value;
    epoch_ = epoch;
    return true;
  }
  bool exhausted() const { return patience_ > 0 && last_ - epoch_ >= patience_; }
  /// 0 before the first.
  int64_t epoch() const { return epoch_; }

 private:
  int64_t patience_, epoch_ = 0, last_ = 0;
  double value_ = std::numeric_limits<double>::infinity();
};

}  // namespace heed::apps
