#include "apps/common/progress.h"

#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include "apps/common/console.h"

namespace heed::apps {
namespace {

TEST(Progress, LineShowsRateAndTimeLeft) {
  const ProgressState state{"epoch 3/20", "pairs", "loss 1.234", 1000, 4000, 10, 125};
  EXPECT_EQ(progress_line(state, 200, false),
            "epoch 3/20 [#####...............]  25% 1000/4000 pairs, 125/s, 0:10 < 0:24 left  loss 1.234");
  EXPECT_EQ(progress_line(state, 200, true),
            "epoch 3/20 ▕█████               ▏  25% 1000/4000 pairs, 125/s, 0:10 < 0:24 left  loss 1.234");
  EXPECT_EQ(progress_line(state, 13, true), "epoch 3/20 ▕…") << "cut between characters";
}

TEST(Progress, LineWithoutTotalOrRate) {
  EXPECT_EQ(progress_line({"reading", "lines", "", 12345, 0, 2, 6172.5}, 80, true),
            "reading 12345 lines, 6.17k/s, 0:02");
  EXPECT_EQ(progress_line({"x", "", "", 0, 8, 0, 0}, 80, false),
            "x [....................]   0% 0/8, 0:00 < ? left");
  EXPECT_EQ(progress_line({"x", "", "", 8, 8, 3, 2}, 80, false), "x [####################] 100% 8/8, 0:03");
}

TEST(Progress, NeverShowsAHundredPercentEarly) {
  const std::string line = progress_line({"x", "", "", 99999, 100000, 1, 1}, 200, false);
  EXPECT_NE(line.find(" 99%"), std::string::npos) << line;
}

TEST(Progress, Durations) {
  EXPECT_EQ(format_duration(0), "0:00");
  EXPECT_EQ(format_duration(59.4), "0:59");
  EXPECT_EQ(format_duration(59.6), "1:00");
  EXPECT_EQ(format_duration(7509), "2:05:09");
  EXPECT_EQ(format_duration(-1), "?");
  EXPECT_EQ(format_duration(std::numeric_limits<double>::infinity()), "?");
  EXPECT_EQ(format_duration(std::nan("")), "?");
}

TEST(Progress, Counts) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(7), "7");
  EXPECT_EQ(format_count(7.126), "7.13");
  EXPECT_EQ(format_count(950), "950");
  EXPECT_EQ(format_count(999.96), "1.00k");
  EXPECT_EQ(format_count(12345), "12.3k");
  EXPECT_EQ(format_count(4560000), "4.56M");
  EXPECT_EQ(format_count(3e20), "300000000.0T");
  EXPECT_EQ(format_count(std::nan("")), "?");
}

TEST(Progress, PlainLinesWhereThereIsNoTerminal) {
  const std::string file = testing::TempDir() + "progress.txt";
  std::FILE* stream = std::fopen(file.c_str(), "w");
  ASSERT_TRUE(stream);
  EXPECT_FALSE(is_terminal(stream));
  EXPECT_FALSE(has_colors(stream));
  {
    Progress progress("work", 100, "items", stream);
    for (int i = 0; i < 100; ++i) progress.advance();
    progress.note("done well");
  }
  std::fclose(stream);
  std::ifstream in(file);
  std::stringstream text;
  text << in.rdbuf();
  const std::string line = text.str();
  EXPECT_EQ(line.substr(0, 48), "work [####################] 100% 100/100 items, ");
  EXPECT_EQ(line.substr(line.size() - 12), "  done well\n");
  EXPECT_EQ(line.find('\x1b'), std::string::npos);
  EXPECT_EQ(line.find('\n'), line.size() - 1) << "one line";
}

}  // namespace
}  // namespace heed::apps
