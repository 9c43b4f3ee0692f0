// Where the time goes: HEED_PROFILE=trace.json writes a Chrome trace of every kernel when the program ends
// (chrome://tracing or Perfetto show it).
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include <heed/core/base/cost.h>

namespace heed {

/// One call of a kernel.
struct ProfileEvent {
  const char* name;
  int thread;              // counted from 0, in the order of their first events
  double begin, duration;  // microseconds from the start
  Cost cost;               // nothing where it is not counted: on CUDA, and for kernels that do not tell
};

/// Whether scopes are recorded: HEED_PROFILE is set, or start_profile() was called.
bool profiling();

/// Records from now on; stop_profile() writes the file, if one is named. IoError where it cannot be written.
void start_profile(const std::string& file = "");
void stop_profile();

/// What has been recorded since the last start, the first four million events at most.
std::vector<ProfileEvent> profile_events();

/// Records its lifetime under `name`, a string literal. Costs a branch when nothing is recorded.
class ProfileScope {
 public:
  [[nodiscard]] explicit ProfileScope(const char* name) : name_(profiling() ? name : nullptr) {
    if (name_) begin_ = Clock::now();
  }
  ~ProfileScope() {
    if (name_) finish();
  }
  ProfileScope(const ProfileScope&) = delete;
  ProfileScope& operator=(const ProfileScope&) = delete;

  bool recorded() const { return name_ != nullptr; }
  /// What is done in the scope.
  void note(const Cost& cost) { cost_ = cost; }

 private:
  using Clock = std::chrono::steady_clock;
  void finish() noexcept;

  const char* name_;
  Clock::time_point begin_;
  Cost cost_;
};

}  // namespace heed
