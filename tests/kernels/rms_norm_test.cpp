#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include <heed/kernels/dropout.h>
#include <heed/kernels/norm.h>

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
Result<T> poisoned_result(const Case<T>& in) {
  using A = accumulator_t<T>;
  return {poisoned<T>(in.n), poisoned<T>(in.n),    poisoned<T>(in.n),
          poisoned<T>(in.n), poisoned<A>(in.rows), poisoned<A>(in.cols)};
}

template <class T>
kernels::NormForward<T> forward_args(const Case<T>& in, Result<T>& out) {
  kernels::NormForward<T> args{};
  args.kind = NormKind::rms;
  args.residual = in.residual.data();
  args.x = in.x.data();
  args.weight = in.weight.data();
  args.dropout = in.dropout;
  args.sum = out.sum.data();
  args.y = out.y.data();
  args.rstd = out.rstd.data();
  args.rows = in.rows;
  args.cols = in.cols;
  args.eps = kEps;
  return args;
}

/// The gradients of a forward that left `saved`.
template <class T>
kernels::NormBackward<T> backward_args(const Case<T>& in, const Result<T>& saved, Result<T>& out) {
  kernels::NormBackward<T> args{};
  args.kind = NormKind::rms;
  args.residual = true;
  args.gy = in.gy.data();
  args.gsum = in.gsum.data();
  args.sum = saved.sum.data();
  args.weight = in.weight.data();
  args.rstd = saved.rstd.data();
  args.dropout = in.dropout;
  args.gresidual = out.gresidual.data();
  args.gx = out.gx.data();
  args.gweight = out.gweight.data();
  args.rows = in.rows;
  args.cols = in.cols;
  return args;
}

template <class T>
Result<T> run(const Case<T>& in, uint8_t* keep = nullptr) {
  Result<T> out = poisoned_result(in);
  auto forward = forward_args(in, out);
  auto backward = backward_args(in, out, out);
  forward.keep_mask = keep;
  backward.keep_mask = keep;
  cpu::norm_forward(forward);
  cpu::norm_backward(backward);
  return out;
}

/// y of rows without a residual and weight.
template <class T>
void normalize(const T* x, T* y, int64_t rows, int64_t cols) {
  kernels::NormForward<T> args{};
  args.kind = NormKind::rms;
  args.x = x;
  args.y = y;
  args.rows = rows;
  args.cols = cols;
  args.eps = kEps;
  cpu::norm_forward(args);
}

template <class T>
class RMSNormTest : public ::testing::Test {};
TYPED_TEST_SUITE(RMSNormTest, FloatingTypes);

TYPED_TEST(RMSNormTest, TheSumIsThatOfDropoutAndItsNormIsTheSameAlone) {
  using T = TypeParam;
  for (double rate : {0.0, 0.3})
    for (int64_t cols : kWidths)
      for (int64_t rows : {0, 1, 5}) {
        const Case<T> in(rows, cols, rate);
        const Result<T> got = run(in);
        auto sum = poisoned<T>(in.n);
        cpu::dropout_forward<T>({in.x.data(), in.residual.data(), sum.data(), in.n, in.dropout});
        Result<T> alone = poisoned_result(in);
        auto args = forward_args(in, alone);
        args.x = sum.data();
        args.residual = nullptr;
        args.dropout = Dropout();
        args.sum = nullptr;
        cpu::norm_forward(args);
        EXPECT_TRUE(same_bits(got.sum, sum)) << cols;
        EXPECT_TRUE(same_bits(got.y, alone.y)) << cols;
        EXPECT_TRUE(same_bits(got.rstd, alone.rstd)) << cols;
      }
}

