// Every planted bug is noticed with the right message, and no correct kernel is complained of.
#include "bugs.h"

#include <cmath>
#include <fstream>
#include <regex>
#include <string>

#include <gtest/gtest.h>

#include <heed/kernels/simt/host/emulator.h>

#include "../device_buffer.h"

namespace heed::testing {
namespace {

const char* expected_of(const Bug& bug) {
  const std::string build = HEED_TEST_BUILD;
  return build == "address" ? bug.address : build == "race" ? bug.race : bug.plain;
}

// Runs under the schedules until something is noticed.
std::string noticed(const Bug& bug) {
  std::vector<float> numbers(2048);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
  const DeviceBuffer<float> in(numbers);
  std::vector<unsigned char> first;
  std::string message;
  emulator::each_schedule([&](const std::string&) {
    if (!message.empty()) return;
    emulator::config().strict_exit = true;
    const DeviceBuffer<float> out(std::vector<float>(kThreads, 0.0f));
    try {
      bug.run(out.data(), in.data());
    } catch (const emulator::Error& error) {
      message = error.what();
      return;
    }
    const std::vector<float> values = out.get();
    for (const float value : values)
      if (std::isnan(value)) message = "nan";
    if (!first.empty() && first != bytes_of(values)) message = "differs";
    first = bytes_of(values);
  });
  return message;
}

std::string line_of(const std::string& file, int number) {
  std::ifstream source(std::string(HEED_SOURCE_FOLDER) + "/tests/simt/bugs/" + file);
  std::string line;
  for (int i = 0; i < number; ++i) std::getline(source, line);
  return line;
}

// An error names the launch, the block, the threads, and only lines that bear the mark "// here" as those of
// the mistake. What is found before a kernel runs, or between two launches, has the launch alone.
void expect_place(const std::string& message) {
  const size_t launch = message.find("kernel launched at ");
  int marked = 0;
  const std::regex place(R"((bugs_\w+\.cu):(\d+))");
  for (std::sregex_iterator i(message.begin(), message.end(), place), end; i != end; ++i) {
    const std::string line = line_of((*i)[1], std::stoi((*i)[2]));
    const bool is_launch = line.find("simt::launch(") != std::string::npos;
    marked += !is_launch;
    EXPECT_TRUE(is_launch || line.find("// here") != std::string::npos) << message << "\nnames: " << line;
  }
  if (std::regex_search(
          message,
          std::regex(
              "invalid launch configuration|argument \\d of the kernel|"
              "device function called outside|next to a piece|returns without Dependent|of an allocation"
              " of \\d+ bytes, kernel|by a copy, fill or product, unord"))) {
    EXPECT_NE(message.find(".cu:"), std::string::npos) << message;
    return;
  }
  EXPECT_GE(marked, 1) << message;
  EXPECT_NE(launch, std::string::npos) << message;
  EXPECT_TRUE(std::regex_search(message, std::regex(R"(block \(\d+,\d+,\d+\))"))) << message;
  EXPECT_TRUE(std::regex_search(message, std::regex(R"(thread \(\d+,\d+,\d+\)|threads? \d+)"))) << message;
}

void expect_notice(const Bug& bug) {
  if (expected_of(bug) == nullptr) GTEST_SKIP() << "what this build does is undefined";
  const std::string expected = expected_of(bug);
  const std::string crash = "crash: ";
  if (expected.rfind(crash, 0) == 0) {
    EXPECT_DEATH(noticed(bug), "emulator: block .* thread .*, kernel launched at bugs_memory.cu:(.|\n)*" +
                                   expected.substr(crash.size()));
    return;
  }
  const std::string message = noticed(bug);
  if (expected.empty()) {
    EXPECT_EQ(message, "");
    return;
  }
  EXPECT_NE(message.find(expected), std::string::npos)
      << "expected: " << expected << "\nnoticed: " << message;
  if (message != "nan" && message != "differs") expect_place(message);
}

class PlantedBug : public ::testing::TestWithParam<Bug> {};
TEST_P(PlantedBug, IsNoticed) { expect_notice(GetParam()); }

// On a device of compute capability 9.0.
class PlantedHopperBug : public PlantedBug {
 protected:
  PlantedHopperBug() { emulator::config().compute_capability = 90; }
  ~PlantedHopperBug() override { emulator::config() = saved_; }

