#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include <heed/core/base/check.h>
#include <heed/core/base/threads/parallel_for.h>
#include <heed/kernels/linear.h>

#include "packed_copies.h"

namespace heed {
namespace {

using kernels::LinearActivationBackward;
using kernels::LinearBackward;
using kernels::LinearForward;
using test::Copies;
using Real = long double;

template <class T>
constexpr Real kRoundoff = std::is_same_v<T, double>  ? 0x1p-53L
                           : std::is_same_v<T, float> ? 0x1p-24L
                                                      : 0x1p-8L;
/// Errors of the vector erf, tanh and exp, in roundoffs: 2 to 4 ulp (see simd_test), some of them combined.
constexpr Real kFunctionRoundoffs = 16;

constexpr Activation kActivations[] = {Activation::none, Activation::relu, Activation::gelu,
                                       Activation::gelu_tanh, Activation::silu};

Real sigmoid(Real x) { return 1 / (1 + std::exp(-x)); }
Real tanh_argument(Real x) { return std::sqrt(2 / 3.14159265358979323846L) * (x + 0.044715L * x * x * x); }

Real activate(Activation f, Real x) {
  switch (f) {
    case Activation::relu:
      return x > 0 ? x : 0;
    case Activation::gelu:
      return x / 2 * (1 + std::erf(x / std::sqrt(2.0L)));
    case Activation::gelu_tanh:
      return x / 2 * (1 + std::tanh(tanh_argument(x)));
    case Activation::silu:
      return x * sigmoid(x);
    default:
      return x;
  }
}

Real slope(Activation f, Real x) {
  const Real pi = 3.14159265358979323846L;
  switch (f) {
    case Activation::relu:
      return x > 0 ? 1 : 0;
    case Activation::gelu:
      return (1 + std::erf(x / std::sqrt(2.0L))) / 2 + x * std::exp(-x * x / 2) / std::sqrt(2 * pi);
    case Activation::gelu_tanh: {
      const Real t = std::tanh(tanh_argument(x));
      return (1 + t) / 2 + x / 2 * (1 - t * t) * std::sqrt(2 / pi) * (1 + 3 * 0.044715L * x * x);
    }
    case Activation::silu:
      return sigmoid(x) * (1 + x * (1 - sigmoid(x)));
    default:
      return 1;
  }
}

/// The factor of an element: 0 where dropped.
Real kept(const Dropout& dropout, int64_t element) {
  if (!dropout.active()) return 1;
  const bool keep = dropout_bits(dropout.rng, element / 8).bits(int(element % 8)) >= dropout.threshold;
  return keep ? Real(dropout.scale) : 0;
}

template <class T>
std::vector<T> uniform(int64_t count, std::mt19937& engine, float scale = 1) {
  std::uniform_real_distribution<float> distribution(-scale, scale);
  std::vector<T> values(static_cast<size_t>(count));
  for (T& value : values) value = T(distribution(engine));
  return values;
}

template <class T>
std::vector<T> poisoned(int64_t count) {
  return std::vector<T>(static_cast<size_t>(count), T(std::numeric_limits<float>::quiet_NaN()));
}

template <class T>
class LinearOf : public testing::Test {};
using Types = testing::Types<float, double, bfloat16>;
TYPED_TEST_SUITE(LinearOf, Types);

struct Case {
  int64_t rows, in, out;
  Activation activation;
  double p;
  bool bias, keep;
};

template <class T>
void check_forward(const Case& c, Copies* copies) {
  std::mt19937 engine(7);
  const auto x = uniform<T>(c.rows * c.in, engine), weight = uniform<T>(c.out * c.in, engine);
  const auto bias = uniform<T>(c.out, engine);
  auto y = poisoned<T>(c.rows * c.out), pre = poisoned<T>(c.rows * c.out);
  const Dropout dropout = make_dropout(c.p, {99, nullptr, 12});
  for (int call = 0; call < (copies ? 2 : 1); ++call)  // makes the copy, then takes it
    cpu::linear_forward(LinearForward<T>{.x = x.data(),
                                         .weight = weight.data(),
                                         .copies = copies,
                                         .bias = c.bias ? bias.data() : nullptr,
                                         .activation = c.activation,
                                         .dropout = dropout,
                                         .y = y.data(),
                                         .pre_activation = c.keep ? pre.data() : nullptr,
                                         .rows = c.rows,
                                         .in = c.in,
                                         .out = c.out});
  const Real u = kRoundoff<accumulator_t<T>>;
  for (int64_t i = 0; i < c.rows; ++i) {
    for (int64_t j = 0; j < c.out; ++j) {
      Real sum = c.bias ? Real(bias[size_t(j)]) : 0, size = std::fabs(sum);
      for (int64_t p = 0; p < c.in; ++p) {
        const Real term = Real(x[size_t(i * c.in + p)]) * Real(weight[size_t(j * c.in + p)]);
        sum += term;
        size += std::fabs(term);
      }
      const size_t at = size_t(i * c.out + j);
      const Real sum_error = (c.in + 2) * u * size;
      if (c.keep) {
        ASSERT_LE(std::fabs(Real(pre[at]) - sum), sum_error + 1.01L * kRoundoff<T> * std::fabs(sum));
      }
      const Real factor = kept(dropout, int64_t(at)), exact = factor * activate(c.activation, sum);
      if (factor == 0) {
        ASSERT_EQ(float(y[at]), 0.0f);
      }
      // |f'| <= 1.13 for all of them.
      const Real bound = factor * (1.2L * sum_error + kFunctionRoundoffs * u * std::fabs(sum)) +
                         1.01L * kRoundoff<T> * std::fabs(exact) + 1e-30L;
      ASSERT_LE(std::fabs(Real(y[at]) - exact), bound)
          << i << ", " << j << " of " << c.rows << "x" << c.in << "x" << c.out << " f " << int(c.activation)
          << " p " << c.p;
    }
  }
}

template <class T>
void check_forward(const Case& c) {
  check_forward<T>(c, nullptr);
  if (std::is_same_v<T, bfloat16>) return;
  Copies copies;
  check_forward<T>(c, &copies);
}

TYPED_TEST(LinearOf, Forward) {
  for (Activation f : kActivations) {
    for (double p : {0.0, 0.3}) {
      for (bool bias : {false, true}) {
        for (bool keep : {false, true}) check_forward<TypeParam>({19, 23, 37, f, p, bias, keep});
      }
    }
  }
}

TYPED_TEST(LinearOf, ForwardSizes) {
  for (int64_t size : {1, 7, 31, 32, 33, 127, 129, 1025}) {
    check_forward<TypeParam>({size, 9, 5, Activation::gelu, 0.1, true, true});
    check_forward<TypeParam>({5, size, 9, Activation::silu, 0.1, true, true});
    check_forward<TypeParam>({5, 9, size, Activation::relu, 0.1, true, true});
  }
  check_forward<TypeParam>({13, 530, 1550, Activation::gelu, 0.1, true, true});
  check_forward<TypeParam>({0, 4, 4, Activation::relu, 0.1, true, true});
  check_forward<TypeParam>({4, 0, 600, Activation::silu, 0.1, true, true});
  check_forward<TypeParam>({4, 4, 0, Activation::relu, 0.1, true, true});
}

template <class T>
void check_activation_backward(const Case& c, bool in_place, bool accumulate) {
  using A = accumulator_t<T>;
  std::mt19937 engine(11);
  const int64_t count = c.rows * c.out;
  const auto gy = uniform<T>(count, engine), pre = uniform<T>(count, engine, 4);
  const auto before = uniform<A>(c.out, engine);
  auto gpre = in_place ? gy : poisoned<T>(count);
  auto gbias = accumulate ? before : poisoned<A>(c.out);
  const Dropout dropout = make_dropout(c.p, {5, nullptr, uint64_t{1} << 40});
  std::vector<T> y;
  for (int64_t i = 0; i < count; ++i)
    y.push_back(T(static_cast<float>(kept(dropout, i) * activate(c.activation, Real(pre[size_t(i)])))));
  const std::vector<T>& keeps = c.activation == Activation::relu ? y : pre;
  cpu::linear_activation_backward(LinearActivationBackward<T>{
      in_place ? gpre.data() : gy.data(), c.activation == Activation::none ? nullptr : keeps.data(),
      c.activation, dropout, gpre.data(), c.bias ? gbias.data() : nullptr, accumulate, c.rows, c.out});
  const Real u = kRoundoff<A>;
  for (int64_t j = 0; j < c.out; ++j) {
    Real sum = accumulate ? Real(before[size_t(j)]) : 0, size = std::fabs(sum), errors = 0;
    for (int64_t i = 0; i < c.rows; ++i) {
      const size_t at = size_t(i * c.out + j);
      const Real g = Real(gy[at]) * kept(dropout, int64_t(at));
      const Real exact = g * slope(c.activation, Real(pre[at]));
      const Real error = kFunctionRoundoffs * u * std::fabs(g) * (c.activation == Activation::none ? 1 : 4);
      ASSERT_LE(std::fabs(Real(gpre[at]) - exact), error + 1.01L * kRoundoff<T> * std::fabs(exact))
          << i << ", " << j << " f " << int(c.activation) << " x " << Real(pre[at]);
      sum += exact;
      size += std::fabs(exact);
      errors += error;
    }
    if (c.bias) {
      ASSERT_LE(std::fabs(Real(gbias[size_t(j)]) - sum), errors + (c.rows + 2) * u * size) << j;
    }
  }
}

TYPED_TEST(LinearOf, ActivationBackward) {
  for (Activation f : kActivations) {
    for (double p : {0.0, 0.3}) {
      for (bool bias : {false, true}) {
        for (bool in_place : {false, true})
          check_activation_backward<TypeParam>({45, 1, 37, f, p, bias, true}, in_place, bias);
      }
    }
  }
}

TYPED_TEST(LinearOf, ActivationBackwardSizes) {
  for (int64_t size : {1, 7, 31, 32, 33, 127, 129, 1025, 4099}) {
    check_activation_backward<TypeParam>({size, 1, 5, Activation::gelu_tanh, 0.1, true, true}, false, false);
    check_activation_backward<TypeParam>({5, 1, size, Activation::gelu, 0.1, true, true}, true, true);
  }
  check_activation_backward<TypeParam>({0, 1, 5, Activation::relu, 0.1, true, true}, false,
                                       false);  // the bias's is then zero
}

TYPED_TEST(LinearOf, ActivationBackwardNeedsWhatTheForwardKept) {
  TypeParam g[1] = {};
  EXPECT_THROW(cpu::linear_activation_backward(LinearActivationBackward<TypeParam>{
                   g, nullptr, Activation::relu, Dropout{}, g, nullptr, false, 1, 1}),
               InternalError);
}

/// Sums of g's columns.
template <class T>
void check_bias(const std::vector<T>& g, const std::vector<accumulator_t<T>>& gbias, int64_t rows) {
  const size_t out = gbias.size();
  for (size_t j = 0; j < out; ++j) {
    Real sum = 0, size = 0;
    for (size_t i = 0; i < size_t(rows); ++i) {
      sum += Real(g[i * out + j]);
      size += std::fabs(Real(g[i * out + j]));
    }
    EXPECT_LE(std::fabs(Real(gbias[j]) - sum), rows * kRoundoff<accumulator_t<T>> * size);
  }
}

/// Products and sums give what they give alone, whether they run as one job or not.
template <class T>
void check_backward(int64_t rows, int64_t in, int64_t out, bool accumulate) {
  using A = accumulator_t<T>;
  std::mt19937 engine(7);
  const auto x = uniform<T>(rows * in, engine), weight = uniform<T>(out * in, engine),
             g = uniform<T>(rows * out, engine);
  const auto weight_before = uniform<A>(out * in, engine);
  const auto x_before = uniform<T>(rows * in, engine);
  auto gbias_alone = poisoned<A>(out);
  auto gweight_alone = weight_before;
  auto gx_alone = x_before;
  LinearBackward<T> args{.g = g.data(),
                         .gbias = gbias_alone.data(),
                         .accumulate_bias = false,
                         .x = x.data(),
                         .gweight = gweight_alone.data(),
                         .accumulate_weight = accumulate,
                         .weight = weight.data(),
                         .gx = gx_alone.data(),
                         .accumulate_x = accumulate,
                         .rows = rows,
                         .in = in,
                         .out = out};
  cpu::linear_activation_backward(args.bias_sums());
  check_bias(g, gbias_alone, rows);
  cpu::gemm(args.weight_product());
  cpu::gemm(args.input_product());
  for (int threads : {1, 2, 4}) {
    set_thread_count(threads);
    for (int wanted = 0; wanted < 8; ++wanted) {
      SCOPED_TRACE(concat(rows, " x ", in, " x ", out, ", ", threads, " threads, ", wanted));
      const bool with_bias = (wanted & 1) != 0, with_weight = (wanted & 2) != 0, with_x = (wanted & 4) != 0;
      auto gbias = gbias_alone;
      auto gweight = weight_before;
      auto gx = x_before;
      if (with_bias) gbias = poisoned<A>(out);
      args.gbias = with_bias ? gbias.data() : nullptr;
      args.gweight = with_weight ? gweight.data() : nullptr;
      args.gx = with_x ? gx.data() : nullptr;
      cpu::linear_backward(args);
      const auto same = [](const auto& got, const auto& want) {
        return got.empty() || std::memcmp(got.data(), want.data(), got.size() * sizeof(got[0])) == 0;
      };
      EXPECT_TRUE(same(gbias, gbias_alone));
      EXPECT_TRUE(same(gweight, with_weight ? gweight_alone : weight_before));
      EXPECT_TRUE(same(gx, with_x ? gx_alone : x_before));
    }
  }
  set_thread_count(1);
}

TYPED_TEST(LinearOf, Backward) {
  check_backward<TypeParam>(333, 64, 96, true);  // sums over each half of the rows
  check_backward<TypeParam>(100, 64, 96, false);
  check_backward<TypeParam>(70, 33, 21, true);  // what has to be packed
  for (const bool accumulate : {false, true}) {
    check_backward<TypeParam>(0, 3, 2, accumulate);
    check_backward<TypeParam>(3, 0, 2, accumulate);
    check_backward<TypeParam>(3, 2, 0, accumulate);
  }
}

TYPED_TEST(LinearOf, BitsDoNotDependOnTheThreads) {
  using T = TypeParam;
  std::mt19937 engine(5);
  const int64_t rows = 333, in = 65, out = 203;
  const auto x = uniform<T>(rows * in, engine), weight = uniform<T>(out * in, engine),
             gy = uniform<T>(rows * out, engine);
  const Dropout dropout = make_dropout(0.2, {1, nullptr, 2});
  std::vector<T> y_first, gpre_first;
  std::vector<accumulator_t<T>> gbias_first;
  for (int threads : {1, 2, 4}) {
    set_thread_count(threads);
    auto y = poisoned<T>(rows * out), pre = y, gpre = y;
    auto gbias = poisoned<accumulator_t<T>>(out);
    cpu::linear_forward(LinearForward<T>{.x = x.data(),
                                         .weight = weight.data(),
                                         .copies = nullptr,
                                         .bias = nullptr,
                                         .activation = Activation::gelu,
                                         .dropout = dropout,
                                         .y = y.data(),
                                         .pre_activation = pre.data(),
                                         .rows = rows,
                                         .in = in,
                                         .out = out});
    cpu::linear_activation_backward(LinearActivationBackward<T>{
        gy.data(), pre.data(), Activation::gelu, dropout, gpre.data(), gbias.data(), false, rows, out});
    if (threads == 1) {
      y_first = y;
      gpre_first = gpre;
      gbias_first = gbias;
    }
    EXPECT_EQ(std::memcmp(y.data(), y_first.data(), y.size() * sizeof(T)), 0);
    EXPECT_EQ(std::memcmp(gpre.data(), gpre_first.data(), gpre.size() * sizeof(T)), 0);
    EXPECT_EQ(std::memcmp(gbias.data(), gbias_first.data(), gbias.size() * sizeof(gbias[0])), 0);
  }
  set_thread_count(1);
}

}  // namespace
}  // namespace heed
