#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <new>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <heed/core/base/check.h>
#include <heed/core/base/float_mode.h>
#include <heed/core/base/memory/allocator.h>
#include <heed/core/base/threads/cpu_quota.h>
#include <heed/core/base/threads/parallel_for.h>
#include <heed/core/base/threads/pause.h>
#include <heed/core/base/threads/per_thread.h>

namespace heed {
namespace {

constexpr int kMaxThreads = 1024;
constexpr std::chrono::microseconds kSpin{20};   // a wake-up from sleep costs about as much
constexpr std::chrono::microseconds kStay{200};  // most pauses of a training step are shorter

thread_local bool inside_parallel_for = false;

/// Returns when `word` is no longer `old`: spins, then spins on but lets others have the core, then sleeps.
void wait_while(const std::atomic<uint32_t>& word, uint32_t old) {
  const auto spin = [&] {
    for (int i = 0; i < 16; ++i) {
      if (word.load(std::memory_order_acquire) != old) return true;
      pause();
    }
    return false;
  };
  if (spin()) return;  // without a look at the clock
  const auto start = std::chrono::steady_clock::now();
  for (std::chrono::steady_clock::duration waited{}; waited < kStay;
       waited = std::chrono::steady_clock::now() - start) {
    if (waited >= kSpin) std::this_thread::yield();
    if (spin()) return;
  }
  word.wait(old, std::memory_order_acquire);
}

int64_t chunk_end(int64_t begin, int64_t grain, int64_t count) {
  return count - begin < grain ? count : begin + grain;
}

int default_thread_count() {
  if (const char* text = std::getenv("HEED_NUM_THREADS"); text != nullptr && *text != '\0') {
    int threads = 0;
    const char* end = text + std::strlen(text);
    const auto [stop, error] = std::from_chars(text, end, threads);
    HEED_CHECK(error == std::errc() && stop == end && threads >= 1 && threads <= kMaxThreads, ConfigError,
               "HEED_NUM_THREADS is '", text, "'; expected a whole number, 1 to ", kMaxThreads);
    return threads;
  }
  int cores = static_cast<int>(std::thread::hardware_concurrency());
#ifdef __linux__
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) cores = CPU_COUNT(&allowed);
#endif
  return std::clamp(std::min(cores, detail::cpus_of_quota()), 1, kMaxThreads);
}

/// A job is a number of chunks that its caller and the workers claim one by one, each first from a run of
/// chunks of its own, then from the others'. So a thread comes back to the same part of a tensor in the next
/// job, which its caches may still hold: cores need not share even the last level. Whoever claims a chunk may
/// read the job's fields: the job cannot end, nor the next begin, before that chunk is done.
class Pool {
 public:
  explicit Pool(int threads) : threads_(threads) {}

  int threads() {
    int threads = threads_.load(std::memory_order_relaxed);
    if (threads != 0) return threads;
    const int initial = default_thread_count();
    return threads_.compare_exchange_strong(threads, initial) ? initial : threads;
  }

  int known_threads() const { return threads_.load(); }  // 0: not asked for yet

  void resize(int threads) {
    const std::lock_guard<std::mutex> lock(callers);
    threads_.store(threads);
    keep_workers(threads - 1);
  }

  /// No thread is left that might call.
  void dismiss_workers() {
    const std::lock_guard<std::mutex> lock(callers);
    keep_workers(0);
  }

