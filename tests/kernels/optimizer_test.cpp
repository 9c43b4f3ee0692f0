#include <cmath>

#include <gtest/gtest.h>

#include "optimizer_reference.h"

namespace heed {
namespace {

using namespace heed::testing;

template <class T>
void adam(Arenas<T>& arenas, int64_t step, const Options& o) {
  cpu::adam_step<T>(
      {slice_of(arenas, step, o), arenas.m.data(), arenas.v.data(), o.beta1, o.beta2, 1e-8, o.decoupled});
}

template <class T>
void sgd(Arenas<T>& arenas, int64_t step, const Options& o) {
  cpu::sgd_step<T>({slice_of(arenas, step, o), o.momentum != 0 ? arenas.m.data() : nullptr, o.momentum,
                    o.dampening, o.nesterov});
}

template <class T>
void lion(Arenas<T>& arenas, int64_t step, const Options& o) {
  cpu::lion_step<T>({slice_of(arenas, step, o), arenas.m.data(), o.beta1, o.beta2});
}

// Parameters of `size` elements that have n together, the first of which has one; or one of all.
std::vector<int64_t> cut(int64_t n, int64_t size) {
  if (size >= n) return {n};
  std::vector<int64_t> sizes{1};
  for (int64_t left = n - 1; left > 0; left -= sizes.back()) sizes.push_back(std::min(left, size));
  return sizes;
}

std::vector<int64_t> some_sizes(int64_t n) { return cut(n, n % 2 == 0 ? n : 100); }

template <class T>
class OptimizerTest : public ::testing::Test {};
TYPED_TEST_SUITE(OptimizerTest, FloatingTypes);

TYPED_TEST(OptimizerTest, AdamIsTheTextbookBitForBit) {
  using T = TypeParam;
  for (const Options& o : adam_options()) {
    for (int64_t n : kSizes) {
      for (bool with_master : {false, true}) {
        expect_same_steps(
            Arenas<T>(some_sizes(n), with_master), [&](auto& arenas, int64_t step) { adam(arenas, step, o); },
            [&](auto& value, auto& m, auto& v, auto g, int64_t step) {
              plain_adam(value, m, v, g, step, o);
            });
      }
    }
  }
}

TYPED_TEST(OptimizerTest, SgdIsTheTextbookBitForBit) {
  using T = TypeParam;
  for (const Options& o : sgd_options()) {
    for (int64_t n : kSizes) {
      for (bool with_master : {false, true}) {
        expect_same_steps(
            Arenas<T>(some_sizes(n), with_master), [&](auto& arenas, int64_t step) { sgd(arenas, step, o); },
            [&](auto& value, auto& m, auto&, auto g, int64_t step) { plain_sgd(value, m, g, step == 1, o); });
      }
    }
  }
}

TYPED_TEST(OptimizerTest, LionIsTheTextbookBitForBit) {
  using T = TypeParam;
  for (const Options& o : {Options{}, {.decay = 0.1, .beta2 = 0.99}, {.norm = 7, .clip = 0.5}})
    for (int64_t n : kSizes)
      for (bool with_master : {false, true})
        expect_same_steps(
            Arenas<T>(some_sizes(n), with_master), [&](auto& arenas, int64_t step) { lion(arenas, step, o); },
            [&](auto& value, auto& m, auto&, auto g, int64_t) { plain_lion(value, m, g, o); });
}

TEST(Optimizer, LionStandsStillWhereNothingPointsAndKeepsNan) {
  Arenas<float> arenas(3, false);
  arenas.value = {5, 5, 5};
  arenas.gradient = {0, -2, NAN};
  lion(arenas, 1, {});
  EXPECT_EQ(arenas.value[0], 5);
  EXPECT_EQ(arenas.value[1], 5 + float(kLr));
  EXPECT_TRUE(std::isnan(arenas.value[2]));
}

// A master is finer than the value that it rounds to; another value was written since and stands.
TEST(Optimizer, AWrittenValueReplacesAMasterThatDoesNotRoundToIt) {
  const double still = 0;
  for (const bool written : {false, true}) {
    Arenas<bfloat16> arenas(300, true);
    for (size_t i = 0; i < 300; ++i) {
      arenas.master[i] = 1 + 0x1p-10f;  // rounds to 1
      arenas.value[i] = bfloat16(i % 3 == 0 ? 5.0f : 1.0f);
    }
    arenas.draw_gradient(1);
    auto slice = arenas.slice(1, 0, nullptr, 0);
    slice.written = written;
    slice.lr = &still;
    cpu::sgd_step<bfloat16>({slice, nullptr, 0, 0, false});
    for (size_t i = 0; i < 300; ++i) {
      EXPECT_EQ(arenas.master[i], written && i % 3 == 0 ? 5.0f : 1 + 0x1p-10f);
      EXPECT_EQ(float(arenas.value[i]), written && i % 3 == 0 ? 5.0f : 1.0f);
    }
  }
}

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
    adam(arenas, step, o);
    // 1 - beta2 holds three digits less than a double, which shifts sqrt(v_hat) by some 1e-14 of the step.
    for (size_t i = 0; i < value.size(); ++i) ASSERT_NEAR(arenas.value[i], value[i], 1e-15 * step) << step;
  }
}

