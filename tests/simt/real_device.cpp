// What stands in for the emulator's controls where the tests of kernels run on a GPU: each of its schedules
// is a repetition, whose bits must be the same, and nothing is counted.
#include <heed/kernels/simt/host/emulator.h>

namespace heed::emulator {

Config& config() {
  static Config config;
  return config;
}

Stats& stats() {
  static Stats stats{};
  return stats;
}

bool checks_races() { return false; }

bool checks_addresses() { return false; }

void each_schedule(const std::function<void(const std::string& schedule)>& run) {
  for (int i = 0; i < 4; ++i) run("repetition " + std::to_string(i));
}

}  // namespace heed::emulator