 private:
  emulator::Config saved_ = emulator::config();
};
TEST_P(PlantedHopperBug, IsNoticed) { expect_notice(GetParam()); }

std::string name_of(const ::testing::TestParamInfo<Bug>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Barrier, PlantedBug, ::testing::ValuesIn(barrier_bugs()), name_of);
INSTANTIATE_TEST_SUITE_P(Warp, PlantedBug, ::testing::ValuesIn(warp_bugs()), name_of);
INSTANTIATE_TEST_SUITE_P(Memory, PlantedBug, ::testing::ValuesIn(memory_bugs()), name_of);
INSTANTIATE_TEST_SUITE_P(Launch, PlantedBug, ::testing::ValuesIn(launch_bugs()), name_of);
INSTANTIATE_TEST_SUITE_P(Async, PlantedBug, ::testing::ValuesIn(async_bugs()), name_of);
INSTANTIATE_TEST_SUITE_P(Stream, PlantedBug, ::testing::ValuesIn(stream_bugs()), name_of);
INSTANTIATE_TEST_SUITE_P(Dependent, PlantedBug, ::testing::ValuesIn(dependent_bugs()), name_of);
INSTANTIATE_TEST_SUITE_P(CorrectSync, PlantedBug, ::testing::ValuesIn(correct_sync_kernels()), name_of);
INSTANTIATE_TEST_SUITE_P(CorrectMemory, PlantedBug, ::testing::ValuesIn(correct_memory_kernels()), name_of);
INSTANTIATE_TEST_SUITE_P(CorrectAsync, PlantedBug, ::testing::ValuesIn(correct_async_kernels()), name_of);

INSTANTIATE_TEST_SUITE_P(CorrectStreams, PlantedBug, ::testing::ValuesIn(correct_streams()), name_of);
INSTANTIATE_TEST_SUITE_P(CorrectDependent, PlantedBug, ::testing::ValuesIn(correct_dependent_kernels()),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Hopper, PlantedHopperBug, ::testing::ValuesIn(hopper_bugs()), name_of);
INSTANTIATE_TEST_SUITE_P(CorrectHopper, PlantedHopperBug, ::testing::ValuesIn(correct_hopper_kernels()),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Bulk, PlantedHopperBug, ::testing::ValuesIn(bulk_bugs()), name_of);
INSTANTIATE_TEST_SUITE_P(CorrectBulk, PlantedHopperBug, ::testing::ValuesIn(correct_bulk_kernels()), name_of);
INSTANTIATE_TEST_SUITE_P(Cluster, PlantedHopperBug, ::testing::ValuesIn(cluster_bugs()), name_of);
INSTANTIATE_TEST_SUITE_P(CorrectCluster, PlantedHopperBug, ::testing::ValuesIn(correct_cluster_kernels()),
                         name_of);

TEST(PlantedBugs, OlderDevicesHaveNoneOfHoppersInstructions) {
  for (const auto& list : {correct_hopper_kernels(), correct_bulk_kernels(), correct_cluster_kernels()})
    for (const Bug& bug : list)
      EXPECT_NE(noticed(bug).find(": needs compute capability 9.0, the device has 8.0"), std::string::npos)
          << bug.name;
}

// A bug that a build does not notice is noticed by another.
TEST(PlantedBugs, EachIsNoticedBySomeBuild) {
  size_t count = 0;
  for (const auto& list : {barrier_bugs(), warp_bugs(), memory_bugs(), launch_bugs(), async_bugs(),
                           stream_bugs(), dependent_bugs(), hopper_bugs(), bulk_bugs(), cluster_bugs()}) {
    count += list.size();
    for (const Bug& bug : list)
      EXPECT_TRUE((bug.plain != nullptr && *bug.plain != '\0') || *bug.address != '\0' || *bug.race != '\0')
          << bug.name;
  }
  EXPECT_GE(count, 100u);
}

}  // namespace
}  // namespace heed::testing
