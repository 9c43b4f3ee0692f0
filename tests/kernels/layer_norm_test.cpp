#include <cmath>

#include <gtest/gtest.h>

#include <heed/kernels/norm.h>

#include "layer_norm_reference.h"

namespace heed {
namespace {

using namespace heed::testing;

constexpr double kEps = 1e-5;

template <class T>
struct Forward {
  std::vector<T> y;
  std::vector<accumulator_t<T>> mean, rstd;
};

template <class T>
Forward<T> forward(const std::vector<T>& x, const std::vector<T>& weight, const std::vector<T>& bias,
                   int64_t rows, int64_t cols, double eps = kEps) {
  using A = accumulator_t<T>;
  Forward<T> out{poisoned<T>(rows * cols), poisoned<A>(rows), poisoned<A>(rows)};
  auto args = layer_norm_args(x.data(), or_null(weight), or_null(bias), rows, cols, eps);
  args.y = out.y.data();
  args.mean = out.mean.data();
  args.rstd = out.rstd.data();
  cpu::norm_forward(args);
  return out;
}

template <class T>
struct Backward {
  std::vector<T> gx;
  std::vector<accumulator_t<T>> gweight, gbias;
};

/// Without results.
template <class T>
kernels::NormBackward<T> backward_args(const std::vector<T>& gy, const std::vector<T>& x,
                                       const std::vector<T>& weight, const Forward<T>& saved, int64_t rows,
                                       int64_t cols) {
  kernels::NormBackward<T> args{};
  args.gy = gy.data();
  args.sum = x.data();
  args.weight = or_null(weight);
  args.mean = saved.mean.data();
  args.rstd = saved.rstd.data();
  args.rows = rows;
  args.cols = cols;
  return args;
}

template <class T>
Backward<T> backward(const std::vector<T>& gy, const std::vector<T>& x, const std::vector<T>& weight,
                     const Forward<T>& saved, int64_t rows, int64_t cols) {
  using A = accumulator_t<T>;
  Backward<T> out{poisoned<T>(rows * cols), poisoned<A>(cols), poisoned<A>(cols)};
  auto args = backward_args(gy, x, weight, saved, rows, cols);
  args.gx = out.gx.data();
  args.gweight = out.gweight.data();
  args.gbias = out.gbias.data();
  cpu::norm_backward(args);
  return out;
}

template <class T>
class LayerNormTest : public ::testing::Test {};
TYPED_TEST_SUITE(LayerNormTest, FloatingTypes);

TYPED_TEST(LayerNormTest, EverySizeAgainstThePlainLoop) {
  using T = TypeParam;
  using A = accumulator_t<T>;
  for (int64_t cols : kSizes) {
    for (int64_t rows : {1, 3, 70}) {
      for (bool affine : {true, false}) {
        const int64_t n = rows * cols;
        const auto what = std::to_string(rows) + " x " + std::to_string(cols);
        const auto x = random_values<T>(n, 1, -1, 3), gy = random_values<T>(n, 2);
        const auto weight = random_values<T>(affine ? cols : 0, 3),
                   bias = random_values<T>(affine ? cols : 0, 4);

        const auto got = forward(x, weight, bias, rows, cols);
        const auto plain =
            plain_layer_norm<T>(convert<A>(x), convert<A>(weight), convert<A>(bias), rows, cols, kEps);
        const auto exact = plain_layer_norm<T>(convert<Exact>(x), convert<Exact>(weight),
                                               convert<Exact>(bias), rows, cols, kEps);
        expect_within(got.y, convert<T>(plain.y), exact.y, 2, "y " + what);
        expect_within(got.mean, plain.mean, exact.mean, 2, "mean " + what, 1);
        expect_within(got.rstd, plain.rstd, exact.rstd, 2, "rstd " + what);

        const auto grad = backward(gy, x, weight, got, rows, cols);
        const auto plain_grad = plain_layer_norm_backward(convert<A>(gy), convert<A>(x), convert<A>(weight),
                                                          plain.mean, plain.rstd, rows, cols);
        const auto exact_grad =
            plain_layer_norm_backward(convert<Exact>(gy), convert<Exact>(x), convert<Exact>(weight),
                                      exact.mean, exact.rstd, rows, cols);
        const Exact largest = *std::max_element(exact.rstd.begin(), exact.rstd.end()) * 4;
        expect_within(grad.gx, convert<T>(plain_grad.gx), exact_grad.gx, 3, "gx " + what, largest);
        expect_within(grad.gweight, plain_grad.gweight, exact_grad.gweight, 3, "gweight " + what,
                      exact_grad.largest_sum);
        expect_within(grad.gbias, plain_grad.gbias, exact_grad.gbias, 3, "gbias " + what,
                      exact_grad.largest_sum);
      }
    }
  }
}

TYPED_TEST(LayerNormTest, WeightWithoutBiasAndBiasWithoutWeight) {
  using T = TypeParam;
  const auto x = random_values<T>(66, 1);
  const std::vector<T> none, ones(33, T(1.0f)), zeros(33, T(0.0f));
  const auto weight = random_values<T>(33, 2);
  EXPECT_TRUE(same_bits(forward(x, weight, none, 2, 33).y, forward(x, weight, zeros, 2, 33).y));
  EXPECT_TRUE(same_bits(forward(x, none, weight, 2, 33).y, forward(x, ones, weight, 2, 33).y));
}

TYPED_TEST(LayerNormTest, WantedGradientsOnlyAndAccumulation) {
  using T = TypeParam;
  using A = accumulator_t<T>;
  for (int64_t cols : {1, 7, 33, 1025}) {
    const int64_t rows = 70, n = rows * cols;
    const auto x = random_values<T>(n, 1), gy = random_values<T>(n, 2), weight = random_values<T>(cols, 3);
    const auto saved = forward(x, weight, {}, rows, cols);
    const auto all = backward(gy, x, weight, saved, rows, cols);
    auto args = backward_args(gy, x, weight, saved, rows, cols);
    for (int wanted = 0; wanted < 8; ++wanted) {
      auto gx = poisoned<T>(n);
      auto gweight = poisoned<A>(cols), gbias = gweight;
      args.gx = wanted & 1 ? gx.data() : nullptr;
      args.gweight = wanted & 2 ? gweight.data() : nullptr;
      args.gbias = wanted & 4 ? gbias.data() : nullptr;
      cpu::norm_backward(args);
      EXPECT_TRUE(same_bits(gx, wanted & 1 ? all.gx : poisoned<T>(n))) << wanted;
      EXPECT_TRUE(same_bits(gweight, wanted & 2 ? all.gweight : poisoned<A>(cols))) << wanted;
      EXPECT_TRUE(same_bits(gbias, wanted & 4 ? all.gbias : poisoned<A>(cols))) << wanted;
    }
    const auto old_x = random_values<T>(n, 4);
    const auto old_weight = random_values<A>(cols, 5), old_bias = random_values<A>(cols, 6);
    auto gx = old_x;
    auto gweight = old_weight, gbias = old_bias;
    args.gx = gx.data();
    args.gweight = gweight.data();
    args.gbias = gbias.data();
    args.accumulate_x = args.accumulate_weight = args.accumulate_bias = true;
    cpu::norm_backward(args);
    for (int64_t i = 0; i < n; ++i) {
      const Exact sum = widen(all.gx[i]) + widen(old_x[i]);  // all.gx was rounded once more
      ASSERT_LE(std::abs(widen(gx[i]) - sum), ulp<T>(std::abs(widen(all.gx[i]))) + ulp<T>(std::abs(sum)))
          << i;
    }
    for (int64_t c = 0; c < cols; ++c) {
      EXPECT_EQ(gweight[c], old_weight[c] + all.gweight[c]);
      EXPECT_EQ(gbias[c], old_bias[c] + all.gbias[c]);
    }
  }
}

TYPED_TEST(LayerNormTest, NoRows) {
  using T = TypeParam;
  using A = accumulator_t<T>;
  EXPECT_TRUE(forward<T>({}, {}, {}, 0, 5).y.empty());
  const auto zeroed = backward<T>({}, {}, {}, {}, 0, 5);
  EXPECT_EQ(zeroed.gweight, std::vector<A>(5, 0));
  EXPECT_EQ(zeroed.gbias, std::vector<A>(5, 0));
}

TYPED_TEST(LayerNormTest, WideRows) {
  using T = TypeParam;
  using A = accumulator_t<T>;
  const int64_t cols = 16384;
  const auto x = random_values<T>(2 * cols, 1);
  const auto got = forward(x, {}, {}, 2, cols);
  const std::vector<A> none;
  const auto plain = plain_layer_norm<T>(convert<A>(x), none, none, 2, cols, kEps);
  const auto exact = plain_layer_norm<T>(convert<Exact>(x), {}, {}, 2, cols, kEps);
  expect_within(got.y, convert<T>(plain.y), exact.y, 2, "y");
}

TYPED_TEST(LayerNormTest, ConstantRowsGiveTheBias) {
  using T = TypeParam;
  for (double level : {0.0, 1.0, 1e4, -3e30, 3e38}) {
    const std::vector<T> x(33, T(accumulator_t<T>(level))), bias = random_values<T>(33, 1);
    const auto got = forward(x, {}, bias, 1, 33, 1e-12);
    for (int64_t c = 0; c < 33; ++c) EXPECT_EQ(widen(got.y[c]), widen(bias[c])) << level;
    EXPECT_TRUE(std::isfinite(got.rstd[0])) << level;
  }
}

/// The largest number of T.
template <class T>
double most() {
  return std::is_same_v<T, bfloat16> ? 0x1.fep127 : std::numeric_limits<accumulator_t<T>>::max();
}

// Squares overflow in the second and fourth row, between rows that must not notice; and sums where numbers of
// one sign are large enough.
TYPED_TEST(LayerNormTest, RowsUpToTheLargestNumber) {
  using T = TypeParam;
  const Exact eps = std::numeric_limits<accumulator_t<T>>::epsilon();
  const double root = std::sqrt(most<T>());
  const int64_t rows = 5;
  for (int64_t cols : {2, 7, 33, 300, 1100, 4099}) {
    for (double level : {root / 1024, root / 8, root, 8 * root, 1e6 * root, most<T>() / 1024, most<T>()}) {
      SCOPED_TRACE(std::to_string(cols) + " columns, level " + std::to_string(level));
      const auto scaled = [&](std::vector<T> values, double by) {
        for (int64_t i = 0; i < rows * cols; ++i)
          if (i / cols % 2 == 1) values[i] = T(accumulator_t<T>(widen(values[i]) * Exact(by)));
        return values;
      };
      const auto weight = random_values<T>(cols, 3), bias = random_values<T>(cols, 4);
      for (double low : {-0.99, 0.4}) {
        const auto x = scaled(random_values<T>(rows * cols, 1, low, 0.99), level);
        const auto got = forward(x, weight, bias, rows, cols);
        const auto exact = plain_layer_norm<T>(convert<Exact>(x), convert<Exact>(weight),
                                               convert<Exact>(bias), rows, cols, kEps);
        for (double gradient : {1.0, std::min(level, most<T>() / 1024)}) {
          const auto gy = scaled(random_values<T>(rows * cols, 2, -0.99, 0.99), gradient);
          const auto grad = backward(gy, x, weight, got, rows, cols);
          const auto exact_grad =
              plain_layer_norm_backward(convert<Exact>(gy), convert<Exact>(x), convert<Exact>(weight),
                                        exact.mean, exact.rstd, rows, cols);
          for (int64_t r = 0; r < rows; ++r) {
            const Exact size = r % 2 == 1 ? Exact(gradient) : 1,
                        bound = 64 * eps * size * exact.rstd[r] + Exact(most<T>() > 1e39 ? 3e-308 : 2e-38);
            for (int64_t i = r * cols; i < (r + 1) * cols; ++i) {
              ASSERT_NEAR(widen(got.y[i]), exact.y[i], 64 * eps + ulp<T>(std::abs(exact.y[i]))) << r;
              ASSERT_NEAR(widen(grad.gx[i]), exact_grad.gx[i], bound + ulp<T>(std::abs(exact_grad.gx[i])))
                  << r;
            }
          }
          for (int64_t c = 0; c < cols; ++c) {
            ASSERT_NEAR(grad.gweight[c], exact_grad.gweight[c], 64 * eps * exact_grad.largest_sum);
            ASSERT_NEAR(grad.gbias[c], exact_grad.gbias[c], 8 * eps * exact_grad.largest_sum);
          }
        }
        for (int64_t r = 0; r < rows; ++r) {
          ASSERT_NEAR(got.mean[r], exact.mean[r], 64 * eps * (r % 2 == 1 ? level : 1));
          ASSERT_NEAR(got.rstd[r], exact.rstd[r], 64 * eps * exact.rstd[r]);
          const auto from = x.begin() + r * cols;
          const auto alone = forward(std::vector<T>(from, from + cols), weight, bias, 1, cols);
          ASSERT_TRUE(
              same_bits(alone.y, std::vector<T>(got.y.begin() + r * cols, got.y.begin() + (r + 1) * cols)))
              << r;
        }
      }
    }
  }
}

TYPED_TEST(LayerNormTest, WhatIsNotFiniteStaysInItsRow) {
  using T = TypeParam;
  using A = accumulator_t<T>;
  const A infinity = std::numeric_limits<A>::infinity();
  for (int64_t cols : {7, 33, 300}) {
    for (A wrong : {infinity, -infinity, std::numeric_limits<A>::quiet_NaN()}) {
      auto x = random_values<T>(3 * cols, 1);
      const auto sound = forward(x, {}, {}, 3, cols);
      x[cols + 5] = T(wrong);
      const auto got = forward(x, {}, {}, 3, cols);
      const auto gx = backward(random_values<T>(3 * cols, 2), x, {}, got, 3, cols).gx;
      for (int64_t i = 0; i < 3 * cols; ++i) {
        if (i / cols == 1) {
          EXPECT_TRUE(std::isnan(widen(got.y[i])) && std::isnan(widen(gx[i]))) << i;
        } else {
          EXPECT_EQ(widen(got.y[i]), widen(sound.y[i]));
        }
      }
    }
  }
}

TYPED_TEST(LayerNormTest, NoThreadCountChangesABit) {
  using T = TypeParam;
  const int64_t rows = 333, cols = 129;
  const auto x = random_values<T>(rows * cols, 1), gy = random_values<T>(rows * cols, 2),
             weight = random_values<T>(cols, 3);
  expect_same_for_all_thread_counts([&] {
    const auto saved = forward(x, weight, {}, rows, cols);
    const auto grad = backward(gy, x, weight, saved, rows, cols);
    std::vector<double> all;
    append(all, saved.y);
    append(all, saved.mean);
    append(all, saved.rstd);
    append(all, grad.gx);
    append(all, grad.gweight);
    append(all, grad.gbias);
    return all;
  });
}

// A mean 10^4 times the deviation costs a plain float loop some 10^4 eps. Bounds of 8 eps of the result's
// scale, in both directions.
TEST(LayerNormAccuracy, LargeMean) {
  const float eps = std::numeric_limits<float>::epsilon();
  for (int64_t cols : {33, 128, 1000, 4099}) {
    const auto x = random_values<float>(8 * cols, 1, 1e4 - 1.7, 1e4 + 1.7),
               gy = random_values<float>(8 * cols, 2, -1, 1);
    const auto saved = forward(x, {}, {}, 8, cols);
    const auto exact = plain_layer_norm<float>(convert<Exact>(x), {}, {}, 8, cols, kEps);
    const auto grad = backward(gy, x, {}, saved, 8, cols);
    const auto exact_grad =
        plain_layer_norm_backward(convert<Exact>(gy), convert<Exact>(x), {}, exact.mean, exact.rstd, 8, cols);
    for (int64_t i = 0; i < 8 * cols; ++i) {
      ASSERT_NEAR(saved.y[i], exact.y[i], 8 * eps) << cols;
      ASSERT_NEAR(grad.gx[i], exact_grad.gx[i], 8 * eps) << cols;
    }
    for (int64_t c = 0; c < cols; ++c)
      ASSERT_NEAR(grad.gweight[c], exact_grad.gweight[c], 8 * 8 * eps) << cols;
  }
}

// The first columns say nothing of the mean in every third row, and take no part in what the others get.
TEST(LayerNormAccuracy, FirstColumnsFarFromTheRest) {
  const float eps = std::numeric_limits<float>::epsilon();
  const int64_t rows = 37;
  for (int64_t cols : {128, 257, 1000, 4099}) {
    auto x = random_values<float>(rows * cols, 1, -1, 3);
    for (int64_t i = 0; i < rows * cols; ++i)
      if (i / cols % 3 == 0 && i % cols >= 32) x[i] += 1e4f;
    const auto all = forward(x, {}, {}, rows, cols);
    const auto exact = plain_layer_norm<float>(convert<Exact>(x), {}, {}, rows, cols, kEps);
    const Exact largest = *std::max_element(exact.y.begin(), exact.y.end(),
                                            [](Exact a, Exact b) { return std::abs(a) < std::abs(b); });
    for (int64_t r = 0; r < rows; ++r) {
      const auto from = x.begin() + r * cols;
      const auto alone = forward(std::vector<float>(from, from + cols), {}, {}, 1, cols);
      for (int64_t c = 0; c < cols; ++c) {
        const int64_t i = r * cols + c;
        ASSERT_NEAR(all.y[i], exact.y[i], 8 * eps * std::abs(largest)) << cols;
        ASSERT_EQ(all.y[i], alone.y[c]) << cols;
      }
    }
  }
}

TEST(LayerNormGradient, MatchesCentralDifferences) {
  for (int64_t cols : {2, 7, 33}) {
    const int64_t rows = 3;
    const auto x = random_values<double>(rows * cols, 1), weight = random_values<double>(cols, 2),
               bias = random_values<double>(cols, 3), gy = random_values<double>(rows * cols, 4);
    const double eps = 0.1;  // two columns with a tiny eps have next to no gradient
    const auto loss = [&](const auto& x_at, const auto& weight_at, const auto& bias_at) {
      const auto y = forward(x_at, weight_at, bias_at, rows, cols, eps).y;
      double sum = 0;
      for (size_t i = 0; i < y.size(); ++i) sum += y[i] * gy[i];
      return sum;
    };
    const auto grad = backward(gy, x, weight, forward(x, weight, bias, rows, cols, eps), rows, cols);
    expect_gradient([&](const auto& at) { return loss(at, weight, bias); }, x, grad.gx, "x");
    expect_gradient([&](const auto& at) { return loss(x, at, bias); }, weight, grad.gweight, "weight");
    expect_gradient([&](const auto& at) { return loss(x, weight, at); }, bias, grad.gbias, "bias");
  }
}

}  // namespace
}  // namespace heed
