// How far a kernel may be from the exact result: a multiple of what a plain implementation in the same
// element type loses, plus 2 ulp of the largest term.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include <heed/core/base/dtype.h>

namespace heed::test {

/// The type in which references for T are computed: one step more exact than T.
template <class T>
using reference_t = std::conditional_t<std::is_same_v<T, double>, long double, double>;

/// The spacing of T just above 1.
template <class T>
double epsilon() {
  if constexpr (std::is_same_v<T, bfloat16>)
    return 1.0 / 128;
  else
    return std::numeric_limits<T>::epsilon();
}

template <class T>
T quiet_nan() {
  return T(std::numeric_limits<float>::quiet_NaN());
}

/// `count` normal values times `scale`, the same for the same seed.
template <class T>
std::vector<T> random_values(int64_t count, uint32_t seed, double scale = 1) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<T> values(count);
  for (T& value : values) value = T(static_cast<float>(scale) * normal(engine));
  return values;
}

template <class V>
double largest(const V& values) {
  double most = 0;
  for (const auto& value : values) most = std::max(most, std::fabs(static_cast<double>(value)));
  return most;
}

/// Expects every |got - reference| <= factor * max |plain - reference| + 2 ulp of `largest_term` (by default
/// the largest reference value).
template <class T, class G, class R, class P>
void expect_within(const std::vector<G>& got, const std::vector<R>& reference, const std::vector<P>& plain,
                   double factor, const char* what, double largest_term = -1) {
  ASSERT_EQ(got.size(), reference.size()) << what;
  ASSERT_EQ(plain.size(), reference.size()) << what;
  double lost = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double difference = std::fabs(static_cast<double>(R(plain[i]) - reference[i]));
    if (difference > lost) lost = difference;  // -inf - -inf and the like is NaN and adds nothing
  }
  const double term = largest_term >= 0 ? largest_term : largest(reference);
  const double bound = factor * lost + 2 * epsilon<T>() * term;
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isinf(static_cast<double>(reference[i]))) {
      ASSERT_EQ(static_cast<double>(got[i]), static_cast<double>(reference[i])) << what << " at " << i;
    } else {
      ASSERT_LE(std::fabs(static_cast<double>(R(got[i]) - reference[i])), bound)
          << what << " at " << i << ": got " << static_cast<double>(got[i]) << ", exact "
          << static_cast<double>(reference[i]);
    }
  }
}

using FloatingTypes = ::testing::Types<float, bfloat16, double>;

}  // namespace heed::test
