#include <atomic>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <heed/core/base/check.h>
#include <heed/core/base/float_mode.h>
#include <heed/core/base/threads/parallel_for.h>
#include <heed/core/base/threads/per_thread.h>

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define HEED_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define HEED_SANITIZED 1
#endif
#endif
#ifndef HEED_SANITIZED
#define HEED_SANITIZED 0
#endif

// Counts every allocation of the process, for the test that a call makes none. Sanitizers bring their own.
namespace {
std::atomic<int64_t> allocations{0};
}
#if !HEED_SANITIZED
[[gnu::noinline]] void* operator new(size_t bytes) {
  ++allocations;
  if (void* p = std::malloc(bytes ? bytes : 1)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept { std::free(p); }
#endif

namespace heed {
namespace {

using Ranges = std::set<std::pair<int64_t, int64_t>>;

Ranges ranges_of(int64_t count, int64_t grain) {
  std::mutex mutex;
  Ranges ranges;
  parallel_for(count, grain, [&](int64_t begin, int64_t end) {
    const std::lock_guard<std::mutex> lock(mutex);
    EXPECT_TRUE(ranges.insert({begin, end}).second) << "range twice";
  });
  return ranges;
}

TEST(ParallelFor, CutsByCountAndGrainAlone) {
  for (int threads : {1, 2, 4}) {
    set_thread_count(threads);
    EXPECT_EQ(thread_count(), threads);
    EXPECT_EQ(ranges_of(10, 4), (Ranges{{0, 4}, {4, 8}, {8, 10}}));
    EXPECT_EQ(ranges_of(8, 4), (Ranges{{0, 4}, {4, 8}}));
    EXPECT_EQ(ranges_of(3, 4), (Ranges{{0, 3}}));
    EXPECT_EQ(ranges_of(1, 1), (Ranges{{0, 1}}));
    EXPECT_EQ(ranges_of(0, 4), Ranges{});
    EXPECT_EQ(ranges_of(-5, 4), Ranges{});
    const int64_t most = std::numeric_limits<int64_t>::max();
    EXPECT_EQ(ranges_of(3, most), (Ranges{{0, 3}}));
    EXPECT_EQ(ranges_of(most, most - 1), (Ranges{{0, most - 1}, {most - 1, most}}));
  }
}

TEST(ParallelFor, EachElementOnceUnderManyCalls) {
  for (int threads : {1, 2, 4, 7}) {
    set_thread_count(threads);
    std::vector<int> hits(1000, 0);
    for (int call = 0; call < 500; ++call) {
      parallel_for(1000, 1 + call % 37, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) ++hits[size_t(i)];
      });
    }
    for (int h : hits) ASSERT_EQ(h, 500);
  }
}

TEST(ParallelFor, UsesTheThreadsItIsGiven) {
  for (int threads : {2, 3}) {
    set_thread_count(threads);
    std::atomic<int> present{0};
    parallel_for(threads, 1, [&](int64_t, int64_t) {
      ++present;
      while (present < threads) std::this_thread::yield();  // ends only if all are here at once
    });
    EXPECT_EQ(present, threads);
  }
}

TEST(ParallelFor, ThreadsComeBackToTheirChunks) {
  constexpr int kThreads = 4;
  set_thread_count(kThreads);
  std::vector<std::thread::id> first(kThreads), again(kThreads);
  const auto note = [](std::vector<std::thread::id>& ids) {
    std::atomic<int> present{0};
    parallel_for(kThreads, 1, [&](int64_t chunk, int64_t) {
      ids[size_t(chunk)] = std::this_thread::get_id();
      ++present;
      while (present < kThreads) std::this_thread::yield();  // none takes another's
    });
  };
  note(first);
  EXPECT_EQ(first[0], std::this_thread::get_id());
  for (int call = 0; call < 50; ++call) {
    note(again);
    ASSERT_EQ(again, first) << call;
  }
}

TEST(ParallelFor, MoreThreadsThanRunsOfChunks) {
  set_thread_count(70);
  for (const int64_t count : {2, 64, 70, 1000}) EXPECT_EQ(ranges_of(count, 1).size(), size_t(count));
}

TEST(ParallelFor, RunsOnTheCallerInsideAnother) {
  set_thread_count(4);
  std::atomic<int> sum{0};
  parallel_for(8, 1, [&](int64_t, int64_t) {
    const auto here = std::this_thread::get_id();
    parallel_for(10, 3, [&](int64_t begin, int64_t end) {
      EXPECT_EQ(std::this_thread::get_id(), here);
      sum += int(end - begin);
    });
  });
  EXPECT_EQ(sum, 80);
}

TEST(ParallelFor, RethrowsOnceAndStaysUsable) {
  for (int threads : {1, 4}) {
    set_thread_count(threads);
    for (int round = 0; round < 50; ++round) {
      std::atomic<int> running{0};
      try {
        parallel_for(64, 1, [&](int64_t begin, int64_t) {
          ++running;
          if (begin % 3 == 1) {
            --running;
            throw std::runtime_error("chunk " + std::to_string(begin));
          }
          --running;
        });
        FAIL() << "nothing thrown";
      } catch (const std::runtime_error& error) {
        EXPECT_EQ(std::string(error.what()).substr(0, 6), "chunk ");
      }
      EXPECT_EQ(running, 0);
      EXPECT_EQ(ranges_of(5, 2).size(), 3u);
    }
  }
}

TEST(ParallelFor, ServesSeveralCallingThreads) {
  set_thread_count(3);
  std::vector<std::thread> callers;
  std::vector<int64_t> sums(4, 0);
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&, caller] {
      for (int call = 0; call < 300; ++call) {
        std::vector<int64_t> partial(20, 0);
        parallel_for(200, 10, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) partial[size_t(begin / 10)] += i;
        });
        for (int64_t p : partial) sums[size_t(caller)] += p;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  for (int64_t sum : sums) EXPECT_EQ(sum, 300 * 199 * 200 / 2);
}

TEST(ParallelFor, WakesWorkersThatSleep) {
  set_thread_count(4);
  for (int round = 0; round < 20; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // far beyond the spin
    std::atomic<int> chunks{0};
    parallel_for(16, 1, [&](int64_t, int64_t) {
      ++chunks;
      std::this_thread::sleep_for(std::chrono::microseconds(100));  // the caller outwaits its spin, too
    });
    EXPECT_EQ(chunks, 16);
  }
}

TEST(ParallelFor, AllocatesNothing) {
  if (HEED_SANITIZED) GTEST_SKIP() << "sanitizers have their own operator new";
  set_thread_count(4);
  std::atomic<int64_t> sum{0};
  const auto body = [&](int64_t begin, int64_t end) { sum += end - begin; };
  parallel_for(100, 1, body);
  const int64_t before = allocations;
  for (int call = 0; call < 100; ++call) parallel_for(100, 1, body);
  EXPECT_EQ(allocations, before);
  EXPECT_EQ(sum, 101 * 100);
}

TEST(ParallelFor, WorksInAForkedChild) {
  if (HEED_SANITIZED) GTEST_SKIP() << "sanitizers do not follow forks of threaded programs";
  set_thread_count(4);
  ranges_of(100, 1);  // the workers run
  std::atomic<bool> stop{false};
  std::thread busy([&] {  // forks must also come out whole while another thread uses the pool
    while (!stop) parallel_for(64, 1, [](int64_t, int64_t) {});
  });
  for (int round = 0; round < 20; ++round) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(20);
      std::atomic<int> present{0};
      parallel_for(3, 1, [&](int64_t, int64_t) {
        ++present;
        while (present < 3) std::this_thread::yield();
      });
      _exit(present == 3 && thread_count() == 4 ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  stop = true;
  busy.join();
  EXPECT_EQ(ranges_of(100, 1).size(), 100u);
}

TEST(ParallelFor, SurvivesExitDuringWork) {
  if (HEED_SANITIZED) GTEST_SKIP() << "sanitizers do not follow forks of threaded programs";
  set_thread_count(4);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(20);
    std::thread([] {
      for (;;) parallel_for(64, 1, [](int64_t, int64_t) {});
    }).detach();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::exit(7);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7) << status;
}

TEST(ParallelFor, DoesNotKeepAProcessWhoseThreadsHaveEnded) {
  if (HEED_SANITIZED) GTEST_SKIP() << "sanitizers do not follow forks of threaded programs";
  set_thread_count(4);
  std::thread([] {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {  // this thread is its only one
      alarm(20);
      ranges_of(100, 1);
      pthread_exit(nullptr);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }).join();
}

TEST(ParallelFor, WorksWhenStaticObjectsAreDestroyed) {
  if (HEED_SANITIZED) GTEST_SKIP() << "sanitizers do not follow forks of threaded programs";
  struct Late {
    ~Late() {
      const auto here = std::this_thread::get_id();
      int64_t sum = 0;
      parallel_for(100, 1, [&](int64_t begin, int64_t) {
        if (std::this_thread::get_id() == here) sum += begin;
      });
      _exit(sum == 4950 && detail::thread_ended() ? 7 : 1);
    }
  };
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(20);
    static Late late;
    set_thread_count(4);
    ranges_of(100, 1);
    std::exit(2);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7) << status;
}

// In each of the calling thread's modes the pool computes as that thread does, whose mode stays.
TEST(ParallelFor, ComputesInTheModeOfTheCaller) {
  if (detail::kZeroResults == 0) GTEST_SKIP() << "this processor's modes are unknown";
  constexpr uint32_t kUpwards = 2u << 13;
  const uint32_t before = detail::float_mode();
  for (int threads : {1, 4}) {
    set_thread_count(threads);
    for (const uint32_t bits : {0u, detail::kZeroResults, detail::kZeroOperands, kUpwards, 0u}) {
      detail::set_float_mode(before | bits);
      std::atomic<int> present{0}, right{0};
      parallel_for(threads, 1, [&](int64_t, int64_t) {
        ++present;
        while (present < threads) std::this_thread::yield();
        volatile float small = 2e-38f, subnormal = 1e-40f, one = 1.0f, little = 1e-9f;
        const bool zero_result = small * 0.1f == 0, zero_operand = subnormal == 0, upwards = one + little > 1;
        right += zero_result == (bits == detail::kZeroResults || bits == detail::kZeroOperands) &&
                 zero_operand == (bits == detail::kZeroOperands) && upwards == (bits == kUpwards);
      });
      EXPECT_EQ(detail::float_mode(), before | bits);
      detail::set_float_mode(before);
      EXPECT_EQ(right, threads) << bits;
    }
  }
}

TEST(NoSubnormals, LastsForAScope) {
  if (detail::kZeroResults == 0) GTEST_SKIP() << "this processor's modes are unknown";
  const uint32_t before = detail::float_mode();
  volatile float small = 2e-38f, subnormal = 1e-40f;
  try {
    const detail::NoSubnormals results(false);
    EXPECT_EQ(small * 0.1f, 0.0f);
    EXPECT_GT(subnormal, 0.0f);
    {
      const detail::NoSubnormals all(true);
      EXPECT_EQ(subnormal, 0.0f);
    }
    EXPECT_GT(subnormal, 0.0f);
    throw std::runtime_error("leaves it");
  } catch (const std::runtime_error&) {
    EXPECT_EQ(detail::float_mode(), before);
    EXPECT_GT(small * 0.1f, 0.0f);
  }
}

TEST(PerThread, IsNullAfterTheThreadsEnd) {
  static std::atomic<int> living{0};
  static std::atomic<bool> got_null{false};
  struct Object {
    Object() { ++living; }
    ~Object() { --living; }
  };
  struct Later {  // destroyed after what it asks for
    ~Later() { got_null = detail::PerThread<Object>::get() == nullptr; }
  };
  std::thread([] {
    thread_local Later later;
    static_cast<void>(&later);
    Object* const mine = detail::PerThread<Object>::get();
    EXPECT_TRUE(mine != nullptr && mine == detail::PerThread<Object>::get());
    std::thread([mine] { EXPECT_NE(detail::PerThread<Object>::get(), mine); }).join();
    EXPECT_EQ(living, 1);
  }).join();
  EXPECT_EQ(living, 0);
  EXPECT_TRUE(got_null);
}

TEST(ParallelFor, RefusesImpossibleCounts) {
  EXPECT_THROW(set_thread_count(0), ConfigError);
  EXPECT_THROW(set_thread_count(1025), ConfigError);
  EXPECT_THROW(parallel_for(4, 1, [](int64_t, int64_t) { set_thread_count(2); }), StateError);
}

/// In a new process, whose pool has no size yet.
int thread_count_with(const char* setting) {
  int ends[2];
  if (pipe(ends) != 0) return -1;
  const std::string self = "/proc/self/exe";
  const pid_t child = fork();
  if (child == 0) {
    setenv("HEED_NUM_THREADS", setting, 1);
    dup2(ends[1], 1);
    execl(self.c_str(), "parallel_for_test", "--gtest_filter=ParallelFor.DISABLED_PrintsItsSize",
          "--gtest_also_run_disabled_tests", nullptr);
    _exit(127);
  }
  close(ends[1]);
  std::string out;
  char buffer[256];
  for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;) out.append(buffer, size_t(n));
  close(ends[0]);
  waitpid(child, nullptr, 0);
  const size_t at = out.find("threads=");
  return at == std::string::npos ? -1 : std::atoi(out.c_str() + at + 8);
}

TEST(ParallelFor, DISABLED_PrintsItsSize) {
  try {
    std::printf("threads=%d\n", thread_count());
  } catch (const ConfigError& error) {
    std::printf("threads=0 %s\n", error.what());
  }
}

TEST(ParallelFor, SizeComesFromTheEnvironment) {
  EXPECT_EQ(thread_count_with("3"), 3);
  EXPECT_GE(thread_count_with(""), 1);
  for (const char* bad : {"0", "-1", "1025", "two", "2x", "99999999999999999999"}) {
    EXPECT_EQ(thread_count_with(bad), 0) << bad;
  }
}

}  // namespace
}  // namespace heed
