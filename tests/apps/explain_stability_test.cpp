// Gradients and first weights as explain shows them: what must vanish vanishes, the rest stays in its bands.
#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include "explain_run.h"

namespace heed::test {
namespace {

// One run for several tests.
const Json& gradients() {
  static const Json result = explain("gradients --deepest 1 --steps 1");
  return result;
}

bool is_last_norm(const std::string& parameter) { return parameter.compare(0, 5, "norm2") == 0; }

TEST(ExplainGradients, SumOfOutputsVanishesOnPostNormAndAProjectionDoesNot) {
  const Json& g = gradients();
  EXPECT_EQ(g.at("parameters"), 3'150'848);
  ASSERT_EQ(g.at("gradients").size(), 14u);  // 13 parameters, q, k and v apart, and the input
  for (const Json& row : g.at("gradients")) {
    for (const char* probe : {"pre-norm, sum", "pre-norm, <y,r>", "post-norm, <y,r>"})
      EXPECT_GT(row.at(probe).get<double>(), 1) << row;
    const double vanishing = row.at("post-norm, sum");
    EXPECT_EQ(vanishing > 1e-9, is_last_norm(row.at("parameter"))) << row;
  }
}

// ∂Σy/∂(norm2.bias) of a post-norm block is the number of tokens, 5, for each of 512 dimensions.
TEST(ExplainGradients, OfTheLastBiasIsKnown) {
  const Json& row = gradients().at("gradients")[12];
  ASSERT_EQ(row.at("parameter"), "norm2.bias");
  EXPECT_NEAR(row.at("post-norm, sum").get<double>(), 5 * std::sqrt(512.0), 1e-9);
}

TEST(ExplainGradients, OfTheKeyBiasIsZero) {
  const Json& biases = gradients().at("biases");
  ASSERT_EQ(biases.size(), 3u);
  EXPECT_GT(biases[0].at("gradient").get<double>(), 1);
  EXPECT_LT(biases[1].at("gradient").get<double>(), 1e-9);
  EXPECT_GT(biases[2].at("gradient").get<double>(), 1);
}

TEST(ExplainGradients, OverDepthAndTraining) {
  const Json g = explain("gradients --d-model 64 --heads 4 --d-ff 256 --steps 100");
  const Json& depth = g.at("depth");
  ASSERT_EQ(depth.size(), 24u);
  // The last norm of a pre-norm stack divides by a stream that has grown: its first blocks get more.
  EXPECT_GT(depth[0].at("pre-norm").get<double>(), 1.3 * depth[23].at("pre-norm").get<double>());
  for (const Json& row : depth)
    for (const char* placement : {"pre-norm", "post-norm"}) {
      EXPECT_GT(row.at(placement).get<double>(), 10) << row;  // neither vanishes nor explodes
      EXPECT_LT(row.at(placement).get<double>(), 1000) << row;
    }
  const Json& training = g.at("training");
  EXPECT_LT(training.back().at("loss").get<double>(), 0.85 * training.front().at("loss").get<double>());
}

struct Band {
  double value, deviation;  // mean and standard deviation over 24 draws of the same experiment in NumPy
};

// Four standard deviations of one draw; what is tested is a mean of five.
void expect_in(const Json& got, const Band& band, const std::string& what) {
  EXPECT_NEAR(got.get<double>(), band.value, 4 * band.deviation) << what;
}

TEST(ExplainInitialization, OutputsOfOneBlockAreInTheirBands) {
  struct Expected {
    const char* name;
    Band mean, deviation, attention, feed_forward;
    double least_range, most_range;  // of the largest absolute value
  };
  const Expected expected[] = {
      {"Xavier", {0, 0.033}, {1.1956, 0.0134}, {0.4403, 0.0143}, {0.4800, 0.0073}, 3.9, 6},
      {"Kaiming", {0, 0.0502}, {2.0845, 0.0378}, {1.2281, 0.0355}, {1.3533, 0.0231}, 6.6, 11},
      {"normal 0.02", {0, 0.0145}, {1.0319, 0.0115}, {0.0653, 0.0040}, {0.2334, 0.0041}, 3.2, 5}};
  const Json table = explain("initialization --deepest 1").at("block");
  ASSERT_EQ(table.size(), std::size(expected));
  for (size_t i = 0; i < table.size(); ++i) {
    const Json& row = table[i];
    const Expected& e = expected[i];
    ASSERT_EQ(row.at("initializer"), e.name);
    expect_in(row.at("mean"), e.mean, row.dump());
    expect_in(row.at("deviation"), e.deviation, row.dump());
    expect_in(row.at("attention"), e.attention, row.dump());
    expect_in(row.at("feed-forward"), e.feed_forward, row.dump());
    const double range = std::max(row.at("max").get<double>(), -row.at("min").get<double>());
    EXPECT_GT(range, e.least_range) << row;
    EXPECT_LT(range, e.most_range) << row;
  }
}

// √(6/(fan_in + fan_out)), √(6/fan_in), and 0.02.
TEST(ExplainInitialization, WeightsHaveTheirBounds) {
  const Json table = explain("initialization --deepest 1 --draws 1").at("weights");
  ASSERT_EQ(table.size(), 6u);
  const double bounds[] = {std::sqrt(6 / 1024.0), std::sqrt(6 / 2560.0), std::sqrt(6 / 512.0),
                           std::sqrt(6 / 512.0)};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(table[i].at("max").get<double>(), bounds[i], 1e-3 * bounds[i]);
    EXPECT_NEAR(table[i].at("min").get<double>(), -bounds[i], 1e-3 * bounds[i]);
    EXPECT_NEAR(table[i].at("deviation").get<double>(), bounds[i] / std::sqrt(3), 5e-3 * bounds[i]);
  }
  for (size_t i = 4; i < 6; ++i) EXPECT_NEAR(table[i].at("deviation").get<double>(), 0.02, 1e-4);
}

TEST(ExplainInitialization, TheSignalGrowsWithDepth) {
  const Json table = explain("initialization --d-model 64 --heads 4 --d-ff 256 --draws 1").at("depth");
  EXPECT_EQ(table.back().at("blocks"), 48);
  for (size_t i = 1; i < table.size(); ++i)
    for (const char* name : {"Xavier", "Kaiming", "normal 0.02"})
      EXPECT_GT(table[i].at(name).get<double>(), table[i - 1].at(name).get<double>()) << table[i];
  EXPECT_GT(table.back().at("Kaiming").get<double>(), 1.5 * table.back().at("Xavier").get<double>());
  EXPECT_LT(table.back().at("normal 0.02").get<double>(), 2);
}

}  // namespace
}  // namespace heed::test
