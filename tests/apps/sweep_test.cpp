// Sweeps: what is varied, statistics over seeds, power laws, tables and files; and the processes that they
// run.
#include <cmath>
#include <csignal>
#include <thread>

#include <gtest/gtest.h>

#include <heed/core/base/check.h>

#include "apps/common/sweep/child_process.h"
#include "apps/common/sweep/sweep_results.h"
#include "temporary_folder.h"

namespace heed::apps {
namespace {

TEST(Variations, AreReadFromOneText) {
  const auto found = parse_variations(" heads=1,2,4  lr=1e-3 ");
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].option, "heads");
  EXPECT_EQ(found[0].values, (std::vector<std::string>{"1", "2", "4"}));
  EXPECT_EQ(found[1].option, "lr");
  EXPECT_EQ(found[1].values, std::vector<std::string>{"1e-3"});
  EXPECT_TRUE(parse_variations("").empty());
}

TEST(Variations, RefuseWhatIsNone) {
  for (const char* text : {"heads", "=1", "heads=", "heads=1,,2", "heads=1,1", "heads=1 heads=2", "heads=1,"})
    EXPECT_THROW(parse_variations(text), ConfigError) << text;
}

TEST(Variations, CombineWithTheLastFastest) {
  const std::vector<std::vector<std::string>> expected{{"1", "a"}, {"1", "b"}, {"2", "a"}, {"2", "b"}};
  EXPECT_EQ(combinations({{"x", {"1", "2"}}, {"y", {"a", "b"}}}), expected);
  EXPECT_EQ(combinations({}), std::vector<std::vector<std::string>>{{}});
}

TEST(Variations, ArgumentsThatWereGivenAreRead) {
  int64_t heads = 8, layers = 2;
  double lr = 0.002;
  bool fresh = true;
  OptionTable table("x");
  table.integer("heads", heads, "");
  table.integer("layers", layers, "");
  table.number("lr", lr, "");
  table.flag("fresh", fresh, "");
  table.parse({"--lr", "1e-4", "--fresh=false", "--heads", "4"}, nullptr);
  EXPECT_EQ(given_arguments(table, {"heads"}), (std::vector<std::string>{"--lr=0.0001", "--fresh=false"}));
}

TEST(SweepStatistics, MeanAndDeviation) {
  const Statistic found = statistic({2, 4, 4, 4, 5, 5, 7, 9});
  EXPECT_DOUBLE_EQ(found.mean, 5);
  EXPECT_DOUBLE_EQ(found.deviation, std::sqrt(32.0 / 7));
  EXPECT_TRUE(std::isnan(statistic({3}).deviation));
  EXPECT_DOUBLE_EQ(statistic({3}).mean, 3);
  EXPECT_TRUE(std::isnan(statistic({}).mean));
}

TEST(SweepStatistics, PowerLaw) {
  const std::vector<double> x{10, 100, 1000};
  const auto exact = fit_power_law(x, {3 / std::sqrt(10.0), 0.3, 3 / std::sqrt(1000.0)});
  ASSERT_TRUE(exact);
  EXPECT_NEAR(exact->factor, 3, 1e-12);
  EXPECT_NEAR(exact->exponent, -0.5, 1e-12);
  EXPECT_NEAR(exact->r2, 1, 1e-12);
  // Logarithms 0, 1, 2 to 0, 1, 0: flat, at their mean, and nothing explained.
  const double e = std::exp(1);
  const auto flat = fit_power_law({1, e, e * e}, {1, e, 1});
  ASSERT_TRUE(flat);
  EXPECT_NEAR(flat->exponent, 0, 1e-12);
  EXPECT_NEAR(flat->factor, std::exp(1.0 / 3), 1e-12);
  EXPECT_NEAR(flat->r2, 0, 1e-12);
  EXPECT_FALSE(fit_power_law({1, 2, 2}, {1, 2, 3}));
  EXPECT_FALSE(fit_power_law(x, {1, 0, 1}));
  EXPECT_FALSE(fit_power_law(x, {1, NAN, 1}));
}

