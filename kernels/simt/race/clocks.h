// What happened before what in the block that runs: vector clocks, cut into epochs by __syncthreads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace heed::emulator {

/// When a thread did something: everything of an earlier epoch is over; inside an epoch its own clock counts.
struct Moment {
  uint32_t epoch, clock;
  unsigned thread;
};

class Clocks {
 public:
  void start(unsigned threads);
  Moment now(unsigned thread) const { return {epoch_, seen(thread, thread), thread}; }

  /// Whether `moment` happened before whatever `thread` does now.
  bool before(const Moment& moment, unsigned thread) const {
    return moment.thread == thread || moment.epoch < epoch_ || moment.clock <= seen(thread, moment.thread);
  }

  void block_barrier() { ++epoch_; }
  void warp_barrier(unsigned warp, uint32_t lanes);
  void arrive(const void* barrier, unsigned thread);
  void leave(const void* barrier, unsigned thread);
  void barrier_done(const void* barrier) { passed_on_.erase(barrier); }

 private:
  uint32_t& seen(unsigned thread, unsigned other) {
    return seen_[static_cast<size_t>(thread) * threads_ + other];
  }
  uint32_t seen(unsigned thread, unsigned other) const {
    return seen_[static_cast<size_t>(thread) * threads_ + other];
  }

  unsigned threads_ = 0;
  uint32_t epoch_ = 0;
  std::vector<uint32_t>
      seen_;  // [threads, threads]: the last moment of the second that the first knows to be over
  std::unordered_map<const void*, std::vector<uint32_t>> passed_on_;
};

}  // namespace heed::emulator