TYPED_TEST(RMSNormTest, BackwardTakesTheDropoutThatTheForwardKept) {
  using T = TypeParam;
  for (int64_t cols : kWidths) {
    const Case<T> in(70, cols, 0.3);
    std::vector<uint8_t> mask(static_cast<size_t>(cpu::norm_keep_mask_size(in.rows, cols, in.dropout)));
    const Result<T> drawn = run(in), taken = run(in, mask.data());
    EXPECT_TRUE(same_bits(taken.sum, drawn.sum)) << cols;
    EXPECT_TRUE(same_bits(taken.gresidual, drawn.gresidual)) << cols;
    EXPECT_TRUE(same_bits(taken.gx, drawn.gx)) << cols;
  }
}

TYPED_TEST(RMSNormTest, SumMayTakeThePlaceOfAnInput) {
  using T = TypeParam;
  const Case<T> in(5, 33, 0.3);
  const Result<T> expected = run(in);
  for (bool over_x : {false, true}) {
    Case<T> overwritten = in;
    auto& place = over_x ? overwritten.x : overwritten.residual;
    Result<T> out = poisoned_result(in);
    auto args = forward_args(overwritten, out);
    args.sum = place.data();
    args.rstd = nullptr;
    cpu::norm_forward(args);
    EXPECT_TRUE(same_bits(out.y, expected.y));
    EXPECT_TRUE(same_bits(place, expected.sum));
  }
  auto gsum = in.gsum;
  Result<T> none;
  auto args = backward_args(in, expected, none);
  args.gsum = args.gresidual = gsum.data();
  args.gx = nullptr;
  args.gweight = nullptr;
  cpu::norm_backward(args);
  EXPECT_TRUE(same_bits(gsum, expected.gresidual));
}

TYPED_TEST(RMSNormTest, WantedGradientsOnlyAndAccumulation) {
  using T = TypeParam;
  using A = accumulator_t<T>;
  const Case<T> in(70, 33, 0.3);
  const Result<T> all = run(in);
  for (int wanted = 0; wanted < 8; ++wanted) {
    Result<T> out = poisoned_result(in);
    auto args = backward_args(in, all, out);
    if (!(wanted & 1)) args.gresidual = nullptr;
    if (!(wanted & 2)) args.gx = nullptr;
    if (!(wanted & 4)) args.gweight = nullptr;
    cpu::norm_backward(args);
    EXPECT_TRUE(same_bits(out.gresidual, wanted & 1 ? all.gresidual : poisoned<T>(in.n))) << wanted;
    EXPECT_TRUE(same_bits(out.gx, wanted & 2 ? all.gx : poisoned<T>(in.n))) << wanted;
    EXPECT_TRUE(same_bits(out.gweight, wanted & 4 ? all.gweight : poisoned<A>(in.cols))) << wanted;
  }
  const auto old = random_values<T>(in.n, 7);
  const auto old_weight = random_values<A>(in.cols, 8);
  Result<T> out{{}, {}, old, old, {}, old_weight};
  auto args = backward_args(in, all, out);
  args.accumulate_residual = args.accumulate_x = args.accumulate_weight = true;
  cpu::norm_backward(args);
  const auto expect_added = [&](T got, T part, T before) {  // `part` was rounded once more
    const Exact sum = widen(part) + widen(before);
    ASSERT_LE(std::abs(widen(got) - sum), ulp<T>(std::abs(widen(part))) + ulp<T>(std::abs(sum)));
  };
  for (int64_t i = 0; i < in.n; ++i) {
    expect_added(out.gresidual[i], all.gresidual[i], old[i]);
    expect_added(out.gx[i], all.gx[i], old[i]);
  }
  for (int64_t c = 0; c < in.cols; ++c) EXPECT_EQ(out.gweight[c], old_weight[c] + all.gweight[c]);
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
      normalize(x.data(), y.data(), 3, cols);
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
  normalize(x.data(), whole, rows, cols);
  for (int64_t first = 0; first < rows; first += part) {
    normalize(x.data() + first * cols, y.data(), part, cols);
    ASSERT_TRUE(std::equal(y.begin(), y.end(), whole + first * cols)) << first;
  }
}

}  // namespace
}  // namespace heed
