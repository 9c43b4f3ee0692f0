// The text of failures.
#include <cstdio>
#include <cstring>

#include <heed/kernels/simt/host/builtins.h>
#include <heed/kernels/simt/host/machine.h>

namespace heed::emulator {
namespace {

// 0-15,32,34-40
std::string ranges(const std::vector<unsigned>& numbers) {
  std::string out;
  for (size_t i = 0; i < numbers.size();) {
    size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    if (!out.empty()) out += ",";
    out += std::to_string(numbers[i]);
    if (last > i) out += "-" + std::to_string(numbers[last]);
    i = last + 1;
  }
  return out;
}

// Which thread runs, of which launch.
std::string running() {
  const unsigned thread = machine.current->thread % machine.block_threads;
  return "block " + text(blockIdx) + " thread " + text(threadIdx) + " (warp " + std::to_string(thread / 32) +
         " lane " + std::to_string(thread % 32) + "), kernel launched at " + text(machine.launch);
}

}  // namespace

std::string text(Location at) {
  if (at.file == nullptr) return "?";
  const char* slash = strrchr(at.file, '/');
  return std::string(slash ? slash + 1 : at.file) + ":" + std::to_string(at.line);
}

std::string text(uint3 index) {
  return "(" + std::to_string(index.x) + "," + std::to_string(index.y) + "," + std::to_string(index.z) + ")";
}

std::string text_of_threads(unsigned first, unsigned count) {
  const unsigned place = first % machine.block_threads;
  std::string numbers = std::to_string(place);
  if (count > 1) numbers += "-" + std::to_string(place + count - 1);
  return machine.blocks == 1 ? numbers
                             : numbers + " of the cluster's block " + std::to_string(block_of(first));
}

std::string text_of_thread(unsigned thread) { return "thread " + text_of_threads(thread, 1); }

void fail(const std::string& what, Location at) {
  Machine& m = machine;
  if (m.current == nullptr) throw Error("emulator: " + what + (at.file ? " at " + text(at) : ""));
  if (!m.failed) {
    m.failed = true;
    m.message = "emulator: " + what + (at.file ? " at " + text(at) : "") + ", " + running();
  }
  for (;;) switch_to(m.current, nullptr);
}

void throw_deadlock() {
  struct Group {
    std::string place;
    std::vector<unsigned> threads;
  };
  std::vector<Group> groups;
  std::vector<unsigned> returned;
  for (unsigned t = 0; t < machine.threads; ++t) {
    const Fiber& fiber = machine.fibers[t];
    if (fiber.state == State::done) {
      returned.push_back(t);
      continue;
    }
    const std::string place = std::string(fiber.waits_in ? fiber.waits_in : "?") + " at " + text(fiber.at);
    size_t g = 0;
    while (g < groups.size() && groups[g].place != place) ++g;
    if (g == groups.size()) groups.push_back({place, {}});
    groups[g].threads.push_back(t);
  }
  std::string message =
      std::string("emulator: deadlock in ") +
      (machine.blocks == 1 ? "block " : "the cluster, its threads numbered through, of block ") +
      text(machine.fibers[0].block) + ", kernel launched at " + text(machine.launch);
  for (const Group& group : groups)
    message += "\n  threads " + ranges(group.threads) + " wait in " + group.place;
  if (!returned.empty()) message += "\n  threads " + ranges(returned) + " have returned";
  throw Error(message + text_of_mbarriers() + text_of_registers());
}

}  // namespace heed::emulator

#ifdef HEED_EMULATOR_ASAN
// The sanitizers' own reports begin with them.
extern "C" void __asan_on_error() {
  using namespace heed::emulator;
  if (on_fiber_stack(__builtin_frame_address(0))) fprintf(stderr, "emulator: %s\n", running().c_str());
}
extern "C" void __ubsan_on_report() { __asan_on_error(); }
#endif
