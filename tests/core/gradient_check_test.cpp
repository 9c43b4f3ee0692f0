#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include <heed/core/autograd/gradient_check.h>
#include <heed/core/ops.h>

#include "expect_error.h"

namespace heed::test {
namespace {

using Inputs = std::vector<Tensor>;

Tensor f64(std::initializer_list<double> values) { return tensor<double>(values); }

// x² with a gradient of factor * x.
Tensor squared(const Tensor& x, double factor) {
  return record("squared", {x}, square(x.detach()),
                [x = save(x), factor](const GradIn& gy, GradOut& gx) { gx.add(0, gy[0] * *x * factor); });
}

TEST(GradientCheck, TakesARightGradient) {
  const Tensor a = f64({-2, 0.5, 3000}), b = f64({1, 2, 3});
  const GradientReport report = check_gradients(
      [](const Inputs& in) { return squared(in[0], 2).unsqueeze(1) * in[1] / exp(in[1]); }, {a, b});
  EXPECT_TRUE(report.passed()) << report;
  EXPECT_EQ(report.compared, 6);
  EXPECT_EQ(concat(report), "6 elements compared, all right");
  EXPECT_FALSE(a.requires_grad());
  EXPECT_EQ(a.to_vector<double>(), (std::vector<double>{-2, 0.5, 3000}));
}

TEST(GradientCheck, ShowsAWrongOneWorstFirst) {
  const GradientReport report = check_gradients(
      [](const Inputs& in) { return squared(in[0], 1) + in[1]; },
      {tensor<double>(std::vector<double>{1, 0, -4, 2}, {2, 2}), scalar(1, {.dtype = DType::f64})});
  ASSERT_EQ(report.wrong.size(), 3u) << report;
  EXPECT_FALSE(report.passed());
  const GradientReport::Difference& worst = report.wrong[0];
  EXPECT_EQ(worst.input, 0);
  EXPECT_EQ(worst.place, (std::vector<int64_t>{1, 0}));
  EXPECT_NEAR(worst.gradient * 2, worst.slope, 1e-6);
  const std::string text = concat(report);
  EXPECT_EQ(text.find("5 elements compared, 3 wrong\ninput 0, element [1, 0]: gradient "), 0u) << text;
}

TEST(GradientCheck, NoticesWhatIsMissingOrNotANumber) {
  // No gradient for the second operand.
  const auto forgotten = [](const Inputs& in) {
    return record("product", {in[0], in[1]}, in[0].detach() * in[1].detach(),
                  [b = save(in[1])](const GradIn& gy, GradOut& gx) { gx.add(0, gy[0] * *b); });
  };
  EXPECT_EQ(check_gradients(forgotten, {f64({1, 2}), f64({3, 4})}).wrong.size(), 2u);
  const auto nan = [](const Inputs& in) {
    return record("nan", {in[0]}, in[0].detach() * 2.0,
                  [](const GradIn& gy, GradOut& gx) { gx.add(0, gy[0] * std::nan("")); });
  };
  EXPECT_FALSE(check_gradients(nan, {f64({1})}).passed());
  EXPECT_FALSE(
      check_gradients([](const Inputs& in) { return in[0] * 2.0; }, {zeros({0}, {.dtype = DType::f64})})
          .passed())
      << "nothing was compared";
}

TEST(GradientCheck, SpreadsOverLargeInputsAndPassesOthersOn) {
  const Tensor x = randn({10, 100}, {.dtype = DType::f64});
  const auto f = [](const Inputs& in) { return index_select(in[0], in[1]) + (in[2].defined() ? 1.0 : 0.0); };
  EXPECT_EQ(check_gradients(f, {x, tensor({3, 3, -1}), {}}, {.most_elements = 10}).compared, 10);
  EXPECT_EQ(check_gradients(f, {x, tensor({3, 3, -1}), {}}, {.most_elements = 0}).compared, 1000);
}

TEST(GradientCheck, Errors) {
  const auto twice = [](const Inputs& in) { return in[0] * 2.0; };
  expect_error<DTypeError>([&] { check_gradients(twice, {zeros({2})}).passed(); }, {"input 0 is f32", "f64"});
  expect_error<DTypeError>(
      [&] { check_gradients([](const Inputs& in) { return in[0].to(DType::f32); }, {f64({1})}).passed(); },
      {"the result is f32"});
  expect_error<AutogradError>(
      [&] { check_gradients([](const Inputs& in) { return in[0].detach(); }, {f64({1})}).passed(); },
      {"has no graph"});
  expect_error<NumericError>(
      [&] { check_gradients([](const Inputs& in) { return log(in[0]); }, {f64({-1})}).passed(); }, {"NaN"});
  expect_error<StateError>(
      [&] {
        check_gradients([](const Inputs& in) { return dropout(in[0], {.p = 0.5}); },
                        {randn({99}, {.dtype = DType::f64})})
            .passed();
      },
      {"second call", "generator"});
  expect_error<ConfigError>([&] { check_gradients(twice, {f64({1})}, {.step = 0}).passed(); }, {"step 0"});
}

}  // namespace
}  // namespace heed::test
