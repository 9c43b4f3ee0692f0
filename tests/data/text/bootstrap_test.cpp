// Confidence intervals: right for a metric whose distribution is known, and the same for ever.
#include <cmath>

#include <gtest/gtest.h>

#include <heed/core/base/check.h>
#include <heed/data/text/metrics/bootstrap.h>
#include <heed/data/text/metrics/error_rate.h>

#include "../../support/expect_error.h"

namespace heed::data {
namespace {

using test::expect_error;

// Of `count` segments every `nth` is right.
std::vector<Statistics> right(size_t count, size_t nth) {
  std::vector<Statistics> segments;
  for (size_t i = 0; i < count; ++i) segments.push_back({i % nth == 0 ? 1.0 : 0.0, 1.0});
  return segments;
}

TEST(Bootstrap, IntervalsOfAShareAreBinomial) {
  const ExactMatch metric;
  const std::vector<Statistics> segments = right(1000, 4);
  const double deviation = 100 * std::sqrt(0.25 * 0.75 / 1000);
  for (const uint64_t seed : {1, 2, 3}) {
    const Interval all = bootstrap(metric, segments, {.resamples = 4000, .seed = seed});
    EXPECT_EQ(all.score, 25);
    EXPECT_NEAR(all.mean, 25, 4 * deviation / std::sqrt(4000));
    EXPECT_NEAR(all.low, 25 - 1.960 * deviation, 0.15 * deviation);
    EXPECT_NEAR(all.high, 25 + 1.960 * deviation, 0.15 * deviation);
    const Interval most = bootstrap(metric, segments, {.resamples = 4000, .confidence = 0.8, .seed = seed});
    EXPECT_NEAR(most.high - most.low, 2 * 1.2816 * deviation, 0.15 * deviation);
  }
}

TEST(Bootstrap, RepeatsItself) {
  const std::vector<Statistics> segments = right(97, 3);
  const Interval once = bootstrap(ExactMatch(), segments), again = bootstrap(ExactMatch(), segments);
  EXPECT_EQ(once.low, again.low);
  EXPECT_EQ(once.high, again.high);
  EXPECT_EQ(once.mean, again.mean);
  EXPECT_NE(bootstrap(ExactMatch(), segments, {.seed = 43}).mean, once.mean);
}

TEST(Bootstrap, OfLittleConfidenceIsTheMedian) {
  for (const int64_t resamples : {1, 2, 3, 1000}) {
    const Interval median =
        bootstrap(ExactMatch(), right(1000, 4), {.resamples = resamples, .confidence = 1e-12});
    EXPECT_LE(median.low, median.high);
    EXPECT_NEAR(median.low, 25, 5);
    EXPECT_NEAR(median.high, 25, 5);
  }
}

TEST(Bootstrap, OfOneSegmentHasNoWidth) {
  const Interval one = bootstrap(ExactMatch(), right(1, 1), {.resamples = 1});
  EXPECT_EQ(one.low, 100);
  EXPECT_EQ(one.high, 100);
}

// Paired: where a system is better on every segment it is better in every resample, however much segments
// differ.
TEST(Bootstrap, PairsSegments) {
  std::vector<Statistics> worse, better;
  for (int i = 0; i < 400; ++i) {
    const double errors = i % 20;
    worse.push_back({errors + 1, 20});
    better.push_back({errors, 20});
  }
  const Comparison comparison = paired_bootstrap(ErrorRate(), worse, better);
  EXPECT_NEAR(comparison.difference.score, -5, 1e-12);
  EXPECT_NEAR(comparison.difference.low, -5, 1e-12);
  EXPECT_NEAR(comparison.difference.high, -5, 1e-12);
  EXPECT_DOUBLE_EQ(comparison.p_value, 1.0 / 1001);
  const Interval alone = bootstrap(ErrorRate(), worse);
  EXPECT_GT(alone.high - alone.low, 2);
}

TEST(Bootstrap, EqualSystemsDoNotDiffer) {
  const std::vector<Statistics> segments = right(300, 3);
  std::vector<Statistics> shifted = segments;  // as many right, but others
  for (size_t i = 0; i < shifted.size(); ++i) shifted[i] = segments[(i + 1) % segments.size()];
  const Comparison comparison = paired_bootstrap(ExactMatch(), segments, shifted);
  EXPECT_EQ(comparison.difference.score, 0);
  EXPECT_LT(comparison.difference.low, 0);
  EXPECT_GT(comparison.difference.high, 0);
  EXPECT_GT(comparison.p_value, 0.2);
  const Comparison same = paired_bootstrap(ExactMatch(), segments, segments);
  EXPECT_EQ(same.difference.low, 0);
  EXPECT_EQ(same.difference.high, 0);
}

TEST(Bootstrap, Errors) {
  const std::vector<Statistics> segments = right(3, 2);
  expect_error<ConfigError>([&] { bootstrap(ExactMatch(), segments, {.resamples = 0}); },
                            {"resamples must be", "got 0"});
  for (const double confidence : {0.0, 1.0, -0.5, std::nan("")})
    expect_error<ConfigError>([&] { bootstrap(ExactMatch(), segments, {.confidence = confidence}); },
                              {"confidence must be between 0 and 1"});
  expect_error<DataError>([&] { bootstrap(ExactMatch(), {}); }, {"no segments"});
  expect_error<DataError>([&] { paired_bootstrap(ExactMatch(), segments, right(2, 2)); },
                          {"3 segments beside 2"});
}

}  // namespace
}  // namespace heed::data
