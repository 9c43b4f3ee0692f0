#include <cmath>

#include <gtest/gtest.h>

#include <heed/kernels/optimizer.h>

#include "plain_bound.h"

namespace heed {
namespace {

using namespace heed::testing;

constexpr double kLr = 3e-3;

/// f(first, count) for parameters of `size` elements of n, the first of which has one.
template <class F>
void cut(size_t n, size_t size, const F& f) {
  for (size_t first = 0, count; first < n; first += count) {
    count = std::min(first == 0 && size < n ? 1 : size, n - first);
    f(first, static_cast<int64_t>(count));
  }
}

/// The state of one parameter, or of several that stand one behind the other.
template <class T>
struct Arenas {
  using A = accumulator_t<T>;
  std::vector<T> value;
  std::vector<A> master, gradient, m, v;
  std::vector<kernels::StepPart<T>> parts;
  std::vector<int64_t> steps;  // of each part
  int64_t behind = 0;          // as many steps fewer has every second part taken
  bool one_parameter = true;

  Arenas(int64_t n, bool with_master)
      : value(random_values<T>(n, 1)),
        master(with_master ? random_values<A>(n, 1) : std::vector<A>()),
        gradient(n),
        m(n),
        v(n) {}

  void draw_gradient(uint32_t seed) {
    gradient = random_values<A>(static_cast<int64_t>(value.size()), seed, -3, 3);
  }

  size_t part_size() const { return one_parameter ? value.size() : size_t{100}; }

  /// Of the part that element i is in, where the first part takes step number `step`.
  int64_t step_of(size_t i, int64_t step) const {
    const bool whole = part_size() >= value.size();  // else the first part has one element
    const size_t part = whole || i == 0 ? 0 : 1 + (i - 1) / part_size();
    return step - (part % 2 == 1 ? behind : 0);
  }