TYPED_TEST(OptimizerTest, ANormThatIsNotFiniteChangesNothing) {
  for (const double norm : {double(NAN), double(INFINITY)}) {
    Arenas<TypeParam> arenas(33, false);
    arenas.draw_gradient(1);
    const Arenas<TypeParam> before = arenas;
    int64_t step = 0, steps[3] = {4, 5, 6};
    const int64_t stepped[] = {0, 2};
    cpu::advance_steps({&step, steps, stepped, &norm});
    EXPECT_EQ(step, 0);
    EXPECT_EQ(steps[0], 4);
    cpu::advance_steps({&step, steps, stepped, nullptr});
    EXPECT_EQ(step, 1);
    EXPECT_EQ(std::vector<int64_t>(steps, steps + 3), (std::vector<int64_t>{5, 5, 7}));
    const auto slice = arenas.slice(0, 0, &norm, 1);
    cpu::adam_step<TypeParam>({slice, arenas.m.data(), arenas.v.data(), 0.9, 0.999, 1e-8, false});
    cpu::sgd_step<TypeParam>({slice, arenas.m.data(), 0.9, 0, false});
    cpu::lion_step<TypeParam>({slice, arenas.m.data(), 0.9, 0.99});
    EXPECT_TRUE(same_bits(arenas.value, before.value));
    EXPECT_TRUE(same_bits(arenas.m, before.m));
  }
}

TEST(Optimizer, TheRateOfASliceIsTheRateTimesItsFactor) {
  Arenas<double> arenas(1, false);
  arenas.value = {1};
  arenas.gradient = {2};
  double lr = 0;
  cpu::set_lr({&lr, 0.25});
  auto slice = arenas.slice(1, 0, nullptr, 0);
  slice.lr = &lr;
  slice.lr_factor = 0.5;
  cpu::sgd_step<double>({slice, nullptr, 0, 0, false});
  EXPECT_EQ(arenas.value[0], 1 - 0.25 * 0.5 * 2);
}

TYPED_TEST(OptimizerTest, NoThreadCountChangesABit) {
  using T = TypeParam;
  expect_same_for_all_thread_counts([] {
    Arenas<T> arenas(some_sizes(100003), true);
    arenas.draw_gradient(1);
    adam(arenas, 1, {});
    return arenas.value;
  });
}

TEST(Optimizer, NothingToDo) {
  Arenas<float> arenas(0, false);
  adam(arenas, 1, {});
  sgd(arenas, 1, {});
  lion(arenas, 1, {});
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
