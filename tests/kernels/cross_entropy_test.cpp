#include <heed/core/base/check.h>
#include <heed/core/base/threads/parallel_for.h>
#include <heed/kernels/cross_entropy.h>

#include "cross_entropy_reference.h"

namespace heed::test {
namespace {

using Options = LossOptions;

template <class T>
struct Result {
  std::vector<accumulator_t<T>> loss{std::numeric_limits<accumulator_t<T>>::quiet_NaN()};
  int64_t counted = -7;
  std::vector<T> glogits;
};

template <class T>
Result<T> run(const std::vector<T>& logits, const std::vector<int64_t>& targets, int64_t classes,
              const Options& options, bool with_gradient = true) {
  Result<T> result;
  result.glogits.assign(logits.size(), quiet_nan<T>());
  cpu::cross_entropy_forward<T>({.logits = logits.data(),
                                 .targets = targets.data(),
                                 .ignore = options.ignore,
                                 .label_smoothing = options.smoothing,
                                 .mean = options.mean,
                                 .loss = result.loss.data(),
                                 .counted = &result.counted,
                                 .glogits = with_gradient ? result.glogits.data() : nullptr,
                                 .rows = static_cast<int64_t>(targets.size()),
                                 .classes = classes});
  return result;
}

template <class T>
class CrossEntropy : public ::testing::Test {};
TYPED_TEST_SUITE(CrossEntropy, FloatingTypes);

TYPED_TEST(CrossEntropy, MatchesReferenceAndIgnoredRowsAreNotRead) {
  using T = TypeParam;
  using R = reference_t<T>;
  for (const int64_t classes : {1, 2, 7, 8, 9, 13, 15, 16, 17, 31, 32, 33, 127, 129, 1025, 5003})
    for (const double smoothing : {0.0, 0.1})
      for (const bool mean : {true, false})
        for (const int64_t ignore : {int64_t{-100}, int64_t{0}}) {
          const int64_t rows = classes > 1000 ? 5 : 70;
          const Options options{ignore, smoothing, mean};
          const auto targets = random_targets(rows, classes, options, 7);
          auto logits = random_values<T>(rows * classes, 8, 2);
          const auto exact = plain_cross_entropy<R, R>(logits, targets, classes, options);
          const auto plain = plain_cross_entropy<T, accumulator_t<T>>(logits, targets, classes, options);
          for (int64_t r = 0; r < rows; ++r) {
            if (targets[r] == ignore) std::fill_n(logits.begin() + r * classes, classes, quiet_nan<T>());
          }
          const auto result = run(logits, targets, classes, options);
          EXPECT_EQ(result.counted, exact.counted);
          expect_within<accumulator_t<T>>(result.loss, exact.loss, plain.loss, 2, "loss");
          expect_within<T>(result.glogits, exact.glogits, plain.glogits, 3, "glogits");
          for (int64_t i = 0; i < rows * classes; ++i) {
            if (targets[i / classes] == ignore) {
              ASSERT_EQ(double(result.glogits[i]), 0);
            }
          }
          EXPECT_EQ(run(logits, targets, classes, options, false).loss, result.loss);
        }
}

TYPED_TEST(CrossEntropy, AllIgnoredOrNoRowsIsZero) {
  using T = TypeParam;
  const std::vector<T> logits(4 * 9, quiet_nan<T>());
  const auto result = run<T>(logits, std::vector<int64_t>(4, -100), 9, {});
  EXPECT_EQ(result.loss[0], 0);
  EXPECT_EQ(result.counted, 0);
  for (const T g : result.glogits) EXPECT_EQ(double(g), 0);
  const auto none = run<T>({}, {}, 9, {});
  EXPECT_EQ(none.loss[0], 0);
  EXPECT_EQ(none.counted, 0);
}

TYPED_TEST(CrossEntropy, Backward) {
  using T = TypeParam;
  using A = accumulator_t<T>;
  for (const int64_t count : {1, 7, 8, 33, 100003}) {
    const auto glogits = random_values<T>(count, 9);
    const A gloss = A(-1.75);
    std::vector<T> gx(count, quiet_nan<T>()), added(count, T(2.0f)), in_place = glogits;
    cpu::cross_entropy_backward<T>(
        {.glogits = glogits.data(), .gloss = &gloss, .gx = gx.data(), .count = count, .accumulate = false});
    cpu::cross_entropy_backward<T>(
        {.glogits = glogits.data(), .gloss = &gloss, .gx = added.data(), .count = count, .accumulate = true});
    cpu::cross_entropy_backward<T>({.glogits = in_place.data(),
                                    .gloss = &gloss,
                                    .gx = in_place.data(),
                                    .count = count,
                                    .accumulate = false});
    for (int64_t i = 0; i < count; ++i) {
      ASSERT_EQ(double(gx[i]), double(T(A(glogits[i]) * gloss)));
      ASSERT_EQ(double(in_place[i]), double(gx[i]));
      const double exact = double(glogits[i]) * gloss + 2;
      ASSERT_NEAR(double(added[i]), exact, epsilon<T>() * (std::fabs(exact) + 4));
    }
  }
}

TEST(CrossEntropy, BadTargetIsNamedAndNothingIsWritten) {
  const std::vector<float> logits(3 * 5, 1.0f);
  for (const int64_t bad : {int64_t{5}, int64_t{-1}, int64_t{1} << 40}) {
    std::vector<float> glogits(logits.size(), 42.0f);
    float loss = 42;
    int64_t counted = 42;
    const std::vector<int64_t> targets = {0, bad, 2};
    const kernels::CrossEntropyForward<float> args{.logits = logits.data(),
                                                   .targets = targets.data(),
                                                   .ignore = -100,
                                                   .label_smoothing = 0,
                                                   .mean = true,
                                                   .loss = &loss,
                                                   .counted = &counted,
                                                   .glogits = glogits.data(),
                                                   .rows = 3,
                                                   .classes = 5};
    try {
      cpu::cross_entropy_forward(args);
      FAIL() << "target " << bad << " was accepted";
    } catch (const IndexError& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find(std::to_string(bad)), std::string::npos) << text;
      EXPECT_NE(text.find("row 1"), std::string::npos) << text;
    }
    EXPECT_EQ(loss, 42);
    EXPECT_EQ(counted, 42);
    EXPECT_EQ(glogits, std::vector<float>(logits.size(), 42.0f));
  }
}

TEST(CrossEntropy, ExtremeLogits) {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> logits = {1e30f, -1e30f, -inf, 0, 100, -inf};
  const auto result = run<float>(logits, {0, 1}, 3, {});
  EXPECT_EQ(result.loss[0], 0);  // both are certain and right
  for (const float g : result.glogits) EXPECT_NEAR(g, 0, 1e-30);
  EXPECT_EQ(run<float>(logits, {2, 1}, 3, {}).loss[0], inf);
}

TEST(CrossEntropy, IgnoredRowsAtAnyDistance) {  // all others are equally unsure: a loss of log(classes) each
  constexpr int64_t kRows = 32768, kClasses = 40, kIgnore = -100;
  const std::vector<float> logits(kRows * kClasses, 1.5f);
  for (const int64_t period : {2, 16}) {
    for (int64_t phase = 0; phase < period; ++phase) {
      std::vector<int64_t> targets(kRows);
      for (int64_t r = 0; r < kRows; ++r) targets[r] = r % period == phase ? kIgnore : r % kClasses;
      const Result<float> result = run<float>(logits, targets, kClasses, {.ignore = kIgnore});
      EXPECT_NEAR(result.loss[0], std::log(float{kClasses}), 1e-6f) << phase << " of " << period;
    }
  }
}

TEST(CrossEntropy, GradientAgreesWithDifferences) {
  const int64_t classes = 9;
  const std::vector<int64_t> targets = {3, -100, 8};
  const Options options{-100, 0.2, true};
  const auto logits = random_values<double>(3 * classes, 10);
  const auto result = run<double>(logits, targets, classes, options);
  for (int64_t i = 0; i < 3 * classes; ++i) {
    auto up = logits, down = logits;
    up[i] += 1e-5;
    down[i] -= 1e-5;
    const double slope = (run<double>(up, targets, classes, options, false).loss[0] -
                          run<double>(down, targets, classes, options, false).loss[0]) /
                         2e-5;
    EXPECT_NEAR(result.glogits[i], slope, 1e-9);
  }
}

TEST(CrossEntropy, ThreadCountDoesNotMatter) {
  const int64_t rows = 3000, classes = 61;
  const Options options{-100, 0.1, true};
  const auto targets = random_targets(rows, classes, options, 11);
  const auto logits = random_values<float>(rows * classes, 12);
  const int before = thread_count();
  set_thread_count(1);
  const auto one = run<float>(logits, targets, classes, options);
  for (const int threads : {2, 4}) {
    set_thread_count(threads);
    const auto many = run<float>(logits, targets, classes, options);
    EXPECT_EQ(many.loss, one.loss);
    EXPECT_EQ(many.glogits, one.glogits);
  }
  set_thread_count(before);
}

}  // namespace
}  // namespace heed::test
