#include <cfloat>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include <heed/kernels/activation.h>

#include "plain_bound.h"

namespace heed {
namespace {

using namespace heed::testing;

constexpr Activation kAll[] = {Activation::none, Activation::relu, Activation::gelu, Activation::gelu_tanh,
                               Activation::silu};

const char* name(Activation f) {
  constexpr const char* names[] = {"none", "relu", "gelu", "gelu_tanh", "silu"};
  return names[static_cast<int>(f)];
}

// The definitions as they stand in the papers. The tails are written without cancellation.

template <class W>
W gate(Activation f, W x) {
  const W pi = W(3.14159265358979323846264338327950288L);
  switch (f) {
    case Activation::gelu:
      return std::erfc(-x / std::sqrt(W(2))) / 2;
    case Activation::gelu_tanh:
      return 1 / (1 + std::exp(-2 * std::sqrt(2 / pi) * (x + W(0.044715L) * x * x * x)));
    default:
      return 1 / (1 + std::exp(-x));
  }
}

template <class W>
W value(Activation f, W x) {
  if (f == Activation::none) return x;
  if (f == Activation::relu) return x > 0 ? x : W(0);
  return x * gate(f, x);
}

template <class W>
W slope(Activation f, W x) {
  const W pi = W(3.14159265358979323846264338327950288L);
  if (f == Activation::none) return 1;
  if (f == Activation::relu) return x > 0 ? 1 : 0;
  if (f == Activation::gelu) return gate(f, x) + x * std::exp(-x * x / 2) / std::sqrt(2 * pi);
  const W inner = f == Activation::silu ? W(1) : 2 * std::sqrt(2 / pi) * (1 + 3 * W(0.044715L) * x * x);
  return gate(f, x) * (1 + x * gate(f, -x) * inner);
}

template <class T>
std::vector<T> forward(Activation f, const std::vector<T>& x) {
  auto y = poisoned<T>(x.size());
  cpu::activation_forward<T>({f, x.data(), y.data(), static_cast<int64_t>(x.size())});
  return y;
}

template <class T>
std::vector<T> backward(Activation f, const std::vector<T>& x, const std::vector<T>& gy) {
  auto gx = poisoned<T>(x.size());
  cpu::activation_backward<T>({f, x.data(), gy.data(), gx.data(), static_cast<int64_t>(x.size()), false});
  return gx;
}

float from_bits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

/// Calls check(x, f(x), f'(x)) for every 257th float but NaN and infinity.
template <class Check>
void sweep(Activation f, const Check& check) {
  const int64_t chunk = 1 << 16;
  std::vector<float> x;
  const std::vector<float> ones(chunk, 1.0f);
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 257) {
    const float value = from_bits(static_cast<uint32_t>(bits));
    if (std::isfinite(value)) x.push_back(value);
    if (static_cast<int64_t>(x.size()) < chunk && bits + 257 < uint64_t{1} << 32) continue;
    std::vector<float> gy(ones.begin(), ones.begin() + static_cast<int64_t>(x.size()));
    const auto y = forward(f, x), gx = backward(f, x, gy);
    for (size_t i = 0; i < x.size(); ++i) check(x[i], y[i], gx[i]);
    x.clear();
  }
}

struct Worst {
  double error = 0;
  float at = 0;