  void run(int64_t count, int64_t grain, int64_t chunks, detail::RangeFunction f) {
    const std::lock_guard<std::mutex> lock(callers);
    start_workers();
    function_ = f;
    float_mode_ = detail::float_mode();
    count_ = count;
    grain_ = grain;
    chunks_ = chunks;
    failed_.store(false, std::memory_order_relaxed);
    const int64_t runs = std::min<int64_t>({chunks, threads(), kMaxRuns});
    runs_.store(runs, std::memory_order_relaxed);
    for (int64_t run = 0; run < runs; ++run)
      unclaimed_[run].chunks.store(run_end(run) - run_end(run - 1), std::memory_order_release);
    wake(static_cast<int>(std::min<int64_t>(chunks - 1, static_cast<int64_t>(workers_.size()))));
    inside_parallel_for = true;
    if (!work(0)) wait_while(finished_, 0);
    inside_parallel_for = false;
    // What the next job writes comes back from the workers' caches while the caller goes on.
    done_.store(0, std::memory_order_relaxed);
    finished_.store(0, std::memory_order_relaxed);
    for (int64_t run = 0; run < runs; ++run) unclaimed_[run].chunks.store(0, std::memory_order_relaxed);
    if (failed_.load(std::memory_order_relaxed)) std::rethrow_exception(std::exchange(exception_, nullptr));
  }

  std::mutex callers;  // held while a job runs

