#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <vector>

#include <heed/core/base/check.h>
#include <heed/core/io/atomic_file.h>
#include <heed/core/runtime/profile.h>

namespace heed {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxEvents = 4'000'000;  // about 100 MB; later ones are counted, not kept

struct Profile {
  std::mutex mutex;
  std::string file;
  std::vector<ProfileEvent> events;
  size_t lost = 0;
  Clock::time_point start;
};

std::atomic<bool> recording{false};

Profile& profile() {
  static Profile* const instance = new Profile;  // scopes may end while statics are destroyed
  return *instance;
}

int thread_number() {
  static std::atomic<int> next{0};
  thread_local const int number = next++;
  return number;
}

double microseconds(Clock::duration d) { return std::chrono::duration<double, std::micro>(d).count(); }

std::string to_json(const Profile& p) {
  std::string text = "{\"traceEvents\":[";
  for (const ProfileEvent& event : p.events)
    text += concat(text.back() == '[' ? "" : ",", "\n{\"name\":\"", event.name,
                   "\",\"ph\":\"X\",\"pid\":1,\"tid\":", event.thread, ",\"ts\":", fixed_text(event.begin, 3),
                   ",\"dur\":", fixed_text(event.duration, 3),
                   ",\"args\":{\"operations\":", fixed_text(event.cost.flops, 0),
                   ",\"bytes\":", fixed_text(event.cost.bytes, 0), "}}");
  return text + concat("\n],\"otherData\":{\"lost\":", p.lost, "}}\n");
}

// Starts the profile that the environment asks for, and writes it when the program ends.
struct FromEnvironment {
  FromEnvironment() {
    const char* file = std::getenv("HEED_PROFILE");
    if (file && *file) start_profile(file);
  }
  ~FromEnvironment() {
    try {
      stop_profile();
    } catch (const Error& error) {
      std::fprintf(stderr, "heed: %s\n", error.what());
    }
  }
} from_environment;

}  // namespace

bool profiling() { return recording.load(std::memory_order_relaxed); }

void start_profile(const std::string& file) {
  Profile& p = profile();
  const std::lock_guard lock(p.mutex);
  p.file = file;
  p.events.clear();
  p.lost = 0;
  p.start = Clock::now();
  recording = true;
}

void stop_profile() {
  if (!recording.exchange(false)) return;
  Profile& p = profile();
  const std::lock_guard lock(p.mutex);
  if (!p.file.empty()) write_whole_file(p.file, to_json(p));
}

std::vector<ProfileEvent> profile_events() {
  Profile& p = profile();
  const std::lock_guard lock(p.mutex);
  return p.events;
}

void ProfileScope::finish() noexcept {
  const Clock::time_point end = Clock::now();
  Profile& p = profile();
  const std::lock_guard lock(p.mutex);
  if (p.events.size() >= kMaxEvents) {
    ++p.lost;
    return;
  }
  try {
    p.events.push_back(
        {name_, thread_number(), microseconds(begin_ - p.start), microseconds(end - begin_), cost_});
  } catch (...) {
    ++p.lost;
  }
}

}  // namespace heed
