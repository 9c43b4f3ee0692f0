#include <cmath>

#include <gtest/gtest.h>

#include "optimizer_cases.h"

namespace heed {
namespace {

using namespace heed::testing;

// Parameters of `size` elements that have n together, the first of which has one; or one of all.
std::vector<int64_t> cut(int64_t n, int64_t size) {
  if (size >= n) return {n};
  std::vector<int64_t> sizes{1};
  for (int64_t left = n - 1; left > 0; left -= sizes.back()) sizes.push_back(std::min(left, size));
  return sizes;
}

std::vector<int64_t> some_sizes(int64_t n) { return cut(n, n % 2 == 0 ? n : 100); }

template <class T>
struct Cpu {
  using Type = T;

  static std::vector<Arenas<T>> arenas() {
    std::vector<Arenas<T>> all;
    for (const int64_t n : kSizes)
      for (const bool with_master : {false, true}) all.emplace_back(some_sizes(n), with_master);
    return all;
  }

  static void adam(Arenas<T>& arenas, const kernels::StepSlice<T>& slice, const Options& o) {
    cpu::adam_step<T>({slice, arenas.m.data(), arenas.v.data(), o.beta1, o.beta2, 1e-8, o.decoupled});
  }

  static void sgd(Arenas<T>& arenas, const kernels::StepSlice<T>& slice, const Options& o) {
    cpu::sgd_step<T>(
        {slice, o.momentum != 0 ? arenas.m.data() : nullptr, o.momentum, o.dampening, o.nesterov});
  }

  static void lion(Arenas<T>& arenas, const kernels::StepSlice<T>& slice, const Options& o) {
    cpu::lion_step<T>({slice, arenas.m.data(), o.beta1, o.beta2});
  }

  static double rate(double value) {
    double lr = 0;
    cpu::set_lr({&lr, value});
    return lr;
  }

