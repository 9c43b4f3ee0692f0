// Tables, and what a command prints for people and as JSON.
#include "apps/common/figures/presentation.h"

#include <limits>

#include <gtest/gtest.h>

#include <heed/core/creation.h>

#include "expect_error.h"
#include "temporary_folder.h"

namespace heed::apps {
namespace {

using test::expect_error;

TEST(Table, AlignsTextsToTheLeftAndNumbersToTheRight) {
  const Table table{{{"name"}, {"count", "{}"}, {"value", "{:.2f}"}},
                    {{"a", 1234567, 0.125}, {"longer", -1000, 10}, {"none", 5, nullptr}}};
  EXPECT_EQ(to_text(table),
            "name        count  value\n"
            "a       1,234,567   0.12\n"
            "longer     -1,000     10\n"
            "none            5\n");
}

TEST(Table, ShowsRoundingAsSuch) {
  const Table table{{{"gradient", "{:.3g}", 1e-9}}, {{1e-12}, {-1e-12}, {1e-3}}};
  EXPECT_EQ(to_text(table), "gradient\n      ~0\n      ~0\n   0.001\n");
}

TEST(Table, ZeroHasNoSign) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(to_text({{{"x", "{:.2f}"}}, {{-0.001}, {0.001}, {-0.25}, {nan}}}),
            "    x\n 0.00\n 0.00\n-0.25\n  nan\n");
}

TEST(Table, RefusesARowOfAnotherLength) {
  expect_error<ShapeError>([] { to_text({{{"a"}, {"b"}}, {{1}}}); }, {"1 cells in a row of 2"});
}

TEST(Presentation, DifferenceText) {
  EXPECT_EQ(difference_text(0), "below 1e-12");
  EXPECT_EQ(difference_text(-3e-13), "below 1e-12");
  EXPECT_EQ(difference_text(0.0012345), "0.00123");
}

std::string printed(bool json) {
  testing::internal::CaptureStdout();
  Presentation p(json, "");
  p.heading("Heading");
  p.line("a line");
  p.value("answer", 42);
  p.matrix("weights", "weights", tensor(std::vector<double>{0.5, -1, 2, 0}, {2, 2}), {"a", "b"}, {"x", "y"});
  p.table("rows", {{{"d", "{}"}, {"norm", "{:.1f}"}}, {{1, 0.25}}});
  p.figure(LinePlot{}, "left-out");  // no folder, no figure
  p.finish();
  return testing::internal::GetCapturedStdout();
}

TEST(Presentation, ForPeople) {
  EXPECT_EQ(printed(false),
            "\nHeading\na line\n"
            "weights [2, 2]\n"
            "          x        y\n"
            "  a  0.5000  -1.0000\n"
            "  b  2.0000   0.0000\n"
            "d  norm\n"
            "1   0.2\n");
}

TEST(Presentation, TextsCannotSteerTheTerminal) {
  const std::string evil = "\x1b[31mred\r";
  testing::internal::CaptureStdout();
  Presentation p(false, "");
  p.heading(evil + "\n");
  p.line(evil + "\nsecond");
  p.matrix("m", "m", tensor(std::vector<double>{1}, {1, 1}), {evil}, {evil});
  p.table("t", {{{evil}}, {{evil}}});
  p.finish();
  const std::string out = testing::internal::GetCapturedStdout();
  EXPECT_EQ(out.find_first_of("\x1b\r"), std::string::npos) << out;
  EXPECT_EQ(out.substr(0, out.find("m [1, 1]")), "\n\\x1b[31mred\\x0d\\n\n\\x1b[31mred\\x0d\nsecond\n");
}

TEST(Presentation, AsJson) {
  EXPECT_EQ(Json::parse(printed(true)), Json::parse(R"({
    "answer": 42, "weights": [[0.5, -1], [2, 0]], "rows": [{"d": 1, "norm": 0.25}], "files": []})"))
      << printed(true);
}

TEST(Presentation, ListsItsFigures) {
  const test::TemporaryFolder folder;
  testing::internal::CaptureStdout();
  Presentation p(true, folder.path());
  p.figure(LinePlot{"title", "x", "y", {{"line", {1, 2}, {3, 4}}}}, "line");
  p.finish();
  const Json files = Json::parse(testing::internal::GetCapturedStdout()).at("files");
  ASSERT_EQ(files.size(), 2u);
  for (const Json& file : files) EXPECT_TRUE(std::filesystem::exists(file.get<std::string>())) << file;
}

TEST(Presentation, RefusesWhatIsNoMatrix) {
  Presentation p(true, "");
  expect_error<ShapeError>([&] { p.matrix("m", "m", zeros({2, 2, 2}), {"a", "b"}); }, {"[2, 2, 2]"});
  expect_error<ShapeError>([&] { p.matrix("m", "m", zeros({2, 2}), {"a"}); }, {"1 names"});
  expect_error<ShapeError>([] { to_matrix(zeros({3})); }, {"[3]"});
}

}  // namespace
}  // namespace heed::apps
