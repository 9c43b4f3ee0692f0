// Which thread of the block runs next.
#include <heed/kernels/simt/host/builtins.h>
#include <heed/kernels/simt/host/machine.h>
#include <heed/kernels/simt/host/monitor.h>
#include <heed/kernels/simt/host/ptx.h>

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace heed::emulator {

Machine machine;

namespace {

constexpr int kIdlePolls = 1000;    // rounds of polling in which nothing at all happened: a deadlock
constexpr int kMaxPolls = 1000000;  // rounds of polling in one block: an endless loop

constexpr uint32_t kLandOneIn = 64;  // turns in random order: when copies by the TMA land before they have to

uint64_t random_state = 1;

unsigned lowest(uint32_t bits) { return static_cast<unsigned>(__builtin_ctz(bits)); }
unsigned highest(uint32_t bits) { return 31u - static_cast<unsigned>(__builtin_clz(bits)); }

unsigned random_bit(uint32_t bits) {
  for (uint32_t skip = random_below(static_cast<uint32_t>(__builtin_popcount(bits))); skip > 0; --skip)
    bits &= bits - 1;
  return lowest(bits);
}

// Lets the threads that spin on memory look again; false if that would go on for ever.
bool wake_polling() {
  Machine& m = machine;
  if (m.polling_warps == 0) return false;
  const bool something_happened = m.events != m.events_at_last_poll;
  if (something_happened ? ++m.polls > kMaxPolls : ++m.idle_polls > kIdlePolls) return false;
  m.events_at_last_poll = m.events;
  for (uint32_t rest = m.polling_warps; rest != 0; rest &= rest - 1) {
    const unsigned warp = lowest(rest);
    const uint32_t lanes = m.warps[warp].polling;
    m.warps[warp].polling = 0;
    make_ready(warp, lanes);
  }
  m.polling_warps = 0;
  return true;
}

}  // namespace

void seed_random(uint64_t seed) { random_state = seed * 0x9E3779B97F4A7C15ull | 1; }

uint32_t random_below(uint32_t limit) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return static_cast<uint32_t>(random_state >> 33) % limit;
}

void make_ready(unsigned warp, uint32_t lanes) {
  if (lanes == 0) return;
  machine.warps[warp].ready |= lanes;
  machine.ready_warps |= 1u << warp;
  for (uint32_t rest = lanes; rest != 0; rest &= rest - 1)
    machine.fibers[warp * 32 + lowest(rest)].state = State::ready;
}

void stop(Fiber* fiber, State state) {
  fiber->state = state;
  const unsigned warp = fiber->thread >> 5;
  machine.warps[warp].ready &= ~(1u << (fiber->thread & 31));
  if (machine.warps[warp].ready == 0) machine.ready_warps &= ~(1u << warp);
}

Fiber* pick_next() {
  Machine& m = machine;
  if (config().order == Order::random && m.live != 0) land_copy(kLandOneIn);
  while (m.ready_warps == 0)
    if (!(m.live != 0 && land_copy()) && !wake_polling()) return nullptr;
  const uint32_t warps = m.ready_warps;
  if (config().order == Order::random) {
    const unsigned warp = random_bit(warps);
    return &m.fibers[warp * 32 + random_bit(m.warps[warp].ready)];
  }
  const bool reverse = config().order == Order::reverse;
  if (((warps >> m.current_warp) & 1) == 0) {
    const uint32_t later =
        reverse ? warps & ((1u << m.current_warp) - 1) : warps & ~((2u << m.current_warp) - 1);
    m.current_warp = reverse ? highest(later ? later : warps) : lowest(later ? later : warps);
  }
  const uint32_t lanes = m.warps[m.current_warp].ready;
  return &m.fibers[m.current_warp * 32 + (reverse ? highest(lanes) : lowest(lanes))];
}

void yield_if_waiting(Fiber* fiber) {
  if (fiber->state == State::ready) return;
  Fiber* next = pick_next();
  if (next != fiber) switch_to(fiber, next);
}

void wait(const char* what, Location at) {
  Fiber* fiber = machine.current;
  fiber->waits_in = what;
  fiber->at = at;
  stop(fiber, State::waiting);
  yield_if_waiting(fiber);
}

Fiber* require_fiber(Location at) {
  if (machine.current == nullptr || !on_fiber_stack(__builtin_frame_address(0)))
    throw Error("emulator: device function called outside a kernel at " + text(at));
  ++machine.events;
  return machine.current;
}

bool may_use_memory() { return machine.current == nullptr || machine.current->has_waited; }

void check_has_waited(const void* address, const char* what, Location at) {
  if (may_use_memory() || in_shared_memory(address, 1) || on_fiber_stack(address)) return;
  fail(std::string(what) + ": global memory before Dependent::wait(), while kernels in front may use it", at);
}

void wait_for_kernels_before(Location at) { require_fiber(at)->has_waited = true; }

void finish_fiber() {
  Machine& m = machine;
  Fiber* fiber = m.current;
  if (!fiber->has_waited)
    fail("a thread returns without Dependent::wait(), so that its kernel may end before those in front", {});
  stop(fiber, State::done);
  const unsigned block = block_of(fiber->thread);
  --m.live;
  --m.live_of_block[block];
  ++m.events;
  const unsigned warp = fiber->thread >> 5;
  m.warps[warp].live &= ~(1u << (fiber->thread & 31));
  for (int i = m.warps[warp].rendezvous_count - 1; i >= 0; --i) complete_rendezvous(warp, i);
  release_barriers_without(block);
  switch_to(fiber, pick_next());
  __builtin_trap();
}

unsigned lane_id() { return machine.current->thread & 31; }

void progress() { ++machine.events; }

void spin(Location at) {
  Fiber* fiber = require_fiber(at);
  --machine.events;  // looking is no event
  fiber->waits_in = "a spin loop";
  fiber->at = at;
  stop(fiber, State::polling);
  const unsigned warp = fiber->thread >> 5;
  machine.warps[warp].polling |= 1u << (fiber->thread & 31);
  machine.polling_warps |= 1u << warp;
  yield_if_waiting(fiber);
}

}  // namespace heed::emulator