  static void advance(int64_t& step, std::vector<int64_t>& steps, const std::vector<int64_t>& stepped,
                      const double* norm) {
    cpu::advance_steps({&step, steps.data(), stepped, norm});
  }
};
using CpuTypes = ::testing::Types<Cpu<float>, Cpu<bfloat16>, Cpu<double>>;
INSTANTIATE_TYPED_TEST_SUITE_P(Cpu, OptimizerSteps, CpuTypes);

// Against the published update in wider arithmetic, so that the formula above is not its own judge.
TEST(OptimizerAccuracy, DoublesAreWithinRoundingOfTheFormula) {
  const Options o{.decay = 0.1};
  Arenas<double> arenas(1025, false);
  auto value = convert<Exact>(arenas.value);
  std::vector<Exact> m(1025), v(1025);
  for (int64_t step = 1; step <= 10; ++step) {
    arenas.draw_gradient(static_cast<uint32_t>(step));
    for (size_t i = 0; i < value.size(); ++i) {
      const Exact g = arenas.gradient[i] + Exact(o.decay) * value[i];
      m[i] = Exact(o.beta1) * m[i] + (1 - Exact(o.beta1)) * g;
      v[i] = Exact(o.beta2) * v[i] + (1 - Exact(o.beta2)) * g * g;
      const Exact m_hat = m[i] / (1 - std::pow(Exact(o.beta1), step)),
                  v_hat = v[i] / (1 - std::pow(Exact(o.beta2), step));
      value[i] -= Exact(kLr) * m_hat / (std::sqrt(v_hat) + Exact(1e-8));
    }
    Cpu<double>::adam(arenas, slice_of(arenas, step, o), o);
    // 1 - beta2 holds three digits less than a double, which shifts sqrt(v_hat) by some 1e-14 of the step.
    for (size_t i = 0; i < value.size(); ++i) ASSERT_NEAR(arenas.value[i], value[i], 1e-15 * step) << step;
  }
}

template <class T>
class OptimizerThreads : public ::testing::Test {};
TYPED_TEST_SUITE(OptimizerThreads, FloatingTypes);

TYPED_TEST(OptimizerThreads, NoThreadCountChangesABit) {
  using T = TypeParam;
  expect_same_for_all_thread_counts([] {
    Arenas<T> arenas(some_sizes(100003), true);
    arenas.draw_gradient(1);
    Cpu<T>::adam(arenas, arenas.slice(1, 0, nullptr, 0), {});
    return arenas.value;
  });
}

template <class A>
class GradientNormTest : public ::testing::Test {};
using NormTypes = ::testing::Types<float, double>;
TYPED_TEST_SUITE(GradientNormTest, NormTypes);

template <class A>
double norm_of(const std::vector<A>& g) {
  double result = NAN;
  const kernels::GradientPart<A> part{g.data(), static_cast<int64_t>(g.size())};
  cpu::gradient_norm<A>({{&part, 1}, &result});
  return result;
}

// Squares of floats are exact in double, and 32 sums of 128 each grow no error beyond some 160 half ulps, of
// which the root halves.
TYPED_TEST(GradientNormTest, EverySize) {
  for (int64_t n : {0, 1, 7, 31, 32, 33, 1025, 4095, 4096, 4097, 4099, 100003}) {
    const auto g = random_values<TypeParam>(n, 1);
    Exact exact = 0;
    for (TypeParam v : g) exact += Exact(v) * Exact(v);
    const Exact norm = std::sqrt(exact);
    EXPECT_NEAR(norm_of(g), norm, 81 * 1.1e-16 * norm) << n;
  }
}

// The documented order: 32 interleaved sums in a block of 4096, added up in turn, then the blocks.
TYPED_TEST(GradientNormTest, IsSummedInTheSameOrderEverywhere) {
  const auto g = random_values<TypeParam>(10000, 1);
  double total = 0;
  for (size_t block = 0; block < g.size(); block += 4096) {
    double sums[32] = {};
    for (size_t i = block; i < std::min(block + 4096, g.size()); ++i)
      sums[(i - block) % 32] += double(g[i]) * double(g[i]);
    double sum = 0;
    for (double s : sums) sum += s;
    total += sum;
  }
  EXPECT_EQ(norm_of(g), std::sqrt(total));
}

// Blocks end with their parameter, and parameters without elements have none.
TYPED_TEST(GradientNormTest, OfManyParameters) {
  const auto g = random_values<TypeParam>(30000, 1);
  for (const int64_t size : {1, 100, 4096, 5000, 29999}) {
    std::vector<kernels::GradientPart<TypeParam>> parts;
    const TypeParam* first = g.data();
    for (const int64_t count : cut(static_cast<int64_t>(g.size()), size)) {
      parts.push_back({first, count});
      first += count;
    }
    double total = 0;
    for (const auto& part : parts)
      for (int64_t block = 0; block < part.count; block += 4096) {
        const auto* const from = part.g + block;
        const double norm =
            norm_of(std::vector<TypeParam>(from, from + std::min<int64_t>(4096, part.count - block)));
        total += norm * norm;
      }
    parts.insert(parts.begin() + 1, {g.data(), 0});
    double norm = NAN;
    cpu::gradient_norm<TypeParam>({parts, &norm});
    EXPECT_NEAR(norm, std::sqrt(total), 1e-14 * norm) << size;
  }
  double norm = NAN;
  cpu::gradient_norm<TypeParam>({{}, &norm});
  EXPECT_EQ(norm, 0);
}

TYPED_TEST(GradientNormTest, NeitherOverflowsNorHidesNan) {
  EXPECT_NEAR(norm_of(std::vector<TypeParam>(100, TypeParam(1e30))) / 1e31, 1, 1e-6);
  std::vector<TypeParam> g(5000, 1);
  g[4999] = NAN;
  EXPECT_TRUE(std::isnan(norm_of(g)));
}

TYPED_TEST(GradientNormTest, NoThreadCountChangesABit) {
  const auto g = random_values<TypeParam>(100003, 1);
  expect_same_for_all_thread_counts([&] { return std::vector<double>{norm_of(g)}; });
}

}  // namespace
}  // namespace heed
