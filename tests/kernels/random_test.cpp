#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include <gtest/gtest.h>

#include <heed/kernels/cpu/random_rows.h>
#include <heed/kernels/random.h>

#include "plain_bound.h"

namespace heed {
namespace {

using namespace heed::testing;

template <class T>
std::vector<T> uniform(int64_t count, double low, double high, PhiloxState rng) {
  std::vector<T> y = poisoned<T>(count);
  cpu::fill_uniform<T>({y.data(), count, low, high, rng});
  return y;
}

template <class T>
std::vector<T> normal(int64_t count, double mean, double std, PhiloxState rng) {
  std::vector<T> y = poisoned<T>(count);
  cpu::fill_normal<T>({y.data(), count, mean, std, rng});
  return y;
}

std::vector<int64_t> integers(int64_t count, int64_t low, int64_t high, PhiloxState rng) {
  std::vector<int64_t> y(static_cast<size_t>(count), -1);
  cpu::fill_integers({y.data(), count, low, high, rng});
  return y;
}

const PhiloxState kRng{0x0123456789abcdefu, nullptr, 0x100000002u};

/// The word of element i, straight from the generator.
uint32_t word_of(int64_t i, uint64_t position) {
  return philox(static_cast<uint32_t>(i / 4), 0, static_cast<uint32_t>(position),
                static_cast<uint32_t>(position >> 32), 0x89abcdefu, 0x01234567u)
      .word[i % 4];
}

TEST(FillUniform, IsTheDocumentedWordOfTheCounter) {
  const auto f32 = uniform<float>(1025, 0, 1, kRng);
  const auto f64 = uniform<double>(1025, 0, 1, kRng);
  for (int64_t i = 0; i < 1025; ++i) {
    EXPECT_EQ(f32[i], static_cast<float>((word_of(i, kRng.offset) >> 8) * 0x1p-24)) << i;
    EXPECT_EQ(f64[i], word_of(i, kRng.offset) * 0x1p-32 + (word_of(i, kRng.offset + 1) >> 11) * 0x1p-53) << i;
  }
}

// ---- The definitions of kernels/random.h, an element at a time from the first of `group` on

template <class T>
std::vector<T> plain_uniform(int64_t count, double low, double high, PhiloxState rng, int64_t group = 0) {
  const kernels::UniformRange<T> range(low, high);
  std::vector<T> y;
  for (int64_t i = 0; i < count; ++i)
    y.push_back(range((kernels::fill_words(rng, group + i / 4, 0).word[i % 4] >> 8) * 0x1p-24));
  return y;
}

template <class T>
std::vector<T> plain_normal(int64_t count, double mean, double std, PhiloxState rng, int64_t group = 0) {
  const kernels::NormalScale<T> scale(mean, std);
  std::vector<T> y;
  for (int64_t i = 0; i < count; ++i) {
    const Philox4 words = kernels::fill_words(rng, group + i / 4, 0);
    const int64_t pair = i % 4 / 2 * 2;
    const kernels::CosineAndSine z = kernels::box_muller(words.word[pair], words.word[pair + 1]);
    y.push_back(scale(i % 2 == 0 ? z.cosine : z.sine));
  }
  return y;
}

std::vector<int64_t> plain_integers(int64_t count, int64_t low, int64_t high, PhiloxState rng,
                                    int64_t group = 0) {
  const kernels::IntegerRange range(low, high);
  std::vector<int64_t> y;
  for (int64_t i = 0; i < count; ++i)
    y.push_back(range(kernels::join(kernels::fill_words(rng, group + i / 4, 0).word[i % 4],
                                    kernels::fill_words(rng, group + i / 4, 1).word[i % 4])));
  return y;
}

/// Lengths that fill blocks of vectors, just miss them, and span several tasks.
constexpr int64_t kCounts[] = {0, 1, 3, 4, 5, 31, 32, 33, 63, 65, 1025, 4099};

/// Positions at both sides of 2^32, one from device memory, one whose successor is 0, and two whose first
/// words make the least u and the greatest.
const uint64_t kBase = 0xfffffff0u;
const PhiloxState kStates[] = {kRng,
                               {0, nullptr, 0},
                               {0xfedcba9876543210u, nullptr, 0xffffffffu},
                               {7, &kBase, 0x20},
                               {~uint64_t{0}, nullptr, ~uint64_t{0}},
                               {kRng.seed, nullptr, 0x23188f},
                               {kRng.seed, nullptr, 0x1141b}};

/// Expects that fill(y, count, rng) writes the bits of plain(count, rng) and nothing behind them.
template <class T, class Fill, class Plain>
void expect_plain_bits(const Fill& fill, const Plain& plain) {
  for (const PhiloxState& rng : kStates) {
    const std::vector<T> expected = plain(kCounts[std::size(kCounts) - 1], rng);
    for (const int64_t count : kCounts) {
      std::vector<T> y = poisoned<T>(count + 64), guarded = y;
      std::copy_n(expected.begin(), count, guarded.begin());
      fill(y.data(), count, rng);
      ASSERT_TRUE(same_bits(y, guarded)) << count << " at " << rng.position();
    }
  }
}

template <class T>
class FillBits : public ::testing::Test {};
using RowTypes = ::testing::Types<float, bfloat16>;
TYPED_TEST_SUITE(FillBits, RowTypes);

// Narrow ranges at large numbers and bfloat16 round up to the excluded bound often; 1e-45 is 0 as a bfloat16.
TYPED_TEST(FillBits, UniformIsAsDefined) {
  using T = TypeParam;
  for (auto [low, high] : {std::array<double, 2>{0, 1},
                           {-2.5, 3},
                           {1, 1.0078125},
                           {-4, -3},
                           {-1, 0},
                           {3, 3},
                           {-0.0, -0.0},
                           {8388608, 8388609},
                           {-8388609, -8388608},
                           {-1e-40, 1e-41},
                           {0, 1e-45},
                           {-1e-45, 0},
                           {-1.5e38, 1.5e38},
                           {3.3e38, 3.38e38}}) {
    SCOPED_TRACE(::testing::PrintToString(low) + " to " + ::testing::PrintToString(high));
    expect_plain_bits<T>(
        [low = low, high = high](T* y, int64_t count, const PhiloxState& rng) {
          cpu::fill_uniform<T>({y, count, low, high, rng});
        },
        [low = low, high = high](int64_t count, const PhiloxState& rng) {
          return plain_uniform<T>(count, low, high, rng);
        });
  }
}

TYPED_TEST(FillBits, NormalIsAsDefined) {
  using T = TypeParam;
  for (auto [mean, std] : {std::array<double, 2>{0, 1},
                           {-3, 5},
                           {1.5, 0},
                           {0.1, 0.02},
                           {0, 1e-40},
                           {-1e-40, 1e-45},
                           {1e38, 3e38}}) {
    SCOPED_TRACE(::testing::PrintToString(mean) + " and " + ::testing::PrintToString(std));
    expect_plain_bits<T>(
        [mean = mean, std = std](T* y, int64_t count, const PhiloxState& rng) {
          cpu::fill_normal<T>({y, count, mean, std, rng});
        },
        [mean = mean, std = std](int64_t count, const PhiloxState& rng) {
          return plain_normal<T>(count, mean, std, rng);
        });
  }
}

TEST(FillIntegers, AreAsDefined) {
  using Limits = std::numeric_limits<int64_t>;
  for (auto [low, high] : {std::array<int64_t, 2>{0, 2},
                           {-6, 7},
                           {0, int64_t{1} << 32},
                           {5, (int64_t{1} << 32) + 4},
                           {-7, int64_t{1} << 62},
                           {Limits::min(), Limits::max()},
                           {Limits::max() - 1, Limits::max()}}) {
    SCOPED_TRACE(::testing::PrintToString(low) + " to " + ::testing::PrintToString(high));
    expect_plain_bits<int64_t>(
        [low = low, high = high](int64_t* y, int64_t count, const PhiloxState& rng) {
          cpu::fill_integers({y, count, low, high, rng});
        },
        [low = low, high = high](int64_t count, const PhiloxState& rng) {
          return plain_integers(count, low, high, rng);
        });
  }
}

TEST(RandomRow, CountsGroupsBeyond32Bits) {
  const int64_t n = 103, group = (int64_t{1} << 32) - 11;
  auto y = poisoned<float>(n), z = y;
  cpu::uniform_row<float>({n, y.data(), group, kRng}, {-1, 2});
  EXPECT_TRUE(same_bits(y, plain_uniform<float>(n, -1, 2, kRng, group)));
  cpu::normal_row<float>({n, z.data(), group, kRng}, {-1, 2});
  EXPECT_TRUE(same_bits(z, plain_normal<float>(n, -1, 2, kRng, group)));
  std::vector<int64_t> k(n);
  cpu::integer_row({n, k.data(), group, kRng}, {-1, 2});
  EXPECT_TRUE(same_bits(k, plain_integers(n, -1, 2, kRng, group)));
}

TEST(FillUniform, ReachesBothEnds) {
  EXPECT_EQ(uniform<float>(1, 0, 1, {kRng.seed, nullptr, 0x23188f})[0], 0.0f);
  EXPECT_EQ(uniform<float>(1, 0, 1, {kRng.seed, nullptr, 0x1141b})[0], 1 - 0x1p-24f);
}

template <class T>
class RandomTest : public ::testing::Test {};
TYPED_TEST_SUITE(RandomTest, FloatingTypes);

TYPED_TEST(RandomTest, AnElementDoesNotDependOnTheLength) {
  const auto longest = uniform<TypeParam>(4099, -3, 5, kRng);
  const auto longest_normal = normal<TypeParam>(4099, -3, 5, kRng);
  for (int64_t count : kSizes) {
    auto prefix = longest, normal_prefix = longest_normal;
    prefix.resize(count);
    normal_prefix.resize(count);
    EXPECT_TRUE(same_bits(uniform<TypeParam>(count, -3, 5, kRng), prefix)) << count;
    EXPECT_TRUE(same_bits(normal<TypeParam>(count, -3, 5, kRng), normal_prefix)) << count;
  }
  EXPECT_TRUE(uniform<TypeParam>(0, 0, 1, kRng).empty());
}

TYPED_TEST(RandomTest, NoThreadCountChangesABit) {
  expect_same_for_all_thread_counts([] { return uniform<TypeParam>(100003, 0, 1, kRng); });
  expect_same_for_all_thread_counts([] { return normal<TypeParam>(100003, 0, 1, kRng); });
}

TYPED_TEST(RandomTest, SeedAndPositionChangeTheNumbers) {
  const auto first = uniform<TypeParam>(1000, 0, 1, {1, nullptr, 0});
  const uint64_t base = 7;
  for (PhiloxState other : {PhiloxState{2, nullptr, 0}, PhiloxState{1, nullptr, 2},
                            PhiloxState{uint64_t{1} << 32 | 1, nullptr, 0},
                            PhiloxState{1, nullptr, uint64_t{1} << 32}, PhiloxState{1, &base, 0}}) {
    EXPECT_FALSE(same_bits(uniform<TypeParam>(1000, 0, 1, other), first));
  }
  EXPECT_TRUE(same_bits(uniform<TypeParam>(1000, 0, 1, {1, &base, 3}),
                        uniform<TypeParam>(1000, 0, 1, {1, nullptr, 10})));
}

// With 2^16 draws a bfloat16 would round up to the excluded bound some 128 times.
TYPED_TEST(RandomTest, UniformStaysBelowItsUpperBound) {
  for (auto [low, high] : {std::array<double, 2>{0, 1}, {-1, 0}, {-2.5, 3}, {1, 1.0078125}, {-4, -3}}) {
    for (TypeParam value : uniform<TypeParam>(1 << 16, low, high, kRng)) {
      ASSERT_GE(widen(value), low);
      ASSERT_LT(widen(value), high);
    }
  }
  for (TypeParam value : uniform<TypeParam>(100, 3, 3, kRng)) EXPECT_EQ(widen(value), 3);
}

// Bounds of six standard errors of each moment.
TYPED_TEST(RandomTest, MomentsAreRight) {
  const int64_t n = 1 << 18;
  Exact sum = 0, squares = 0;
  for (TypeParam value : uniform<TypeParam>(n, -1, 3, kRng)) {
    sum += widen(value);
    squares += (widen(value) - 1) * (widen(value) - 1);
  }
  const double rounding = std::is_same_v<TypeParam, bfloat16> ? 0.004 : 0;
  EXPECT_NEAR(sum / n, 1.0, 6 * std::sqrt(4.0 / 3 / n) + rounding);
  EXPECT_NEAR(squares / n, 4.0 / 3, 6 * std::sqrt(64.0 / 45 / n) + rounding);
  Exact moment[5] = {};
  for (TypeParam value : normal<TypeParam>(n, 2, 3, kRng)) {
    const Exact z = (widen(value) - 2) / 3;
    ASSERT_TRUE(std::isfinite(z));
    for (int k = 1; k <= 4; ++k) moment[k] += std::pow(z, k) / n;
  }
  EXPECT_NEAR(moment[1], 0, 6 * std::sqrt(1.0 / n) + rounding);
  EXPECT_NEAR(moment[2], 1, 6 * std::sqrt(2.0 / n) + rounding);
  EXPECT_NEAR(moment[3], 0, 6 * std::sqrt(15.0 / n) + rounding);
  EXPECT_NEAR(moment[4], 3, 6 * std::sqrt(96.0 / n) + 4 * rounding);
}

/// The largest distance of the empirical distribution from the normal one, times sqrt(n).
template <class T>
double kolmogorov_smirnov(std::vector<T> values) {
  std::sort(values.begin(), values.end());
  double distance = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double expected = 0.5 * std::erfc(-double(values[i]) / std::sqrt(2.0));
    distance = std::max({distance, std::abs(expected - double(i) / values.size()),
                         std::abs(expected - double(i + 1) / values.size())});
  }
  return distance * std::sqrt(double(values.size()));
}

TEST(FillNormal, HasTheNormalDistribution) {
  // 1.95 is the 0.1 % point of the Kolmogorov-Smirnov statistic.
  EXPECT_LT(kolmogorov_smirnov(normal<float>(100000, 0, 1, kRng)), 1.95);
  EXPECT_LT(kolmogorov_smirnov(normal<double>(100000, 0, 1, kRng)), 1.95);
}

TEST(FillNormal, NeighboursAreUncorrelated) {
  const int64_t n = 1 << 18;
  const auto z = normal<double>(n, 0, 1, kRng);
  for (int lag : {1, 2, 3, 4, 8}) {
    double sum = 0;
    for (int64_t i = lag; i < n; ++i) sum += z[i] * z[i - lag];
    EXPECT_LT(std::abs(sum) / std::sqrt(double(n)), 6) << lag;
  }
}

TEST(FillNormal, DoublesAreTheFloatsWithMoreDigits) {
  const auto f32 = normal<float>(4099, 0, 1, kRng);
  const auto f64 = normal<double>(4099, 0, 1, kRng);
  for (size_t i = 0; i < f32.size(); ++i) ASSERT_NEAR(f32[i], f64[i], 4e-6) << i;
}

// Against the functions of the C library, at each place where the series change and in between.
TEST(FillNormal, SeriesAreExactToManyMoreDigitsThanFloatHas) {
  std::vector<uint32_t> words;
  for (uint64_t word = 0; word < uint64_t{1} << 32; word += 99991)
    words.push_back(static_cast<uint32_t>(word));
  for (const uint32_t change :
       {0u, 0x20000000u, 0x5a82799au, 0x60000000u, 0x80000000u, 0xa0000000u, 0xb504f334u})
    for (uint32_t i = 0; i < 100; ++i) words.insert(words.end(), {change + i, change - i});
  for (const uint32_t word : words) {
    const double log = -2 * std::log((word + 0.5) * 0x1p-32),
                 angle = 6.283185307179586476925 * (word * 0x1p-32);
    ASSERT_NEAR(kernels::minus_two_log(word), log, 1e-12 * log) << word;
    ASSERT_NEAR(kernels::cosine_and_sine(word).cosine, std::cos(angle), 1e-11) << word;
    ASSERT_NEAR(kernels::cosine_and_sine(word).sine, std::sin(angle), 1e-11) << word;
  }
}

TEST(FillNormal, ZeroDeviationIsTheMean) {
  for (float value : normal<float>(9, 1.5, 0, kRng)) EXPECT_EQ(value, 1.5f);
}

TEST(FillIntegers, CoverTheRangeEvenly) {
  const int64_t n = 130000, width = 13;
  std::array<int64_t, width> seen{};
  for (int64_t value : integers(n, -6, 7, kRng)) {
    ASSERT_GE(value, -6);
    ASSERT_LT(value, 7);
    ++seen[value + 6];
  }
  double chi = 0;
  for (int64_t count : seen)
    chi += (count - double(n) / width) * (count - double(n) / width) / (double(n) / width);
  EXPECT_LT(chi, 32.9);  // the 0.1 % point for 12 degrees of freedom
}

TEST(FillIntegers, WholeRangeOfTheType) {
  const int64_t lowest = std::numeric_limits<int64_t>::min(), highest = std::numeric_limits<int64_t>::max();
  int64_t negative = 0;
  for (int64_t value : integers(10000, lowest, highest, kRng)) {
    ASSERT_LT(value, highest);
    negative += value < 0;
  }
  EXPECT_NEAR(negative, 5000, 300);
  for (int64_t value : integers(5, highest - 1, highest, kRng)) EXPECT_EQ(value, highest - 1);
}

TEST(FillIntegers, NoThreadCountChangesABit) {
  expect_same_for_all_thread_counts([] { return integers(100003, 0, 1000, kRng); });
}

TEST(Fill, RefusesImpossibleRanges) {
  float y = 5;
  EXPECT_THROW(cpu::fill_uniform<float>({&y, 1, 1, 0, kRng}), ConfigError);
  EXPECT_THROW(cpu::fill_uniform<float>({&y, 1, 0, INFINITY, kRng}), ConfigError);
  EXPECT_THROW(cpu::fill_uniform<float>({&y, 1, NAN, 1, kRng}), ConfigError);
  EXPECT_THROW(cpu::fill_uniform<float>({&y, 1, -3e38, 3e38, kRng}), ConfigError);
  EXPECT_THROW(cpu::fill_normal<float>({&y, 1, 0, -1, kRng}), ConfigError);
  EXPECT_THROW(cpu::fill_normal<float>({&y, 1, 0, NAN, kRng}), ConfigError);
  EXPECT_EQ(y, 5);
  int64_t z = 5;
  EXPECT_THROW(cpu::fill_integers({&z, 1, 3, 3, kRng}), ConfigError);
  EXPECT_EQ(z, 5);
}

}  // namespace
}  // namespace heed
