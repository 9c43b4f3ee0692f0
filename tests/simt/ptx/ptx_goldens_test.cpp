// The golden results themselves: the emulator reproduces them, a wrong one is noticed, and none is missing.
#include "ptx_goldens.h"

#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include <gtest/gtest.h>

#include <heed/kernels/simt/host/emulator.h>

namespace heed::testing {
namespace {

const std::string kSource = HEED_SOURCE_FOLDER;
const std::string kGoldens = kSource + "/tests/simt/ptx/ptx_goldens.txt";

// A device that runs every case.
class PtxGoldens : public ::testing::Test {
 protected:
  PtxGoldens() { emulator::config().compute_capability = 90; }
  ~PtxGoldens() override { emulator::config() = saved_; }

 private:
  emulator::Config saved_ = emulator::config();
};

TEST_F(PtxGoldens, TheEmulatorReproducesThem) {
  const Goldens expected = read_goldens(kGoldens);
  emulator::each_schedule([&](const std::string& schedule) {
    EXPECT_EQ(compare_goldens(expected, run_goldens()), std::vector<std::string>()) << schedule;
  });
}

TEST_F(PtxGoldens, OlderDevicesRunAllButHoppers) {
  emulator::config().compute_capability = 80;
  Goldens expected = read_goldens(kGoldens);
  EXPECT_EQ(leave_out_hopper(expected), hopper_golden_cases().size());
  EXPECT_EQ(compare_goldens(expected, run_goldens()), std::vector<std::string>());
}

TEST_F(PtxGoldens, OneWrongBitIsNoticed) {
  const Goldens right = run_goldens();
  for (const auto& golden : right) {
    Goldens wrong = right;
    wrong[golden.first].back() ^= 1;
    const auto lines = compare_goldens(wrong, right);
    ASSERT_EQ(lines.size(), 1u);
    EXPECT_EQ(lines[0].rfind(golden.first + ": word " + std::to_string(golden.second.size() - 1), 0), 0u)
        << lines[0];
  }
}

TEST_F(PtxGoldens, MissingAndUnknownCasesAreNoticed) {
  const Goldens right = run_goldens();
  Goldens less = right;
  less.erase("exp2_approx");
  EXPECT_EQ(compare_goldens(right, less), std::vector<std::string>{"exp2_approx: no such case"});
  EXPECT_EQ(compare_goldens(less, right), std::vector<std::string>{"exp2_approx: has no golden result"});
}

TEST_F(PtxGoldens, EveryWordIsWritten) {
  for (const auto& golden : run_goldens())
    for (const uint32_t word : golden.second) EXPECT_NE(word, 0xffffffffu) << golden.first;
}

std::string text_of(const std::string& file) {
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

// Every function that the header declares stands in the `covers` of a case; there are `least` of them or
// more.
void expect_cases(const std::string& header, const std::vector<GoldenCase>& cases, int least) {
  std::set<std::string> covered{"take", "Major"};  // of class Arena, and an enumeration
  for (const GoldenCase& one : cases) {
    std::istringstream names(one.covers);
    for (std::string name; names >> name;) covered.insert(name);
  }
  const std::string text = text_of(kSource + "/kernels/simt/" + header);
  const std::regex declaration(R"((?:HEED_SIMT_DEVICE [^;{(\n]*?|cudaError_t |class )\b(\w+)(?:\(| \{))");
  int functions = 0;
  for (std::sregex_iterator i(text.begin(), text.end(), declaration), end; i != end; ++i, ++functions)
    EXPECT_EQ(covered.count((*i)[1]), 1u) << (*i)[1] << " of kernels/simt/" << header << " has no case";
  EXPECT_GE(functions, least);
}

TEST_F(PtxGoldens, EveryFunctionOfPtxHasACase) { expect_cases("ptx.h", golden_cases(), 20); }

TEST_F(PtxGoldens, EveryFunctionOfHopperHasACase) { expect_cases("ptx_hopper.h", hopper_golden_cases(), 22); }

}  // namespace
}  // namespace heed::testing
