// What the kernel tests share: inputs, poisoned outputs, and error bounds taken from a plain implementation.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include <heed/core/base/dtype.h>
#include <heed/core/base/philox.h>
#include <heed/core/base/threads/parallel_for.h>

namespace heed::testing {

/// References are computed in a type wider than any the kernels have.
using Exact = long double;

using FloatingTypes = ::testing::Types<float, bfloat16, double>;

/// Sizes that fill vectors, just miss them, and span several tasks.
inline const std::vector<int64_t> kSizes = {1, 7, 31, 32, 33, 1025, 4099};

/// `count` numbers spread evenly over [low, high), exactly representable in T.
template <class T>
std::vector<T> random_values(int64_t count, uint32_t seed, double low = -2, double high = 2) {
  std::vector<T> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t word = philox(static_cast<uint32_t>(i), 0, 0, 0, seed, 0).word[0];
    values[static_cast<size_t>(i)] = T(accumulator_t<T>(low + (high - low) * word * 0x1p-32));
  }
  return values;
}

/// Memory as the plain allocator hands it out: every byte 0xff, a NaN in each floating-point type.
template <class T>
std::vector<T> poisoned(int64_t count) {
  std::vector<T> values(static_cast<size_t>(count));
  if (count > 0) std::memset(static_cast<void*>(values.data()), 0xff, values.size() * sizeof(T));
  return values;
}

template <class To, class From>
std::vector<To> convert(const std::vector<From>& from) {
  std::vector<To> to(from.size());
  for (size_t i = 0; i < from.size(); ++i) {
    if constexpr (std::is_same_v<From, bfloat16>)
      to[i] = To(float(from[i]));
    else if constexpr (std::is_same_v<To, bfloat16>)
      to[i] = To(float(from[i]));
    else
      to[i] = To(from[i]);
  }
  return to;
}

/// The distance of neighbouring numbers of T at `magnitude`.
template <class T>
Exact ulp(Exact magnitude) {
  const int digits = std::is_same_v<T, bfloat16> ? 8 : std::numeric_limits<accumulator_t<T>>::digits;
  const int smallest = std::is_same_v<T, double> ? -1022 : -126;
  const int exponent = magnitude > 0 ? std::max(std::ilogb(magnitude), smallest) : smallest;
  return std::ldexp(Exact(1), exponent - digits + 1);
}

template <class T>
Exact widen(T value) {
  if constexpr (std::is_same_v<T, bfloat16>)
    return Exact(float(value));
  else
    return Exact(value);
}

/// Expects |got - exact| <= factor * (the plain implementation's largest error) + 2 ulp of `largest_term`,
/// the largest number that was added up on the way (that of the exact results when not given).
template <class T>
void expect_within(const std::vector<T>& got, const std::vector<T>& plain, const std::vector<Exact>& exact,
                   double factor, const std::string& what, Exact largest_term = 0) {
  ASSERT_EQ(got.size(), exact.size()) << what;
  ASSERT_EQ(plain.size(), exact.size()) << what;
  Exact plain_error = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    plain_error = std::max(plain_error, std::abs(widen(plain[i]) - exact[i]));
    largest_term = std::max(largest_term, std::abs(exact[i]));
  }
  const Exact bound = Exact(factor) * plain_error + 2 * ulp<T>(largest_term);
  for (size_t i = 0; i < exact.size(); ++i) {
    ASSERT_LE(std::abs(widen(got[i]) - exact[i]), bound)  // a NaN fails too
        << what << ": element " << i << " is " << widen(got[i]) << ", exact " << exact[i] << ", plain error "
        << plain_error;
  }
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

/// Calls run() with 1, 2 and 4 threads; each must return the same bits.
template <class Run>
void expect_same_for_all_thread_counts(const Run& run) {
  const int before = thread_count();
  set_thread_count(1);
  const auto expected = run();
  for (int threads : {2, 4}) {
    set_thread_count(threads);
    EXPECT_TRUE(same_bits(run(), expected)) << threads << " threads";
  }
  set_thread_count(before);
}

/// Appends the elements of `values` as numbers, so that several outputs can be compared as one.
template <class To, class T>
void append(std::vector<To>& to, const std::vector<T>& values) {
  for (const T& value : values) to.push_back(To(widen(value)));
}

/// Expects `gradient` to match central differences of loss(x) in double, at every element.
template <class Loss>
void expect_gradient(const Loss& loss, std::vector<double> x, const std::vector<double>& gradient,
                     const std::string& what) {
  ASSERT_EQ(x.size(), gradient.size()) << what;
  const double step = 1e-5;
  for (size_t i = 0; i < x.size(); ++i) {
    const double middle = x[i];
    x[i] = middle + step;
    const double above = loss(x);
    x[i] = middle - step;
    const double below = loss(x);
    x[i] = middle;
    const double difference = (above - below) / (2 * step);
    // Truncation is of order step², rounding of order 1e-16 / step.
    ASSERT_NEAR(gradient[i], difference, 1e-8 * (1 + std::abs(difference))) << what << ": element " << i;
  }
}

}  // namespace heed::testing
