// The random numbers behind a drawn source.
#pragma once

#include <cstdint>

#include <heed/core/base/philox.h>

namespace heed::data::detail {

/// A stream of numbers that follow from its place alone: a counter-based generator.
class TaskDraw {
 public:
  /// stream tells epochs and splits apart; attempt is below 2^14.
  TaskDraw(uint64_t seed, uint32_t stream, int64_t index, uint32_t attempt)
      : key_(seed ^ kKey), index_(static_cast<uint64_t>(index)), stream_(stream), attempt_(attempt << 18) {}

  /// A number from 0 to n - 1, n < 2^32. Its bias, below n / 2^32, is far from measurable here.
  int64_t below(int64_t n) {
    if (used_ == 4) {
      block_ = philox(attempt_ | next_++, stream_, static_cast<uint32_t>(index_),
                      static_cast<uint32_t>(index_ >> 32), static_cast<uint32_t>(key_),
                      static_cast<uint32_t>(key_ >> 32));
      used_ = 0;
    }
    return static_cast<int64_t>((uint64_t{block_.word[used_++]} * static_cast<uint64_t>(n)) >> 32);
  }

 private:
  static constexpr uint64_t kKey = 0x7461736b64617461;  // parts this stream from others of the same seed

  uint64_t key_;
  uint64_t index_;
  uint32_t stream_;
  uint32_t attempt_;
  uint32_t next_ = 0;  // block of this draw; 4 * 2^18 numbers are enough for the longest source
  Philox4 block_{};
  int used_ = 4;
};

}  // namespace heed::data::detail
