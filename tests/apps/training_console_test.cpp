#include "apps/common/training_console.h"

#include <string>
#include <utility>

#include <gtest/gtest.h>

#include <heed/core/base/threads/parallel_for.h>
#include <heed/version.h>

namespace heed::apps {
namespace {

/// What f writes to standard output and standard error.
template <class F>
std::pair<std::string, std::string> written(const F& f) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  f();
  std::string out = testing::internal::GetCapturedStdout();
  return {std::move(out), testing::internal::GetCapturedStderr()};
}

TEST(TrainingConsole, SpeaksToPeopleOnStandardOutput) {
  const auto [out, error] = written([] {
    TrainingConsole console(false);
    console.line("loss ", 2, " of ", 3);
    console.report(Json::parse("{\"loss\":2}"), [] { return std::string("epoch 1"); });
    console.write(Json::parse("{\"final\":true}"));
    console.stopped(7);
  });
  EXPECT_EQ(out, "loss 2 of 3\nepoch 1\nstopped at step 7; go on with --resume\n");
  EXPECT_EQ(error, "");
}

TEST(TrainingConsole, WithJsonProgramsHaveStandardOutput) {
  const auto [out, error] = written([] {
    TrainingConsole console(true);
    console.line("loss ", 2, " of ", 3);
    console.report(Json::parse("{\"loss\":2}"), [] { return std::string("epoch 1"); });
    console.write(Json::parse("{\"final\":true}"));
    console.stopped(7);
  });
  EXPECT_EQ(out, "{\"loss\":2}\n{\"final\":true}\n");
  EXPECT_EQ(error, "loss 2 of 3\nstopped at step 7; go on with --resume\n");
}

TEST(TrainingConsole, BeginsWithWhatTheRunIs) {
  const int before = thread_count();
  for (const auto& [threads, text] : {std::pair(1, "1 thread"), {3, "3 threads"}}) {
    set_thread_count(threads);
    const auto [out, error] = written([] { TrainingConsole(false).begin(kCpu, 42, ", task copy"); });
    EXPECT_EQ(out, std::string("heed ") + HEED_VERSION + ": cpu, " + text + ", seed 42, task copy\n");
    EXPECT_EQ(error, "");
  }
  set_thread_count(before);
}

TEST(TrainingConsole, ProgressOfAnEpochEndsBeforeTheNext) {
  const auto [out, error] = written([] {
    TrainingConsole console(false);
    for (int64_t epoch : {1, 2}) {
      console.step({.step = 2 * epoch - 1, .epoch = epoch, .samples = 6, .loss = 1.5}, 10, "pairs");
      console.step({.step = 2 * epoch, .epoch = epoch, .samples = 4, .loss = 0.25}, 10, "pairs");
      console.end_progress();
    }
  });
  EXPECT_EQ(out, "");
  for (const char* epoch : {"epoch 1 ", "epoch 2 "}) {
    const size_t begin = error.find(epoch), end = error.find('\n', begin);
    ASSERT_NE(begin, std::string::npos) << error;
    const std::string line = error.substr(begin, end - begin);
    EXPECT_NE(line.find("100% 10/10 pairs"), std::string::npos) << line;
    EXPECT_NE(line.find("loss 0.2500"), std::string::npos) << line;
  }
}

}  // namespace
}  // namespace heed::apps