SweepResults results() {
  const std::vector<Variation> variations{{"heads", {"1", "2"}}};
  const std::vector<Measure> measures{{"loss", "Loss", "{:.2f}"}, {"right", "Right, %", "{:.1f}", 100}};
  return {variations,
          measures,
          {{{"name", "a"}, {"heads", "1"}, {"seed", 1}, {"loss", 1.0}, {"right", 0.5}},
           {{"name", "b"}, {"heads", "2"}, {"seed", 1}, {"failed", "error: NaN, \"no\""}},
           {{"name", "c"}, {"heads", "1"}, {"seed", 2}, {"loss", 3.0}, {"right", 0.5}},
           {{"name", "d"}, {"heads", "2"}, {"seed", 2}, {"loss", 0.25}, {"right", 1.0}}}};
}

TEST(SweepResults, TableHasALineASetting) {
  EXPECT_EQ(to_text(results().table()),
            "heads  Loss         Right, %  Runs\n"
            "1      2.00 ± 1.41  50.0      2\n"
            "2      0.25         100.0     2, 1 failed\n");
}

TEST(SweepResults, FilesHaveAllNumbers) {
  EXPECT_EQ(results().runs_csv(),
            "name,heads,seed,loss,right,failed\n"
            "a,1,1,1.0,0.5,\n"
            "b,2,1,,,\"error: NaN, \"\"no\"\"\"\n"
            "c,1,2,3.0,0.5,\n"
            "d,2,2,0.25,1.0,\n");
  EXPECT_EQ(results().settings_csv(),
            "heads,runs,loss_mean,loss_deviation,right_mean,right_deviation\n"
            "1,2,2,1.4142135623730951,0.5,0\n"
            "2,2,0.25,,1,\n");
}

TEST(SweepResults, PageHoldsWhatItShowsAsText) {
  const test::TemporaryFolder folder;
  folder.put("loss.svg", "<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script>%#</svg>");
  const std::string file = folder.file("report.html");
  write_sweep_page(file, "<b>sweep</b>", "a&b", results(),
                   {folder.file("loss.svg"), folder.file("missing.svg")});
  const std::string page = folder.get("report.html");
  EXPECT_EQ(page.find("<b>"), std::string::npos);
  EXPECT_EQ(page.find("<script"), std::string::npos);
  EXPECT_NE(page.find("&lt;b>sweep&lt;/b>"), std::string::npos);
  EXPECT_NE(page.find("%3Csvg%20xmlns=%27http://www.w3.org/2000/svg%27%3E"), std::string::npos);
  EXPECT_NE(page.find("2.00 ± 1.41"), std::string::npos);
  EXPECT_EQ(page.find("missing"), std::string::npos);
}

ChildProcess::Ended end_of(ChildProcess& process) {
  while (true) {
    if (const auto ended = process.poll()) return *ended;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

TEST(ChildProcess, KeepsItsOutputsAndItsCode) {
  const test::TemporaryFolder folder;
  ChildProcess process({"/bin/sh", "-c", "echo $A; echo b >&2; read x; exit 3"}, {"A=a"}, folder.file("log"));
  EXPECT_EQ(end_of(process).code, 3);
  EXPECT_EQ(end_of(process).code, 3) << "asked again";
  EXPECT_EQ(folder.get("log"), "a\nb\n");
  EXPECT_GT(end_of(process).peak_bytes, 0);
}

TEST(ChildProcess, EndsBySignalOrWithItsOwner) {
  const test::TemporaryFolder folder;
  ChildProcess sleeping({"/bin/sh", "-c", "exec sleep 600"}, {}, folder.file("log"));
  EXPECT_FALSE(sleeping.poll());
  sleeping.terminate();
  EXPECT_EQ(end_of(sleeping).code, 128 + SIGTERM);
  {
    const ChildProcess owned({"/bin/sh", "-c", "exec sleep 600"}, {}, folder.file("log"));
  }  // does not wait for it
  ChildProcess missing({"/no/such/program"}, {}, folder.file("log"));
  EXPECT_EQ(end_of(missing).code, 127);
  EXPECT_THROW(ChildProcess({"/bin/true"}, {}, folder.file("no/log")), IoError);
}

}  // namespace
}  // namespace heed::apps
