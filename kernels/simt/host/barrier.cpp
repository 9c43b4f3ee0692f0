// Barriers of a block: __syncthreads and its voting forms (id 0), named barriers (ids 1 to 15); and that of a
// cluster.
#include <cstring>

#include <heed/kernels/simt/host/builtins.h>
#include <heed/kernels/simt/host/machine.h>
#include <heed/kernels/simt/host/monitor.h>
#include <heed/kernels/simt/host/ptx_hopper.h>
#include <heed/kernels/simt/host/warpgroup.h>

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

// The barrier of the cluster orders all of its threads, __syncthreads those of a block.
bool orders_all(const BlockBarrier& barrier) {
  return barrier.expected == 0 && (machine.blocks == 1 || &barrier == &machine.cluster_barrier);
}

// `live`: the threads it waits for that have not returned, of `threads`.
void release_if_complete(BlockBarrier& barrier, unsigned live, unsigned threads) {
  Machine& m = machine;
  if (!barrier.active) return;
  if (barrier.arrived < (barrier.expected ? barrier.expected : live)) return;
  if (barrier.expected == 0 && config().strict_exit && live != threads)
    fail("__syncthreads reached by " + std::to_string(barrier.arrived) + " threads, but " +
             std::to_string(threads - live) + " threads of the block have returned",
         barrier.at);
  const unsigned answer = result(barrier);
  const bool all = orders_all(barrier);
  barrier.active = false;
  ++stats().block_barriers;
  if (monitor && all) monitor->block_barrier();
  for (unsigned warp = 0; warp < (m.threads + 31) / 32; ++warp) {
    for (uint32_t rest = barrier.waiting[warp]; rest != 0; rest &= rest - 1) {
      const unsigned thread = warp * 32 + static_cast<unsigned>(__builtin_ctz(rest));
      m.fibers[thread].barrier_result = answer;
      if (monitor && !all) monitor->leave(&barrier, thread);
    }
    make_ready(warp, barrier.waiting[warp]);
    barrier.waiting[warp] = 0;
  }
  if (monitor && !all) monitor->barrier_done(&barrier);
}

void release_if_complete(BlockBarrier& barrier, unsigned block) {
  if (&barrier == &machine.cluster_barrier)
    release_if_complete(barrier, machine.live, machine.threads);
  else
    release_if_complete(barrier, machine.live_of_block[block], machine.block_threads);
}

unsigned arrive(BlockBarrier& barrier, const char* name, unsigned expected, Vote vote, bool predicate,
                bool wait_here, Location at) {
  Fiber* fiber = machine.current;
  join(barrier, fiber, expected, vote, at);
  ++barrier.arrived;
  barrier.true_votes += predicate;
  if (monitor && !orders_all(barrier)) monitor->arrive(&barrier, fiber->thread);
  if (wait_here) {
    barrier.waiting[fiber->thread >> 5] |= 1u << (fiber->thread & 31);
    fiber->waits_in = name;
    fiber->at = at;
    stop(fiber, State::waiting);
  }
  release_if_complete(barrier, block_of(fiber->thread));
  if (wait_here) yield_if_waiting(fiber);
  return fiber->barrier_result;
}

BlockBarrier& barrier_of_running_block(unsigned id, Location at) {
  return machine.barriers[block_of(require_fiber(at)->thread)][id];
}

unsigned sync_block(Vote vote, bool predicate, Location at) {
  return arrive(barrier_of_running_block(0, at), "__syncthreads", 0, vote, predicate, true, at);
}

void reset(BlockBarrier& barrier) {
  barrier.active = false;
  memset(barrier.waiting, 0, sizeof barrier.waiting);
}

}  // namespace

void reset_barriers() {
  for (unsigned block = 0; block < machine.blocks; ++block)
    for (BlockBarrier& barrier : machine.barriers[block]) reset(barrier);
  reset(machine.cluster_barrier);
}

void release_barriers_without(unsigned block) {
  release_if_complete(machine.barriers[block][0], block);
  release_if_complete(machine.cluster_barrier, block);
}

void sync_threads(Location at) { sync_block(Vote::none, false, at); }
int sync_threads_count(bool predicate, Location at) {
  return static_cast<int>(sync_block(Vote::count, predicate, at));
}
int sync_threads_and(bool predicate, Location at) {
  return static_cast<int>(sync_block(Vote::all, predicate, at));
}
int sync_threads_or(bool predicate, Location at) {
  return static_cast<int>(sync_block(Vote::any, predicate, at));
}

uint32_t block_in_cluster(Location at) { return block_of(require_fiber(at)->thread); }

void sync_cluster(Location at) {
  require_fiber(at);
  require_hopper("cluster_sync", at);
  arrive(machine.cluster_barrier, "cluster_sync", 0, Vote::none, false, true, at);
}

void named_barrier(int id, int threads, bool wait_here, Location at) {
  if (id < 1 || id > 15)
    fail("named barrier " + std::to_string(id) + ": the ids are 1 to 15 (0 is __syncthreads)", at);
  if (threads <= 0 || threads % 32 != 0 || threads > static_cast<int>(kMaxThreads))
    fail("named barrier of " + std::to_string(threads) + " threads: needs a multiple of 32 from 32 to 1024",
         at);
  arrive(barrier_of_running_block(static_cast<unsigned>(id), at), "a named barrier",
         static_cast<unsigned>(threads), Vote::none, false, wait_here, at);
}

}  // namespace heed::emulator
