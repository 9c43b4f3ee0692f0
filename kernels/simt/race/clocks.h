// What happened before what in the block that runs: vector clocks, cut into epochs by __syncthreads.
//
// Beside the threads there are agents, which do what the asynchronous proxy does: one for the copies that
// each mbarrier counts, whose clock is the mbarrier's phase, one for the wgmma of each warpgroup, whose clock
// counts them, and two for the bulk copies of each thread that issues any, one reads and one writes. No
// barrier orders what agents do, but the waits by which threads learn of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include <heed/kernels/simt/host/machine.h>

namespace heed::emulator {

/// When a thread or agent did something: everything of an earlier epoch is over; inside an epoch its own
/// clock counts.
struct Moment {
  uint32_t epoch, clock;
  unsigned thread;
};

/// What had happened in a block.
struct Snapshot {
  uint32_t epoch = 0;            // all of earlier ones,
  std::vector<uint32_t> clocks;  // and so much of each thread's or agent's in this one

  bool covers(const Moment& moment) const {
    return moment.epoch < epoch || (moment.thread < clocks.size() && moment.clock <= clocks[moment.thread]);
  }
};

constexpr unsigned kMaxGroups = kMaxThreads / 128;
constexpr unsigned kAgents = kMaxGroups + kMaxMbarriers + 2 * kMaxBulkLines;

class Clocks {
 public:
  void start(unsigned threads);
  Moment now(unsigned thread) const { return {epoch_, seen(thread, thread), thread}; }

  /// Whether `moment` happened before whatever `thread` does now.
  bool before(const Moment& moment, unsigned thread) const {
    return moment.thread == thread || moment.epoch < epoch_ || moment.clock <= seen(thread, moment.thread);
  }

  void block_barrier();
  void warp_barrier(unsigned warp, uint32_t lanes);
  void arrive(const void* barrier, unsigned thread);
  void leave(const void* barrier, unsigned thread);
  void barrier_done(const void* barrier) { passed_on_.erase(barrier); }

  /// The moment of an agent, which no epoch ends.
  Moment of_group(unsigned group, uint32_t product) const { return {kNoEpoch, product, threads_ + group}; }
  Moment of_copies(unsigned mbarrier, uint32_t phase) const {
    return {kNoEpoch, phase, threads_ + kMaxGroups + mbarrier};
  }
  Moment of_bulk_reads(unsigned line, uint32_t copy) const {
    return {kNoEpoch, copy, threads_ + kMaxGroups + kMaxMbarriers + 2 * line};
  }
  Moment of_bulk_writes(unsigned line, uint32_t copy) const {
    return {kNoEpoch, copy, threads_ + kMaxGroups + kMaxMbarriers + 2 * line + 1};
  }
  bool is_bulk(const Moment& moment) const { return moment.thread >= threads_ + kMaxGroups + kMaxMbarriers; }
  bool is_group(const Moment& moment) const {
    return moment.thread >= threads_ && moment.thread < threads_ + kMaxGroups;
  }
  bool is_agent(const Moment& moment) const { return moment.thread >= threads_; }
  unsigned group_of(const Moment& moment) const { return moment.thread - threads_; }
  /// `thread` knows that what the agent did until `moment` is over.
  void learn(const Moment& moment, unsigned thread) {
    uint32_t& known = seen(thread, moment.thread);
    known = known < moment.clock ? moment.clock : known;
  }

  /// The phase of an mbarrier ends: what arrivals passed on can be learnt.
  void phase_end(const void* mbarrier) { released_[mbarrier] = passed_on_[mbarrier]; }
  void phase_seen(const void* mbarrier, unsigned thread);

  /// What happened before a __threadfence() that happened before an atomic at some address is published
  /// there: known to the threads of other blocks that come after an atomic of theirs at the same address, and
  /// in this block to a thread after its own and a __threadfence(). Returns what the thread publishes.
  void fence(unsigned thread);
  Snapshot atomic(const void* address, unsigned thread);
  bool after_atomic(const void* address, unsigned thread) const;
  /// Whether the thread's bulk copies know what its last atomic showed it.
  void fence_async_global(unsigned thread) { awaits_async_fence_[thread] = false; }
  bool shown_to_agents(unsigned thread) const { return !awaits_async_fence_[thread]; }

  /// What the thread wrote is visible to agents, as far as its fence is known.
  void fence_async(unsigned thread);
  bool visible_to_agents(const Moment& written, unsigned reader) const;

 private:
  static constexpr uint32_t kNoEpoch = ~0u;
  using Row = std::vector<uint32_t>;
  struct Fence {
    Moment moment;
    Snapshot covered;
  };

  unsigned columns() const { return threads_ + kAgents; }
  void merge(unsigned thread, const Row& row);
  uint32_t& seen(unsigned thread, unsigned other) {
    return seen_[static_cast<size_t>(thread) * columns() + other];
  }
  uint32_t seen(unsigned thread, unsigned other) const {
    return seen_[static_cast<size_t>(thread) * columns() + other];
  }

  unsigned threads_ = 0;
  uint32_t epoch_ = 0;
  Row seen_;  // [threads, threads and agents]: the last moment of the second that the first knows to be over
  std::unordered_map<const void*, Row> passed_on_, released_;
  std::vector<Fence> fences_;
  std::unordered_map<const void*, std::vector<Moment>> atomics_;  // at an address, the first of each thread
  std::unordered_map<const void*, Row> published_;                // at an address, by this block
  std::unordered_map<unsigned, Row> shown_to_;  // each thread, by its atomics since its last fence
  std::vector<bool> awaits_async_fence_;  // whether the thread had an atomic, and no fence for agents since
  std::vector<std::vector<Moment>> async_fences_;  // of each thread, in order
};

}  // namespace heed::emulator
