// A run's course in at most a thousand points: each the mean of its steps, the same after a resume.
#include "apps/common/report/step_curve.h"

#include <string>

#include <gtest/gtest.h>

#include "apps/common/json_lines.h"
#include "temporary_folder.h"

namespace heed::apps {
namespace {

class Curve : public ::testing::Test {
 protected:
  static train::StepReport report(int64_t step) {
    const auto x = static_cast<double>(step);
    return {.step = step, .epoch = 1, .samples = 1, .loss = x, .lr = 2 * x, .grad_norm = 3 * x};
  }
  static void add(StepCurve& curve, int64_t first, int64_t last) {
    for (int64_t step = first; step <= last; ++step) curve.add(report(step));
  }
  // The points of the file are those of the curve.
  void expect_written(const StepCurve& curve) const {
    const auto lines = repair_json_lines(folder_.file("steps.jsonl"), [](const Json&) { return true; });
    ASSERT_EQ(lines.size(), curve.points().size());
    for (size_t i = 0; i < lines.size(); ++i) {
      const StepPoint& p = curve.points()[i];
      EXPECT_EQ(lines[i].at("step"), p.step);
      EXPECT_EQ(lines[i].at("steps"), p.steps);
      EXPECT_DOUBLE_EQ(lines[i].at("loss"), p.loss);
    }
  }
  const test::TemporaryFolder folder_;
};

TEST_F(Curve, AShortRunHasEachStep) {
  StepCurve curve(folder_.file(""), 0);
  add(curve, 1, 1000);
  ASSERT_EQ(curve.points().size(), 1000u);
  for (size_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(curve.points()[i].steps, 1);
    EXPECT_EQ(curve.points()[i].loss, static_cast<double>(i + 1));
  }
  expect_written(curve);
}

TEST_F(Curve, PointsOfALongRunAreMeansOfItsSteps) {
  StepCurve curve(folder_.file(""), 0);
  add(curve, 1, 10'000);
  EXPECT_LE(curve.points().size(), 1000u);
  EXPECT_GE(curve.points().size(), 500u);
  int64_t before = 0;
  for (const StepPoint& p : curve.points()) {
    EXPECT_EQ(p.step - p.steps, before) << "no step is missing or twice";
    const auto middle = static_cast<double>(before + 1 + p.step) / 2;
    EXPECT_NEAR(p.loss, middle, 1e-9);
    EXPECT_NEAR(p.grad_norm, 3 * middle, 1e-9);
    EXPECT_EQ(p.lr, 2 * static_cast<double>(p.step));
    before = p.step;
  }
  expect_written(curve);
}

TEST_F(Curve, AResumedRunGoesOnWhereItsCheckpointIs) {
  {
    StepCurve curve(folder_.file(""), 0);
    add(curve, 1, 1700);
  }
  StepCurve curve(folder_.file(""), 1200);
  ASSERT_EQ(curve.points().back().step, 1200);
  add(curve, 1201, 5000);
  EXPECT_LE(curve.points().size(), 1000u);
  int64_t steps = 0;
  for (const StepPoint& p : curve.points()) steps += p.steps;
  EXPECT_EQ(steps, curve.points().back().step);
  expect_written(curve);
}

TEST_F(Curve, LinesThatAreNoPointsAreDropped) {
  const std::string good = R"({"step":1,"steps":1,"loss":2.5,"lr":0.1,"grad_norm":1})";
  for (const std::string bad : {R"({"step":2})", R"({"step":2,"steps":0,"loss":1,"lr":1,"grad_norm":1})",
                                "rubbish", R"({"step":2,"steps":2,"loss":1,"lr":1,"grad_norm":1})",
                                R"({"step":9,"steps":1,"loss":1,"lr":1,"grad_norm":1})",
                                R"({"step":2,"steps":-9223372036854775808,"loss":1,"lr":1,"grad_norm":1})",
                                R"({"step":1,"steps":1,"loss":"no","lr":1,"grad_norm":1})"}) {
    folder_.put("steps.jsonl", good + "\n" + bad + "\n");
    const StepCurve curve(folder_.file(""), 5);
    ASSERT_EQ(curve.points().size(), 1u) << bad;
    EXPECT_EQ(curve.points()[0].loss, 2.5);
    EXPECT_EQ(folder_.get("steps.jsonl"), good + "\n") << bad;
  }
}

}  // namespace
}  // namespace heed::apps