  kernels::StepSlice<T> slice(int64_t step, double decay, const double* norm, double clip) {
    parts.clear();
    steps.clear();
    cut(value.size(), part_size(), [&](size_t first, int64_t count) {
      parts.push_back({gradient.data() + first, count, value.data() + first, static_cast<int64_t>(first),
                       static_cast<int64_t>(steps.size())});
      steps.push_back(step_of(first, step));
    });
    return {.parts = parts,
            .master = master.empty() ? nullptr : master.data(),
            .written = false,
            .steps = steps.data(),
            .lr = &kLr,
            .lr_factor = 1,
            .weight_decay = decay,
            .gradient_norm = norm,
            .clip = clip};
  }
};

struct Options {
  double decay = 0;
  bool decoupled = false;
  double norm = 0, clip = 0;  // clipping if norm > 0
  double beta1 = 0.9, beta2 = 0.999;
  double momentum = 0, dampening = 0;
  bool nesterov = false;
};

double clip_factor(const Options& o) { return o.norm > 0 ? std::min(1.0, o.clip / (o.norm + 1e-6)) : 1.0; }

// The formulas, one element at a time. Factors are computed in double and rounded to W once.

template <class W>
void plain_adam(W& value, W& m, W& v, W g, int64_t step, const Options& o) {
  g = g * W(clip_factor(o));
  if (o.decoupled)
    value = value * W(1 - kLr * o.decay);
  else if (o.decay != 0)
    g = g + value * W(o.decay);
  const double weight = 1 - o.beta1;
  m = weight < 0.5 ? m + W(weight) * (g - m) : g - (g - m) * (W(1) - W(weight));
  v = v * W(o.beta2) + W(1 - o.beta2) * g * g;
  const double correction1 = 1 - std::pow(o.beta1, double(step)),
               root = std::sqrt(1 - std::pow(o.beta2, double(step)));
  value = value + -W(kLr * root / correction1) * m / (std::sqrt(v) + W(1e-8 * root));
}

template <class W>
void plain_sgd(W& value, W& buffer, W g, bool first, const Options& o) {
  g = g * W(clip_factor(o));
  if (o.decay != 0) g = g + value * W(o.decay);
  if (o.momentum != 0) {
    buffer = first ? g : buffer * W(o.momentum) + g * W(1 - o.dampening);
    g = o.nesterov ? g + buffer * W(o.momentum) : buffer;
  }
  value = value + g * -W(kLr);
}

template <class W>
void plain_lion(W& value, W& m, W g, const Options& o) {
  g = g * W(clip_factor(o));
  const W direction = m * W(o.beta1) + g * W(1 - o.beta1);
  value = value * W(1 - kLr * o.decay) - W(kLr) * W((direction > 0) - (direction < 0));
  m = m * W(o.beta2) + g * W(1 - o.beta2);
}

template <class T>
kernels::StepSlice<T> slice_of(Arenas<T>& arenas, int64_t step, const Options& o) {
  return arenas.slice(step, o.decay, o.norm > 0 ? &o.norm : nullptr, o.clip);
}

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

template <class T>
class OptimizerTest : public ::testing::Test {};
TYPED_TEST_SUITE(OptimizerTest, FloatingTypes);

std::vector<Options> adam_options() {
  return {{},
          {.decay = 0.1},
          {.decay = 0.1, .decoupled = true},
          {.norm = 7, .clip = 0.5},
          {.norm = 0.25, .clip = 0.5},
          {.beta1 = 0.4, .beta2 = 0.6},
          {.beta1 = 0.0},
          {.decay = 0.1, .norm = 7, .clip = 0.5}};
}

std::vector<Options> sgd_options() {
  return {{},
          {.decay = 0.1},
          {.momentum = 0.9},
          {.momentum = 0.9, .dampening = 0.5},
          {.decay = 0.01, .momentum = 0.9, .nesterov = true},
          {.norm = 7, .clip = 0.5, .momentum = 0.9}};
}

/// Runs four steps of `run` beside `plain(value, m, v, gradient, step)` for each element, and expects the
/// same bits.
template <class T, class Run, class Plain>
void expect_same_steps(int64_t n, bool with_master, const Run& run, const Plain& plain) {
  using A = accumulator_t<T>;
  Arenas<T> arenas(n, with_master), expected = arenas;
  arenas.one_parameter = n % 2 == 0;
  arenas.behind = 2;
  for (int64_t step = 3; step <= 6; ++step) {
    arenas.draw_gradient(static_cast<uint32_t>(100 + step));
    expected.gradient = arenas.gradient;
    run(arenas, step);
    for (int64_t i = 0; i < n; ++i) {
      A value = with_master ? expected.master[i] : A(expected.value[i]);
      plain(value, expected.m[i], expected.v[i], expected.gradient[i],
            arenas.step_of(static_cast<size_t>(i), step));
      if (with_master) expected.master[i] = value;
      expected.value[i] = T(value);
    }
    ASSERT_TRUE(same_bits(arenas.value, expected.value)) << n << ", step " << step;
    ASSERT_TRUE(same_bits(arenas.master, expected.master)) << n << ", step " << step;
    ASSERT_TRUE(same_bits(arenas.m, expected.m)) << n << ", step " << step;
    ASSERT_TRUE(same_bits(arenas.v, expected.v)) << n << ", step " << step;
  }
}

TYPED_TEST(OptimizerTest, AdamIsTheTextbookBitForBit) {
  using T = TypeParam;
  for (const Options& o : adam_options()) {
    for (int64_t n : kSizes) {
      for (bool with_master : {false, true}) {
        expect_same_steps<T>(
            n, with_master, [&](auto& arenas, int64_t step) { adam(arenas, step, o); },
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
        expect_same_steps<T>(
            n, with_master, [&](auto& arenas, int64_t step) { sgd(arenas, step, o); },
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
        expect_same_steps<T>(
            n, with_master, [&](auto& arenas, int64_t step) { lion(arenas, step, o); },
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
    Arenas<T> arenas(100003, true);
    arenas.one_parameter = false;
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
  for (const size_t size : {1, 100, 4096, 5000, 29999}) {
    std::vector<kernels::GradientPart<TypeParam>> parts;
    cut(g.size(), size, [&](size_t first, int64_t count) { parts.push_back({g.data() + first, count}); });
    double total = 0;
    for (const auto& part : parts)
      for (int64_t block = 0; block < part.count; block += 4096) {
        const auto* const first = part.g + block;
        const double norm =
            norm_of(std::vector<TypeParam>(first, first + std::min<int64_t>(4096, part.count - block)));
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
