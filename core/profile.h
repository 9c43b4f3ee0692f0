// Where the time goes: HEED_PROFILE=trace.json writes a Chrome trace of every kernel when the program ends
// (chrome://tracing or Perfetto show it).
#pragma once

#include <chrono>
#include <string>

namespace heed {

/// Whether scopes are recorded: HEED_PROFILE is set, or start_profile() was called.
bool profiling();

/// Records from now on; stop_profile() writes the file. IoError where it cannot be written.
void start_profile(const std::string& file);
void stop_profile();

/// Records its lifetime under `name`, a string literal. Costs a branch when nothing is recorded.
class ProfileScope {
 public:
  explicit ProfileScope(const char* name) : name_(profiling() ? name : nullptr) {
    if (name_) begin_ = Clock::now();
  }
  ~ProfileScope() {
    if (name_) finish();
  }
  ProfileScope(const ProfileScope&) = delete;
  ProfileScope& operator=(const ProfileScope&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  void finish() noexcept;

  const char* name_;
  Clock::time_point begin_;
};

}  // namespace heed
