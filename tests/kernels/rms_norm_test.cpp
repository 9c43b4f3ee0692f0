#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include <heed/kernels/dropout.h>
#include <heed/kernels/rms_norm.h>

#include "plain_bound.h"

namespace heed {
namespace {

using namespace heed::testing;

constexpr double kEps = 1e-5;
constexpr int64_t kWidths[] = {1, 2, 7, 31, 32, 33, 128, 300, 1025};

/// A case of rows x cols with all its inputs.
template <class T>
struct Case {
  int64_t rows, cols, n = rows * cols;
  Dropout dropout;
  std::vector<T> residual = random_values<T>(n, 1), x = random_values<T>(n, 2),
                 weight = random_values<T>(cols, 3), gy = random_values<T>(n, 4),
                 gsum = random_values<T>(n, 5);

  Case(int64_t r, int64_t c, double rate) : rows(r), cols(c), dropout(make_dropout(rate, {5, nullptr, 7})) {}
};

template <class T>
struct Result {
  std::vector<T> sum, y, gresidual, gx;
  std::vector<accumulator_t<T>> rstd, gweight;
};

template <class T>
Result<T> run(const Case<T>& in) {
  using A = accumulator_t<T>;
  Result<T> out{poisoned<T>(in.n), poisoned<T>(in.n),    poisoned<T>(in.n),
                poisoned<T>(in.n), poisoned<A>(in.rows), poisoned<A>(in.cols)};
  cpu::rms_norm_forward<T>({in.residual.data(), in.x.data(), in.weight.data(), in.dropout, out.sum.data(),
                            out.y.data(), out.rstd.data(), in.rows, in.cols, kEps});
  cpu::rms_norm_backward<T>({in.gy.data(), in.gsum.data(), out.sum.data(), in.weight.data(), out.rstd.data(),
                             in.dropout, out.gresidual.data(), out.gx.data(), out.gweight.data(), false,
                             false, false, in.rows, in.cols});
  return out;
}

template <class T>
class RMSNormTest : public ::testing::Test {};
TYPED_TEST_SUITE(RMSNormTest, FloatingTypes);

TYPED_TEST(RMSNormTest, TheSumIsThatOfDropoutAndItsNormIsTheSameAlone) {
  using T = TypeParam;
  using A = accumulator_t<T>;
  for (double rate : {0.0, 0.3})
    for (int64_t cols : kWidths)
      for (int64_t rows : {0, 1, 5}) {
        const Case<T> in(rows, cols, rate);
        const Result<T> got = run(in);
        auto sum = poisoned<T>(in.n), y = poisoned<T>(in.n);
        auto rstd = poisoned<A>(rows);
        cpu::dropout_forward<T>({in.x.data(), in.residual.data(), sum.data(), in.n, in.dropout});
        cpu::rms_norm_forward<T>({nullptr, sum.data(), in.weight.data(), Dropout(), nullptr, y.data(),
                                  rstd.data(), rows, cols, kEps});
        EXPECT_TRUE(same_bits(got.sum, sum)) << cols;
        EXPECT_TRUE(same_bits(got.y, y)) << cols;
        EXPECT_TRUE(same_bits(got.rstd, rstd)) << cols;
      }
}

TYPED_TEST(RMSNormTest, SumMayTakeThePlaceOfAnInput) {
  using T = TypeParam;
  const Case<T> in(5, 33, 0.3);
  const Result<T> expected = run(in);
  for (bool over_x : {false, true}) {
    auto residual = in.residual, x = in.x, y = poisoned<T>(in.n);
    T* sum = over_x ? x.data() : residual.data();
    cpu::rms_norm_forward<T>({residual.data(), x.data(), in.weight.data(), in.dropout, sum, y.data(), nullptr,
                              in.rows, in.cols, kEps});
    EXPECT_TRUE(same_bits(y, expected.y));
    EXPECT_TRUE(same_bits(over_x ? x : residual, expected.sum));
  }
  auto gsum = in.gsum;
  cpu::rms_norm_backward<T>({in.gy.data(), gsum.data(), expected.sum.data(), in.weight.data(),
                             expected.rstd.data(), in.dropout, gsum.data(), nullptr, nullptr, false, false,
                             false, in.rows, in.cols});
  EXPECT_TRUE(same_bits(gsum, expected.gresidual));
}

TYPED_TEST(RMSNormTest, WantedGradientsOnlyAndAccumulation) {
  using T = TypeParam;
  using A = accumulator_t<T>;
  const Case<T> in(70, 33, 0.3);
  const Result<T> all = run(in);
  for (int wanted = 0; wanted < 8; ++wanted) {
    auto gresidual = poisoned<T>(in.n), gx = gresidual;
    auto gweight = poisoned<A>(in.cols);
    cpu::rms_norm_backward<T>({in.gy.data(), in.gsum.data(), all.sum.data(), in.weight.data(),
                               all.rstd.data(), in.dropout, wanted & 1 ? gresidual.data() : nullptr,
                               wanted & 2 ? gx.data() : nullptr, wanted & 4 ? gweight.data() : nullptr, false,
                               false, false, in.rows, in.cols});
    EXPECT_TRUE(same_bits(gresidual, wanted & 1 ? all.gresidual : poisoned<T>(in.n))) << wanted;
    EXPECT_TRUE(same_bits(gx, wanted & 2 ? all.gx : poisoned<T>(in.n))) << wanted;
    EXPECT_TRUE(same_bits(gweight, wanted & 4 ? all.gweight : poisoned<A>(in.cols))) << wanted;
  }
  const auto old = random_values<T>(in.n, 7);
  auto gresidual = old, gx = old;
  auto gweight = random_values<A>(in.cols, 8);
  const auto old_weight = gweight;
  cpu::rms_norm_backward<T>({in.gy.data(), in.gsum.data(), all.sum.data(), in.weight.data(), all.rstd.data(),
                             in.dropout, gresidual.data(), gx.data(), gweight.data(), true, true, true,
                             in.rows, in.cols});
  const auto expect_added = [&](T got, T part, T before) {  // `part` was rounded once more
    const Exact sum = widen(part) + widen(before);
    ASSERT_LE(std::abs(widen(got) - sum), ulp<T>(std::abs(widen(part))) + ulp<T>(std::abs(sum)));
  };
  for (int64_t i = 0; i < in.n; ++i) {
    expect_added(gresidual[i], all.gresidual[i], old[i]);
    expect_added(gx[i], all.gx[i], old[i]);
  }
  for (int64_t c = 0; c < in.cols; ++c) EXPECT_EQ(gweight[c], old_weight[c] + all.gweight[c]);
}

// Rows whose squares overflow, between others.
TYPED_TEST(RMSNormTest, LargeRows) {
  using T = TypeParam;
  using A = accumulator_t<T>;
  const A root = std::sqrt(std::numeric_limits<A>::max());
  for (int64_t cols : {2, 33, 300})
    for (A level : {root, 1000 * root, std::numeric_limits<A>::max() / 8}) {
      std::vector<T> x = random_values<T>(3 * cols, 1), y = poisoned<T>(3 * cols);
      for (int64_t c = 0; c < cols; ++c) x[cols + c] = T(A(x[cols + c]) * level);
      cpu::rms_norm_forward<T>(
          {nullptr, x.data(), nullptr, Dropout(), nullptr, y.data(), nullptr, 3, cols, kEps});
      for (int64_t r = 0; r < 3; ++r) {
        Exact squares = 0;
        for (int64_t c = 0; c < cols; ++c) squares += widen(x[r * cols + c]) * widen(x[r * cols + c]);
        for (int64_t c = 0; c < cols; ++c) {
          const Exact exact = widen(x[r * cols + c]) / std::sqrt(squares / cols + kEps);
          ASSERT_LE(std::abs(widen(y[r * cols + c]) - exact), 4 * ulp<T>(Exact(4))) << level;
        }
      }
    }
}

TYPED_TEST(RMSNormTest, NoThreadCountChangesABit) {
  const Case<TypeParam> in(333, 129, 0.3);
  expect_same_for_all_thread_counts([&] {
    const auto got = run(in);
    std::vector<double> all;
    append(all, got.y);
    append(all, got.sum);
    append(all, got.gresidual);
    append(all, got.gx);
    append(all, got.gweight);
    return all;
  });
}

// More than the caches hold: results are written by non-temporal stores, to the same bits.
TEST(RMSNormLarge, SameBitsAsInParts) {
  const int64_t rows = 6000, cols = 1024, part = 500;
  const std::vector<float> x = random_values<float>(rows * cols, 1);
  std::vector<float> storage(rows * cols + 16), y(part * cols);
  float* const whole = storage.data() + (64 - reinterpret_cast<uintptr_t>(storage.data()) % 64) % 64 / 4;
  cpu::rms_norm_forward<float>(
      {nullptr, x.data(), nullptr, Dropout(), nullptr, whole, nullptr, rows, cols, kEps});
  for (int64_t first = 0; first < rows; first += part) {
    cpu::rms_norm_forward<float>(
        {nullptr, x.data() + first * cols, nullptr, Dropout(), nullptr, y.data(), nullptr, part, cols, kEps});
    ASSERT_TRUE(std::equal(y.begin(), y.end(), whole + first * cols)) << first;
  }
}

}  // namespace
}  // namespace heed
