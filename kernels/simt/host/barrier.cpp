// Barriers of a block: __syncthreads and its voting forms (id 0), named barriers (ids 1 to 15).
#include <cstring>

#include <heed/kernels/simt/host/builtins.h>
#include <heed/kernels/simt/host/machine.h>
#include <heed/kernels/simt/host/monitor.h>

namespace heed::emulator {
namespace {

unsigned result(const BlockBarrier& barrier) {
  switch (barrier.vote) {
    case Vote::count:
      return barrier.true_votes;
    case Vote::all:
      return barrier.true_votes == barrier.arrived;
    case Vote::any:
      return barrier.true_votes != 0;
    case Vote::none:
      break;
  }
  return 0;
}

void join(BlockBarrier& barrier, Fiber* fiber, unsigned expected, Vote vote, Location at) {
  if (!barrier.active) {
    barrier.active = true;
    barrier.expected = expected;
    barrier.arrived = barrier.true_votes = 0;
    barrier.vote = vote;
    barrier.first_thread = fiber->thread;
    barrier.at = at;
    return;
  }
  const bool same_place = barrier.at.line == at.line && strcmp(barrier.at.file, at.file) == 0;
  if (barrier.expected != expected || barrier.vote != vote || (expected == 0 && !same_place))
    fail("divergent barrier: this thread is in the barrier at " + text(at) + " while thread " +
             std::to_string(barrier.first_thread) + " waits in the barrier at " + text(barrier.at),
         at);
}

unsigned arrive(unsigned id, unsigned expected, Vote vote, bool predicate, bool wait_here, Location at) {
  Fiber* fiber = require_fiber(at);
  BlockBarrier& barrier = machine.barriers[id];
  join(barrier, fiber, expected, vote, at);
  ++barrier.arrived;
  barrier.true_votes += predicate;
  if (monitor && expected != 0) monitor->arrive(&barrier, fiber->thread);
  if (wait_here) {
    barrier.waiting[fiber->thread >> 5] |= 1u << (fiber->thread & 31);
    fiber->waits_in = expected ? "a named barrier" : "__syncthreads";
    fiber->at = at;
    stop(fiber, State::waiting);
  }
  release_barrier_if_complete(id);
  if (wait_here) yield_if_waiting(fiber);
  return fiber->barrier_result;
}

}  // namespace

void reset_barriers() {
  for (BlockBarrier& barrier : machine.barriers) {
    barrier.active = false;
    memset(barrier.waiting, 0, sizeof barrier.waiting);
  }
}

void release_barrier_if_complete(unsigned id) {
  Machine& m = machine;
  BlockBarrier& barrier = m.barriers[id];
  if (!barrier.active) return;
  if (barrier.arrived < (barrier.expected ? barrier.expected : m.live)) return;
  if (barrier.expected == 0 && config().strict_exit && m.live != m.threads)
    fail("__syncthreads reached by " + std::to_string(barrier.arrived) + " threads, but " +
             std::to_string(m.threads - m.live) + " threads of the block have returned",
         barrier.at);
  const unsigned answer = result(barrier);
  barrier.active = false;
  ++stats().block_barriers;
  if (monitor && barrier.expected == 0) monitor->block_barrier();
  for (unsigned warp = 0; warp < (m.threads + 31) / 32; ++warp) {
    for (uint32_t rest = barrier.waiting[warp]; rest != 0; rest &= rest - 1) {
      const unsigned thread = warp * 32 + static_cast<unsigned>(__builtin_ctz(rest));
      m.fibers[thread].barrier_result = answer;
      if (monitor && barrier.expected != 0) monitor->leave(&barrier, thread);
    }
    make_ready(warp, barrier.waiting[warp]);
    barrier.waiting[warp] = 0;
  }
  if (monitor && barrier.expected != 0) monitor->barrier_done(&barrier);
}

void sync_threads(Location at) { arrive(0, 0, Vote::none, false, true, at); }
int sync_threads_count(bool predicate, Location at) {
  return static_cast<int>(arrive(0, 0, Vote::count, predicate, true, at));
}
int sync_threads_and(bool predicate, Location at) {
  return static_cast<int>(arrive(0, 0, Vote::all, predicate, true, at));
}
int sync_threads_or(bool predicate, Location at) {
  return static_cast<int>(arrive(0, 0, Vote::any, predicate, true, at));
}

void named_barrier(int id, int threads, bool wait_here, Location at) {
  if (id < 1 || id > 15)
    fail("named barrier " + std::to_string(id) + ": the ids are 1 to 15 (0 is __syncthreads)", at);
  if (threads <= 0 || threads % 32 != 0 || threads > static_cast<int>(kMaxThreads))
    fail("named barrier of " + std::to_string(threads) + " threads: needs a multiple of 32 from 32 to 1024",
         at);
  arrive(static_cast<unsigned>(id), static_cast<unsigned>(threads), Vote::none, false, wait_here, at);
}

}  // namespace heed::emulator
