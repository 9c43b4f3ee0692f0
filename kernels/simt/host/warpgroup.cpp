// Warpgroups: their meetings, and the registers that they hand to each other.
#include <algorithm>
#include <cstring>

#include <heed/kernels/simt/host/builtins.h>
#include <heed/kernels/simt/host/ptx_hopper.h>
#include <heed/kernels/simt/host/warpgroup.h>

namespace heed::emulator {
namespace {

constexpr unsigned kGroups = kMaxThreads / kGroupThreads;

struct Meeting {
  const char* what;
  GroupFunction function;
  Location at;
  unsigned arrived;
  void* operands[kGroupThreads];
};
Meeting meetings[kGroups];

// Of a thread of each group, and those of each block that no thread has.
int registers[kGroups], free_of_block[kMaxBlocks];

int& free_registers(unsigned group) { return free_of_block[block_of(group * kGroupThreads)]; }

void complete(unsigned group) {
  Meeting& meeting = meetings[group];
  if (meeting.arrived != kGroupThreads || !meeting.function(group, meeting.operands, meeting.at)) return;
  meeting.arrived = 0;
  for (unsigned warp = group * 4; warp < group * 4 + 4; ++warp) make_ready(warp, ~0u);
}

void retry_meetings() {
  for (unsigned group = 0; group < kGroups; ++group) complete(group);
}

void check_same(void* const* operands, const char* what, Location at) {
  for (unsigned i = 1; i < kGroupThreads; ++i)
    if (*static_cast<int*>(operands[i]) != *static_cast<int*>(operands[0]))
      fail(std::string(what) + ": the threads of a warpgroup ask for different numbers of registers", at);
}

bool release_for_group(unsigned group, void* const* operands, Location at) {
  check_same(operands, "release_registers", at);
  const int count = *static_cast<int*>(operands[0]);
  if (count > registers[group])
    fail("release_registers<" + std::to_string(count) + ">: the threads of the warpgroup have " +
             std::to_string(registers[group]),
         at);
  free_registers(group) += (registers[group] - count) * static_cast<int>(kGroupThreads);
  registers[group] = count;
  return true;
}

bool take_for_group(unsigned group, void* const* operands, Location at) {
  check_same(operands, "take_registers", at);
  const int count = *static_cast<int*>(operands[0]);
  if (count < registers[group])
    fail("take_registers<" + std::to_string(count) + ">: the threads of the warpgroup have " +
             std::to_string(registers[group]),
         at);
  const int more = (count - registers[group]) * static_cast<int>(kGroupThreads);
  if (more > free_registers(group)) return false;
  free_registers(group) -= more;
  registers[group] = count;
  return true;
}

}  // namespace

void require_hopper(const char* what, Location at) {
  if (config().compute_capability != 90)
    fail(std::string(what) + ": needs compute capability 9.0, the device has " +
             std::to_string(config().compute_capability / 10) + "." +
             std::to_string(config().compute_capability % 10),
         at);
}

void meet(const char* what, GroupFunction function, void* operand, Location at) {
  Fiber* fiber = require_fiber(at);
  require_hopper(what, at);
  const unsigned group = fiber->thread / kGroupThreads;
  if ((group + 1) * kGroupThreads > machine.threads)
    fail(std::string(what) + ": needs four whole warps, the first a multiple of four; the block has " +
             std::to_string(machine.threads) + " threads",
         at);
  Meeting& meeting = meetings[group];
  if (meeting.arrived == 0) {
    meeting.what = what;
    meeting.function = function;
    meeting.at = at;
  } else if (meeting.function != function || meeting.at.line != at.line ||
             strcmp(meeting.at.file, at.file) != 0) {
    fail("divergent warpgroup: this thread executes " + std::string(what) + " at " + text(at) +
             ", others wait in " + meeting.what + " at " + text(meeting.at),
         at);
  }
  meeting.operands[fiber->thread % kGroupThreads] = operand;
  ++meeting.arrived;
  fiber->waits_in = what;
  fiber->at = at;
  stop(fiber, State::waiting);
  complete(group);
  yield_if_waiting(fiber);
}

void release_registers(int count, Location at) {
  meet("release_registers", release_for_group, &count, at);
  if (require_fiber(at)->thread % kGroupThreads == 0) retry_meetings();
}

void take_registers(int count, Location at) { meet("take_registers", take_for_group, &count, at); }

void reset_warpgroups() {
  constexpr int kOfMultiprocessor = 65536, kMaxOfThread = 256;
  const int each = kOfMultiprocessor / static_cast<int>(machine.block_threads) / 8 * 8;
  std::fill_n(registers, kGroups, std::min(each, kMaxOfThread));
  std::fill_n(free_of_block, kMaxBlocks, 0);
  for (Meeting& meeting : meetings) meeting.arrived = 0;
}

std::string text_of_registers() {
  std::string lines;
  for (unsigned group = 0; group < kGroups; ++group)
    if (meetings[group].arrived == kGroupThreads && meetings[group].function == take_for_group)
      lines += "\n  registers: a thread of warps " + std::to_string(group * 4) + " to " +
               std::to_string(group * 4 + 3) + " has " + std::to_string(registers[group]) + " and wants " +
               std::to_string(*static_cast<int*>(meetings[group].operands[0])) + "; given back are " +
               std::to_string(free_registers(group) / static_cast<int>(kGroupThreads));
  return lines;
}

}  // namespace heed::emulator
