// Packs the next operands between tile multiplications (software pipelining), a few rows at a time, so that
// the load and store queues never fill.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include <heed/kernels/cpu/gemm/amx.h>

namespace heed::cpu {

/// Work in units, done in order.
struct InterleavedWork {
  void (*run)(InterleavedWork& self, int64_t count) = nullptr;  // the next `count` units
  int64_t done = 0, due = 0;

  int64_t remaining() const { return due - done; }
};

/// Streams of work whose units are interleaved with tile multiplications, one stream after the other.
template <size_t Streams>
class AmxInterleave {
 public:
  explicit AmxInterleave(std::array<InterleavedWork*, Streams> streams) : streams_(streams) {}

  /// Spreads the remaining units evenly over the next `turns` turns.
  void schedule(int64_t turns) {
    units_ = remaining();
    turns_ = turns;
    credit_ = 0;
  }

  void attach(AmxBlock& block) {
    if (units_ > 0)
      block.interleaved = *this;
    else
      block.interleaved = nullptr;
  }

  /// A turn.
  void operator()() {
    int64_t count = 0;
    for (credit_ += units_; credit_ >= turns_; credit_ -= turns_) ++count;
    run(count);
  }

  /// What no turn did.
  void finish() { run(remaining()); }

 private:
  int64_t remaining() const {
    int64_t units = 0;
    for (const InterleavedWork* stream : streams_) units += stream->remaining();
    return units;
  }

  void run(int64_t count) {
    for (size_t i = 0; i < Streams && count > 0; ++i) {
      InterleavedWork& stream = *streams_[i];
      const int64_t units = std::min(count, stream.remaining());
      if (units == 0) continue;
      stream.done += units;
      stream.run(stream, units);
      count -= units;
    }
  }

  std::array<InterleavedWork*, Streams> streams_;
  int64_t units_ = 0, turns_ = 1, credit_ = 0;
};

}  // namespace heed::cpu
