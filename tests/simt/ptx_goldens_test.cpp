// The golden results themselves: the emulator reproduces them, a wrong one is noticed, and none is missing.
#include "ptx_goldens.h"

#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include <gtest/gtest.h>

namespace heed::testing {
namespace {

const std::string kSource = HEED_SOURCE_FOLDER;
const std::string kGoldens = kSource + "/tests/simt/ptx_goldens.txt";

TEST(PtxGoldens, TheEmulatorReproducesThem) {
  EXPECT_EQ(compare_goldens(read_goldens(kGoldens), run_goldens()), std::vector<std::string>());
}

TEST(PtxGoldens, OneWrongBitIsNoticed) {
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

TEST(PtxGoldens, MissingAndUnknownCasesAreNoticed) {
  const Goldens right = run_goldens();
  Goldens less = right;
  less.erase("exp2_approx");
  EXPECT_EQ(compare_goldens(right, less), std::vector<std::string>{"exp2_approx: no such case"});
  EXPECT_EQ(compare_goldens(less, right), std::vector<std::string>{"exp2_approx: has no golden result"});
}

TEST(PtxGoldens, EveryWordIsWritten) {
  for (const auto& golden : run_goldens())
    for (const uint32_t word : golden.second) EXPECT_NE(word, 0xffffffffu) << golden.first;
}

TEST(PtxGoldens, EveryFunctionOfPtxHasACase) {
  std::stringstream text;
  text << std::ifstream(kSource + "/kernels/simt/ptx.h").rdbuf();
  const std::string header = text.str();
  std::set<std::string> covered{"take"};  // of class Arena
  for (const GoldenCase& one : golden_cases()) {
    std::istringstream names(one.covers);
    for (std::string name; names >> name;) covered.insert(name);
  }
  const std::regex declaration(R"((?:HEED_SIMT_DEVICE [^;{(\n]*?|cudaError_t |class )\b(\w+)(?:\(| \{))");
  int functions = 0;
  for (std::sregex_iterator i(header.begin(), header.end(), declaration), end; i != end; ++i, ++functions)
    EXPECT_EQ(covered.count((*i)[1]), 1u)
        << (*i)[1] << " of kernels/simt/ptx.h has no case in tests/simt/ptx_goldens.cu";
  EXPECT_GE(functions, 20);
}

}  // namespace
}  // namespace heed::testing
