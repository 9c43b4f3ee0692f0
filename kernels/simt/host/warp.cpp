// What the lanes of a warp do together: shuffles, votes, matches, reductions.
#include <cstdio>
#include <cstring>

#include <heed/kernels/simt/host/builtins.h>
#include <heed/kernels/simt/host/machine.h>
#include <heed/kernels/simt/host/monitor.h>

namespace heed::emulator {
namespace {

unsigned lowest(uint32_t bits) { return static_cast<unsigned>(__builtin_ctz(bits)); }

std::string masked(const char* what, uint32_t mask) {
  char hex[32];
  snprintf(hex, sizeof hex, " (mask %08x)", mask);
  return what + std::string(hex);
}

// The rendezvous that this call belongs to; a new one if it is the first. Different masks may be under way in
// a warp at the same time, unless two wait for each other.
int find_rendezvous(Warp& warp, const char* what, WarpFunction function, uint32_t mask, unsigned lane,
                    Location at) {
  for (int i = 0; i < warp.rendezvous_count; ++i) {
    const Rendezvous& other = warp.rendezvous[i];
    if (other.mask == mask && other.function == function && other.at.line == at.line &&
        strcmp(other.what, what) == 0)
      return i;
    if (((other.mask >> lane) & 1) && (other.arrived & mask))
      fail("divergent warp collective: this lane executes " + masked(what, mask) + " at " + text(at) +
               ", lane " + std::to_string(lowest(other.arrived)) + " waits in " +
               masked(other.what, other.mask) + " at " + text(other.at),
           at);
  }
  Rendezvous& fresh = warp.rendezvous[warp.rendezvous_count];
  fresh.mask = mask;
  fresh.arrived = 0;
  fresh.function = function;
  fresh.what = what;
  fresh.at = at;
  return warp.rendezvous_count++;
}

}  // namespace

void complete_rendezvous(unsigned warp_index, int index) {
  Warp& warp = machine.warps[warp_index];
  Rendezvous& r = warp.rendezvous[index];
  const uint32_t needed = r.mask & warp.live;
  if ((r.arrived & needed) != needed) return;
  ++stats().warp_collectives;
  if (r.function) r.function(r.operands, r.arrived, r.at);
  if (monitor && r.orders_memory) monitor->warp_barrier(warp_index, r.arrived);
  make_ready(warp_index, r.arrived);
  if (index != --warp.rendezvous_count) r = warp.rendezvous[warp.rendezvous_count];
}

void warp_collective(const char* what, WarpFunction function, uint32_t mask, void* operand, Location at,
                     bool orders_memory) {
  Fiber* fiber = require_fiber(at);
  const unsigned lane = fiber->thread & 31;
  if (((mask >> lane) & 1) == 0) fail(masked(what, mask) + ": the calling lane is not in its own mask", at);
  Warp& warp = machine.warps[fiber->thread >> 5];
  const int index = find_rendezvous(warp, what, function, mask, lane, at);
  Rendezvous& r = warp.rendezvous[index];
  r.arrived |= 1u << lane;
  r.operands[lane] = operand;
  r.orders_memory = orders_memory;
  fiber->waits_in = what;
  fiber->at = at;
  stop(fiber, State::waiting);
  complete_rendezvous(fiber->thread >> 5, index);
  yield_if_waiting(fiber);
}

void shuffle_lanes(void* const* operands, uint32_t mask, Location at) {
  for (uint32_t rest = mask; rest; rest &= rest - 1) {
    const int lane = static_cast<int>(lowest(rest));
    ShuffleOperand& mine = *static_cast<ShuffleOperand*>(operands[lane]);
    const int first = lane & ~(mine.width - 1), end = first + mine.width;
    const int distance = mine.argument & 31;  // the hardware takes five bits
    int source = lane;
    switch (mine.kind) {
      case Shuffle::index:
        source = first | (distance & (mine.width - 1));
        break;
      case Shuffle::up:
        source = lane - distance < first ? lane : lane - distance;
        break;
      case Shuffle::down:
        source = lane + distance >= end ? lane : lane + distance;
        break;
      case Shuffle::exclusive_or:
        source = (lane ^ distance) >= end ? lane : lane ^ distance;
        break;
    }
    if (((mask >> source) & 1) == 0)
      fail("shuffle: lane " + std::to_string(lane) + " reads lane " + std::to_string(source) +
               ", which is not in the mask or has returned",
           at);
    mine.out = static_cast<ShuffleOperand*>(operands[source])->in;
  }
}

namespace {

uint32_t combine(Reduce kind, uint32_t a, uint32_t b) {
  const int32_t sa = static_cast<int32_t>(a), sb = static_cast<int32_t>(b);
  switch (kind) {
    case Reduce::add:
      return a + b;
    case Reduce::min_unsigned:
      return a < b ? a : b;
    case Reduce::max_unsigned:
      return a > b ? a : b;
    case Reduce::min_signed:
      return sa < sb ? a : b;
    case Reduce::max_signed:
      return sa > sb ? a : b;
    case Reduce::bit_and:
      return a & b;
    case Reduce::bit_or:
      return a | b;
    case Reduce::bit_xor:
      return a ^ b;
    case Reduce::ballot:
    case Reduce::match:
      break;
  }
  return 0;
}

uint32_t lanes_equal_to(void* const* operands, uint32_t mask, uint64_t value) {
  uint32_t equal = 0;
  for (uint32_t rest = mask; rest; rest &= rest - 1)
    if (static_cast<ReduceOperand*>(operands[lowest(rest)])->in == value) equal |= rest & (~rest + 1);
  return equal;
}

}  // namespace

void reduce_lanes(void* const* operands, uint32_t mask, Location) {
  const auto operand = [&](unsigned lane) -> ReduceOperand& {
    return *static_cast<ReduceOperand*>(operands[lane]);
  };
  const Reduce kind = operand(lowest(mask)).kind;
  uint32_t out = 0;
  bool first = true;
  for (uint32_t rest = mask; rest; rest &= rest - 1) {
    const unsigned lane = lowest(rest);
    const uint32_t in = static_cast<uint32_t>(operand(lane).in);
    if (kind == Reduce::match)
      operand(lane).out = lanes_equal_to(operands, mask, operand(lane).in);
    else if (kind == Reduce::ballot)
      out |= in << lane;
    else
      out = first ? in : combine(kind, out, in);
    first = false;
  }
  if (kind == Reduce::match) return;
  for (uint32_t rest = mask; rest; rest &= rest - 1) operand(lowest(rest)).out = out;
}

}  // namespace heed::emulator
