#include <gtest/gtest.h>

#include <heed/kernels/dropout.h>

#include "layer_norm_reference.h"

namespace heed {
namespace {

using namespace heed::testing;

const PhiloxState kRng{0x0123456789abcdefu, nullptr, 0x300000005u};

template <class T>
class DropoutTest : public ::testing::Test {};
TYPED_TEST_SUITE(DropoutTest, FloatingTypes);

template <class T>
std::vector<T> forward(const std::vector<T>& x, const std::vector<T>& residual, const Dropout& dropout) {
  auto y = poisoned<T>(x.size());
  cpu::dropout_forward<T>({x.data(), or_null(residual), y.data(), static_cast<int64_t>(x.size()), dropout});
  return y;
}

template <class T>
std::vector<T> backward(const std::vector<T>& gy, const Dropout& dropout) {
  auto gx = poisoned<T>(gy.size());
  cpu::dropout_backward<T>({gy.data(), gx.data(), static_cast<int64_t>(gy.size()), dropout, false});
  return gx;
}

// One multiplication and one addition in the accumulator's type leave no room for another answer.
TYPED_TEST(DropoutTest, EveryBitIsThatOfTheContract) {
  using T = TypeParam;
  using A = accumulator_t<T>;
  for (double rate : {0.0, 0.1, 0.5, 0.99999}) {
    const Dropout dropout = make_dropout(rate, kRng);
    for (int64_t n : kSizes) {
      const auto x = random_values<T>(n, 1), residual = random_values<T>(n, 2), old = random_values<T>(n, 3);
      std::vector<T> y(n), sum(n), accumulated(n);
      for (int64_t i = 0; i < n; ++i) {
        const A value = dropped(dropout, i, A(x[i]));
        y[i] = T(value);
        sum[i] = T(A(residual[i]) + value);
        accumulated[i] = T(A(old[i]) + value);
      }
      EXPECT_TRUE(same_bits(forward(x, {}, dropout), y)) << rate << ", " << n;
      EXPECT_TRUE(same_bits(forward(x, residual, dropout), sum)) << rate << ", " << n;
      EXPECT_TRUE(same_bits(backward(x, dropout), y)) << rate << ", " << n;
      auto gx = old;
      cpu::dropout_backward<T>({x.data(), gx.data(), n, dropout, true});
      EXPECT_TRUE(same_bits(gx, accumulated)) << rate << ", " << n;

      auto in_place = x;
      cpu::dropout_forward<T>({in_place.data(), nullptr, in_place.data(), n, dropout});
      EXPECT_TRUE(same_bits(in_place, y));
      in_place = residual;
      cpu::dropout_forward<T>({x.data(), in_place.data(), in_place.data(), n, dropout});
      EXPECT_TRUE(same_bits(in_place, sum));
      in_place = x;
      cpu::dropout_backward<T>({in_place.data(), in_place.data(), n, dropout, false});
      EXPECT_TRUE(same_bits(in_place, y));
    }
  }
}

// A dropped NaN or infinity is dropped like any number.
TYPED_TEST(DropoutTest, DroppedElementsAreZeroWhateverTheyWere) {
  using T = TypeParam;
  const Dropout dropout = make_dropout(0.5, kRng);
  const auto y = forward(std::vector<T>(1000, T(NAN)), {}, dropout);
  for (int64_t i = 0; i < 1000; ++i) ASSERT_EQ(std::isnan(widen(y[i])), kept(dropout, i)) << i;
}

TYPED_TEST(DropoutTest, KeepsTheRightShare) {
  const int64_t n = 1 << 18;
  for (double rate : {0.1, 0.5, 0.9}) {
    int64_t zeros = 0;
    for (TypeParam v : forward(std::vector<TypeParam>(n, TypeParam(1.0f)), {}, make_dropout(rate, kRng)))
      zeros += widen(v) == 0;
    EXPECT_NEAR(zeros, n * rate, 6 * std::sqrt(n * rate * (1 - rate)) + n / 65536.0) << rate;
  }
}

TYPED_TEST(DropoutTest, NoThreadCountChangesABit) {
  const auto x = random_values<TypeParam>(100003, 1);
  const Dropout dropout = make_dropout(0.3, kRng);
  expect_same_for_all_thread_counts([&] { return forward(x, x, dropout); });
  expect_same_for_all_thread_counts([&] { return backward(x, dropout); });
}

TEST(DropoutGradient, MatchesCentralDifferences) {
  const Dropout dropout = make_dropout(0.4, kRng);
  const auto x = random_values<double>(33, 1), gy = random_values<double>(33, 2);
  const auto loss = [&](const std::vector<double>& at) {
    const auto y = forward(at, gy, dropout);
    double sum = 0;
    for (size_t i = 0; i < y.size(); ++i) sum += y[i] * gy[i];
    return sum;
  };
  expect_gradient(loss, x, backward(gy, dropout), "dropout");
}

TEST(Dropout, NothingToDo) { EXPECT_TRUE(forward<float>({}, {}, make_dropout(0.5, kRng)).empty()); }

}  // namespace
}  // namespace heed