 private:
  void start_workers() {
    const int wanted = threads() - 1;
    if (static_cast<int>(workers_.size()) >= wanted) return;
    most_workers_.store(wanted);
    // Signals are for the threads of the program, but profilers time ours too.
    sigset_t blocked, before;
    sigfillset(&blocked);
    sigdelset(&blocked, SIGPROF);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    try {
      workers_.reserve(static_cast<size_t>(wanted));
      while (static_cast<int>(workers_.size()) < wanted) {
        const int index = static_cast<int>(workers_.size()) + 1;
        workers_.emplace_back([this, index, seen = epoch_.load()] { serve(index, seen); });
      }
    } catch (const std::system_error&) {  // the system gives us no more: go on with those we have
    } catch (const std::bad_alloc&) {
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  void keep_workers(int count) {
    most_workers_.store(count);
    wake(static_cast<int>(workers_.size()));  // those that are too many see it and leave
    while (static_cast<int>(workers_.size()) > count) {
      workers_.back().join();
      workers_.pop_back();
    }
  }

  void wake(int workers) {
    epoch_.fetch_add(1);
    if (workers >= static_cast<int>(workers_.size())) return epoch_.notify_all();
    for (int i = 0; i < workers; ++i) epoch_.notify_one();
  }

  void serve(int index, uint32_t seen) {
#ifdef __linux__
    pthread_setname_np(pthread_self(), ("heed-" + std::to_string(index)).c_str());
#endif
    inside_parallel_for = true;
    for (;;) {
      wait_while(epoch_, seen);
      seen = epoch_.load(std::memory_order_acquire);
      if (index > most_workers_.load()) return;
      if (work(index)) {
        finished_.store(1);  // ordered before the look for sleepers, as above
        finished_.notify_one();
      }
    }
  }

  /// One behind the last chunk of a run.
  int64_t run_end(int64_t run) const {
    const int64_t runs = runs_.load(std::memory_order_relaxed);
    return chunks_ / runs * (run + 1) + std::min(chunks_ % runs, run + 1);
  }

  /// Claims and runs chunks until none is left, this thread's own first; whether it ended the job's last one.
  /// It says what it has done of a run before it looks for more in another.
  bool work(int thread) {
    const int64_t runs = runs_.load(std::memory_order_relaxed);
    for (int64_t i = 0; i < runs; ++i) {
      const int64_t run = (thread + i) % runs;
      std::atomic<int64_t>& unclaimed = unclaimed_[run].chunks;
      int64_t mine = 0, chunks = 0;
      while (unclaimed.load(std::memory_order_relaxed) > 0) {
        const int64_t left = unclaimed.fetch_sub(1, std::memory_order_acq_rel);
        if (left <= 0) break;
        chunks = chunks_;
        ++mine;
        if (!failed_.load(std::memory_order_relaxed)) run_chunk(run_end(run) - left);
      }
      if (mine > 0 && done_.fetch_add(mine, std::memory_order_acq_rel) + mine == chunks) return true;
    }
    return false;
  }

  void run_chunk(int64_t chunk) {
    const int64_t begin = chunk * grain_;
    if (detail::float_mode() != float_mode_) detail::set_float_mode(float_mode_);
    try {
      function_(begin, chunk_end(begin, grain_, count_));
    } catch (...) {
      if (!failed_.exchange(true)) exception_ = std::current_exception();
    }
  }

  std::atomic<int> threads_;  // 0: not yet known
  std::atomic<int> most_workers_{0};
  std::vector<std::thread> workers_;
  std::exception_ptr exception_;
  // A job is one line of the cache, which a worker waits for once.
  alignas(64) std::atomic<uint32_t> epoch_{0};  // moves with each job; sleeping workers wait on it
  std::atomic<bool> failed_{false};
  std::atomic<int64_t> runs_{0};  // 0 before the first job
  detail::RangeFunction function_;
  uint32_t float_mode_ = 0;  // the caller's
  int64_t count_ = 0, grain_ = 1, chunks_ = 0;
  struct alignas(128) Unclaimed {
    std::atomic<int64_t> chunks{0};  // of a run; below 0 means none too
  };
  static constexpr int64_t kMaxRuns = 64;  // with more threads, several begin in the same run
  Unclaimed unclaimed_[kMaxRuns];
  alignas(64) std::atomic<int64_t> done_{0};
  std::atomic<uint32_t> finished_{0};  // 1 once a worker, not the caller, has ended the last chunk
};

std::atomic<Pool*> current_pool{nullptr};

/// A thread that may call: the main one, and any other from its first job on. Once all have ended the pool's
/// threads leave too, or they would keep a process whose main() left by pthread_exit.
struct Caller {
  static inline std::atomic<int> living{0};

  Caller() { ++living; }
  ~Caller() {
    Pool* const pool = current_pool.load();
    if (--living == 0 && pool != nullptr && !inside_parallel_for) pool->dismiss_workers();
  }
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;
};
using CallerOfThread = detail::PerThread<Caller>;

/// Static objects are made on the main thread.
[[maybe_unused]] const bool main_may_call = CallerOfThread::get() != nullptr;

// A job that is running when another thread forks ends first. A child has none of our threads, so it begins
// with a new pool; the old one, whose threads cannot be joined, is left alone.
void before_fork() {
  if (!inside_parallel_for) current_pool.load()->callers.lock();
}
void after_fork_in_parent() {
  if (!inside_parallel_for) current_pool.load()->callers.unlock();
}
void after_fork_in_child() {
  Caller::living = CallerOfThread::get() == nullptr ? 0 : 1;
  current_pool.store(new Pool(current_pool.load()->known_threads()));
}

/// Never destroyed, so that threads and static objects may outlive main.
Pool& pool() {
  static const bool created = [] {
    cpu_allocator();  // its fork handlers come first, so that a fork locks it last: work on the pool may need
                      // it
    current_pool.store(new Pool(0));
    return pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) == 0;
  }();
  static_cast<void>(created);
  return *current_pool.load(std::memory_order_acquire);
}

}  // namespace

int thread_count() { return pool().threads(); }

void set_thread_count(int threads) {
  HEED_CHECK(threads >= 1 && threads <= kMaxThreads, ConfigError, "set_thread_count: ", threads,
             " is not in 1 to ", kMaxThreads);
  HEED_CHECK(!inside_parallel_for, StateError, "set_thread_count: called from inside a parallel_for");
  pool().resize(threads);
}

namespace detail {

bool thread_ended() { return CallerOfThread::get() == nullptr; }

void parallel_for(int64_t count, int64_t grain, RangeFunction f) {
  if (count <= 0) return;
  HEED_ASSERT(grain >= 1, "parallel_for: grain is ", grain);
  const int64_t chunks = (count - 1) / grain + 1;
  // A thread that is ending, as when static objects are destroyed, wakes no others.
  if (chunks > 1 && !inside_parallel_for && !thread_ended()) {
    if (Pool& pool = heed::pool(); pool.threads() > 1) return pool.run(count, grain, chunks, f);
  }
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    f(chunk * grain, chunk_end(chunk * grain, grain, count));
  }
}

}  // namespace detail
}  // namespace heed