  void see(double candidate, float x) {
    if (!(candidate <= error)) error = candidate, at = x;  // a NaN is the worst
  }
};

double ulps(float got, double exact) { return std::abs(got - exact) / double(ulp<float>(std::abs(exact))); }

void expect_accurate(Activation f, double value_ulps, double slope_ulps) {
  Worst normal, subnormal, slope_error, slope_relative;
  sweep(f, [&](float x, float y, float gx) {
    const double exact = std::abs(x) > 1e4 ? (x > 0 ? double(x) : 0.0) : value<double>(f, x);
    (std::abs(exact) >= FLT_MIN ? normal : subnormal).see(ulps(y, exact), x);
    const double exact_slope = std::abs(x) > 1e4 ? (x > 0 ? 1.0 : 0.0) : slope<double>(f, x);
    slope_error.see(std::abs(gx - exact_slope), x);
    if (std::abs(exact_slope) > 0.125 || (x < -3 && std::abs(exact_slope) >= FLT_MIN))
      slope_relative.see(ulps(gx, exact_slope), x);
  });
  EXPECT_LE(normal.error, value_ulps) << "at " << normal.at;
  EXPECT_LE(subnormal.error, 2) << "at " << subnormal.at;  // in units of the least number
  EXPECT_LE(slope_error.error, 3e-7) << "at " << slope_error.at;
  EXPECT_LE(slope_relative.error, slope_ulps) << "at " << slope_relative.at;
}

TEST(ActivationAccuracy, Gelu) { expect_accurate(Activation::gelu, 4, 8); }
TEST(ActivationAccuracy, GeluTanh) { expect_accurate(Activation::gelu_tanh, 6, 8); }
TEST(ActivationAccuracy, Silu) { expect_accurate(Activation::silu, 4, 8); }

// The tails magnify the rounding of the argument of exp or erfc by its size, at most some 30 here.
TEST(ActivationAccuracy, Doubles) {
  for (Activation f : {Activation::gelu, Activation::gelu_tanh, Activation::silu}) {
    const auto x = random_values<double>(20000, 1, -6, 6);
    const auto y = forward(f, x), gx = backward(f, x, std::vector<double>(x.size(), 1.0));
    for (size_t i = 0; i < x.size(); ++i) {
      const Exact exact = value<Exact>(f, x[i]), exact_slope = slope<Exact>(f, x[i]);
      ASSERT_NEAR(y[i], exact, 1e-15 * (x[i] < -1 ? 30 : 1) * std::abs(exact)) << name(f) << " at " << x[i];
      ASSERT_NEAR(gx[i], exact_slope, 1e-15) << name(f) << " at " << x[i];
    }
  }
}

template <class T>
class ActivationTest : public ::testing::Test {};
TYPED_TEST_SUITE(ActivationTest, FloatingTypes);

TYPED_TEST(ActivationTest, LimitsAndNan) {
  using T = TypeParam;
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<T> x = {T(inf), T(-inf), T(NAN), T(0.0f), T(3e38f), T(-3e38f)};
  for (Activation f : {Activation::relu, Activation::gelu, Activation::gelu_tanh, Activation::silu}) {
    const auto y = forward(f, x), gx = backward(f, x, std::vector<T>(x.size(), T(1.0f)));
    EXPECT_EQ(widen(y[0]), inf) << name(f);
    EXPECT_EQ(widen(y[1]), 0) << name(f);
    EXPECT_TRUE(std::isnan(widen(y[2]))) << name(f);
    EXPECT_EQ(widen(y[3]), 0) << name(f);
    EXPECT_EQ(widen(y[4]), widen(x[4])) << name(f);
    EXPECT_EQ(widen(y[5]), 0) << name(f);
    EXPECT_EQ(widen(gx[0]), 1) << name(f);
    EXPECT_EQ(widen(gx[1]), 0) << name(f);
    EXPECT_EQ(widen(gx[4]), 1) << name(f);
    EXPECT_EQ(widen(gx[5]), 0) << name(f);
    EXPECT_EQ(std::isnan(widen(gx[2])), f != Activation::relu) << name(f);
  }
}

/// What element-wise code in A, rounded to T, makes of f: the yardstick of the bounds.
template <class T, class F>
std::vector<T> plain(int64_t count, const F& f) {
  std::vector<T> y(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) y[i] = T(f(i, accumulator_t<T>()));
  return y;
}
template <class F>
std::vector<Exact> exact(int64_t count, const F& f) {
  std::vector<Exact> y(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) y[i] = f(i, Exact());
  return y;
}

TYPED_TEST(ActivationTest, EverySize) {
  using T = TypeParam;
  for (Activation f : kAll) {
    for (int64_t n : kSizes) {
      const auto x = random_values<T>(n, 1, -6, 6), gy = random_values<T>(n, 2), old = random_values<T>(n, 3);
      const auto y_of = [&](int64_t i, auto w) { return value(f, decltype(w)(widen(x[i]))); };
      expect_within(forward(f, x), plain<T>(n, y_of), exact(n, y_of), 2, name(f));
      const auto gx_of = [&](int64_t i, auto w) {
        return slope(f, decltype(w)(widen(x[i]))) * decltype(w)(widen(gy[i]));
      };
      expect_within(backward(f, x, gy), plain<T>(n, gx_of), exact(n, gx_of), 3, name(f));
      const auto sum_of = [&](int64_t i, auto w) { return gx_of(i, w) + decltype(w)(widen(old[i])); };
      auto sum = old;
      cpu::activation_backward<T>({f, x.data(), gy.data(), sum.data(), n, true});
      expect_within(sum, plain<T>(n, sum_of), exact(n, sum_of), 3, name(f), 2);
    }
    EXPECT_TRUE(forward(f, std::vector<T>()).empty());
  }
}

TYPED_TEST(ActivationTest, InPlaceGivesTheSameBits) {
  using T = TypeParam;
  for (Activation f : kAll) {
    const auto x = random_values<T>(1025, 1, -6, 6), gy = random_values<T>(1025, 2);
    auto y = x, gx = gy;
    cpu::activation_forward<T>({f, y.data(), y.data(), 1025});
    cpu::activation_backward<T>({f, x.data(), gx.data(), gx.data(), 1025, false});
    EXPECT_TRUE(same_bits(y, forward(f, x))) << name(f);
    EXPECT_TRUE(same_bits(gx, backward(f, x, gy))) << name(f);
  }
}

// Vectors and the scalar end of a row must agree, or results would depend on where a task begins.
TYPED_TEST(ActivationTest, AnElementDoesNotDependOnItsPlace) {
  using T = TypeParam;
  for (Activation f : kAll) {
    const auto x = random_values<T>(100, 1, -6, 6);
    const auto y = forward(f, x);
    for (int64_t from : {1, 2, 3, 50, 99}) {
      const std::vector<T> rest(x.begin() + from, x.end());
      EXPECT_TRUE(same_bits(forward(f, rest), std::vector<T>(y.begin() + from, y.end()))) << name(f);
    }
  }
}

TYPED_TEST(ActivationTest, NoThreadCountChangesABit) {
  const auto x = random_values<TypeParam>(100003, 1, -6, 6), gy = random_values<TypeParam>(100003, 2);
  expect_same_for_all_thread_counts([&] { return forward(Activation::gelu, x); });
  expect_same_for_all_thread_counts([&] { return backward(Activation::gelu, x, gy); });
}

/// Rows of a matrix that is `ld` wide, and the NaN pattern between them.
template <class T>
std::vector<T> spread(const std::vector<T>& values, int64_t rows, int64_t cols, int64_t ld) {
  auto wide = poisoned<T>(rows * ld);
  for (int64_t r = 0; r < rows; ++r) std::copy_n(&values[r * cols], cols, &wide[r * ld]);
  return wide;
}

TYPED_TEST(ActivationTest, Gated) {
  using T = TypeParam;
  for (Activation f : kAll) {
    for (int64_t cols : {1, 7, 31, 33, 1025}) {
      for (int64_t gap : {0, 5}) {
        const int64_t rows = 3, n = rows * cols, ld = cols + gap, gld = cols + 2 * gap;
        const auto gate_values = random_values<T>(n, 1, -6, 6), up_values = random_values<T>(n, 2);
        const auto gy = random_values<T>(n, 3), old = random_values<T>(n, 4);
        const auto gate = spread(gate_values, rows, cols, ld), up = spread(up_values, rows, cols, ld);
        auto y = poisoned<T>(n);
        cpu::gated_forward<T>({f, gate.data(), up.data(), y.data(), rows, cols, ld});
        const auto y_of = [&](int64_t i, auto w) {
          return value(f, decltype(w)(widen(gate_values[i]))) * decltype(w)(widen(up_values[i]));
        };
        expect_within(y, plain<T>(n, y_of), exact(n, y_of), 2, name(f));

        auto ggate = poisoned<T>(rows * gld), gup = spread(old, rows, cols, gld);
        cpu::gated_backward<T>({f, gate.data(), up.data(), gy.data(), ggate.data(), gup.data(), rows, cols,
                                ld, gld, false, true});
        const auto ggate_of = [&](int64_t i, auto w) {
          using W = decltype(w);
          return slope(f, W(widen(gate_values[i]))) * (W(widen(up_values[i])) * W(widen(gy[i])));
        };
        const auto gup_of = [&](int64_t i, auto w) {
          using W = decltype(w);
          return value(f, W(widen(gate_values[i]))) * W(widen(gy[i])) + W(widen(old[i]));
        };
        const auto rows_of = [&](const std::vector<T>& wide) {
          std::vector<T> values;
          for (int64_t r = 0; r < rows; ++r)
            values.insert(values.end(), wide.begin() + r * gld, wide.begin() + r * gld + cols);
          return values;
        };
        expect_within(rows_of(ggate), plain<T>(n, ggate_of), exact(n, ggate_of), 3, name(f));
        expect_within(rows_of(gup), plain<T>(n, gup_of), exact(n, gup_of), 3, name(f), 12);
        EXPECT_TRUE(same_bits(ggate, spread(rows_of(ggate), rows, cols, gld))) << "written between the rows";

        auto only = poisoned<T>(rows * gld);
        cpu::gated_backward<T>(
            {f, gate.data(), up.data(), gy.data(), only.data(), nullptr, rows, cols, ld, gld, false, false});
        EXPECT_TRUE(same_bits(only, ggate)) << name(f);
        only = spread(old, rows, cols, gld);
        cpu::gated_backward<T>(
            {f, gate.data(), up.data(), gy.data(), nullptr, only.data(), rows, cols, ld, gld, false, true});
        EXPECT_TRUE(same_bits(only, gup)) << name(f);
      }
    }
  }
}

TEST(ActivationGradient, MatchesCentralDifferences) {
  for (Activation f : kAll) {
    auto x = random_values<double>(33, 1, -4, 4);
    for (double& v : x) v += v < 0 ? -0.01 : 0.01;  // relu has a corner at 0
    const auto gy = random_values<double>(33, 2), up = random_values<double>(33, 3);
    const auto weighted = [&](const std::vector<double>& y) {
      double sum = 0;
      for (size_t i = 0; i < y.size(); ++i) sum += y[i] * gy[i];
      return sum;
    };
    expect_gradient([&](const auto& at) { return weighted(forward(f, at)); }, x, backward(f, x, gy), name(f));
    const auto gated = [&](const std::vector<double>& gate, const std::vector<double>& with) {
      auto y = poisoned<double>(33);
      cpu::gated_forward<double>({f, gate.data(), with.data(), y.data(), 3, 11, 11});
      return weighted(y);
    };
    auto ggate = poisoned<double>(33), gup = ggate;
    cpu::gated_backward<double>(
        {f, x.data(), up.data(), gy.data(), ggate.data(), gup.data(), 3, 11, 11, 11, false, false});
    expect_gradient([&](const auto& at) { return gated(at, up); }, x, ggate, name(f));
    expect_gradient([&](const auto& at) { return gated(x, at); }, up, gup, name(f));
  }
}

}  // namespace
}  // namespace heed
