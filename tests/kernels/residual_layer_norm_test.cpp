#include <gtest/gtest.h>

#include <heed/kernels/dropout.h>
#include <heed/kernels/norm.h>

#include "layer_norm_reference.h"

namespace heed {
namespace {

using namespace heed::testing;

constexpr double kEps = 1e-5;
const PhiloxState kRng{0x0123456789abcdefu, nullptr, 0x300000005u};

/// A case of rows x cols with all its inputs.
template <class T>
struct Case {
  using A = accumulator_t<T>;
  int64_t rows, cols, n = rows * cols;
  Dropout dropout;
  std::vector<T> residual = random_values<T>(n, 1), x = random_values<T>(n, 2),
                 weight = random_values<T>(cols, 3), bias = random_values<T>(cols, 4),
                 gy = random_values<T>(n, 5), gsum = random_values<T>(n, 6);

  Case(int64_t r, int64_t c, double rate) : rows(r), cols(c), dropout(make_dropout(rate, kRng)) {}
};

template <class T>
struct Forward {
  std::vector<T> sum, y;
  std::vector<accumulator_t<T>> mean, rstd;
};

template <class T>
kernels::NormForward<T> forward_args(const Case<T>& in, Forward<T>& out) {
  auto args = layer_norm_args(in.x.data(), or_null(in.weight), or_null(in.bias), in.rows, in.cols, kEps);
  args.residual = in.residual.data();
  args.dropout = in.dropout;
  args.sum = out.sum.data();
  args.y = out.y.data();
  args.mean = out.mean.data();
  args.rstd = out.rstd.data();
  return args;
}

/// Layer norm of `out.sum`.
template <class T>
void normalize_sum(const Case<T>& in, Forward<T>& out) {
  auto args = forward_args(in, out);
  args.x = out.sum.data();
  args.residual = nullptr;
  args.dropout = Dropout();
  args.sum = nullptr;
  cpu::norm_forward(args);
}

template <class T>
Forward<T> forward(const Case<T>& in, uint8_t* keep = nullptr) {
  using A = accumulator_t<T>;
  Forward<T> out{poisoned<T>(in.n), poisoned<T>(in.n), poisoned<A>(in.rows), poisoned<A>(in.rows)};
  auto args = forward_args(in, out);
  args.keep_mask = keep;
  cpu::norm_forward(args);
  return out;
}

template <class T>
struct Backward {
  std::vector<T> gresidual, gx;
  std::vector<accumulator_t<T>> gweight, gbias;
};

template <class T>
kernels::NormBackward<T> backward_args(const Case<T>& in, const Forward<T>& saved, Backward<T>& out) {
  kernels::NormBackward<T> args{};
  args.residual = true;
  args.gy = in.gy.data();
  args.gsum = or_null(in.gsum);
  args.sum = saved.sum.data();
  args.weight = or_null(in.weight);
  args.mean = saved.mean.data();
  args.rstd = saved.rstd.data();
  args.dropout = in.dropout;
  args.gresidual = out.gresidual.data();
  args.gx = out.gx.data();
  args.gweight = out.gweight.data();
  args.gbias = out.gbias.data();
  args.rows = in.rows;
  args.cols = in.cols;
  return args;
}

template <class T>
Backward<T> poisoned_backward(const Case<T>& in) {
  using A = accumulator_t<T>;
  return {poisoned<T>(in.n), poisoned<T>(in.n), poisoned<A>(in.cols), poisoned<A>(in.cols)};
}

template <class T>
Backward<T> backward(const Case<T>& in, const Forward<T>& saved, const uint8_t* kept = nullptr) {
  Backward<T> out = poisoned_backward(in);
  auto args = backward_args(in, saved, out);
  args.keep_mask = kept;
  cpu::norm_backward(args);
  return out;
}

template <class T>
class ResidualLayerNormTest : public ::testing::Test {};
TYPED_TEST_SUITE(ResidualLayerNormTest, FloatingTypes);

// Rows of 7, 31, 33 … columns begin inside a group of eight decisions.
TYPED_TEST(ResidualLayerNormTest, ForwardIsTheCompositionBitForBit) {
  using T = TypeParam;
  using A = accumulator_t<T>;
  for (double rate : {0.0, 0.3}) {
    for (int64_t cols : kSizes) {
      for (int64_t rows : {0, 1, 5}) {
        const Case<T> in(rows, cols, rate);
        const auto got = forward(in);
        Forward<T> composed{poisoned<T>(in.n), poisoned<T>(in.n), poisoned<A>(rows), poisoned<A>(rows)};
        cpu::dropout_forward<T>({in.x.data(), in.residual.data(), composed.sum.data(), in.n, in.dropout});
        normalize_sum(in, composed);
        EXPECT_TRUE(same_bits(got.sum, composed.sum)) << cols;
        for (int64_t i = 0; i < in.n; ++i) {
          const A expected = A(in.residual[i]) + dropped(in.dropout, i, A(in.x[i]));
          ASSERT_EQ(widen(got.sum[i]), widen(T(expected))) << cols << ", element " << i;
        }
        const auto plain = plain_layer_norm<T>(convert<A>(got.sum), convert<A>(in.weight),
                                               convert<A>(in.bias), rows, cols, kEps);
        const auto exact = plain_layer_norm<T>(convert<Exact>(got.sum), convert<Exact>(in.weight),
                                               convert<Exact>(in.bias), rows, cols, kEps);
        expect_within(got.y, convert<T>(plain.y), exact.y, 2, "y");
        expect_within(got.mean, plain.mean, exact.mean, 2, "mean", 1);
        expect_within(got.rstd, plain.rstd, exact.rstd, 2, "rstd");
      }
    }
  }
}

TYPED_TEST(ResidualLayerNormTest, TheSumIsNormalisedAgainToTheSameBits) {
  using T = TypeParam;
  for (int64_t cols : kSizes) {
    for (int64_t rows : {0, 1, 5, 70}) {
      const Case<T> in(rows, cols, 0.3);
      const auto first = forward(in);
      auto y = poisoned<T>(in.n);
      auto args = layer_norm_args(first.sum.data(), or_null(in.weight), or_null(in.bias), rows, cols, kEps);
      args.again = true;
      args.y = y.data();
      cpu::norm_forward(args);
      EXPECT_TRUE(same_bits(y, first.y)) << rows << " x " << cols;
    }
  }
}

// Rows whose squares overflow, between others: what layer norm makes of the sums, and its gradients.
TYPED_TEST(ResidualLayerNormTest, LargeRowsAreThoseOfLayerNorm) {
  using T = TypeParam;
  using A = accumulator_t<T>;
  const A root = std::sqrt(std::numeric_limits<A>::max());
  for (double rate : {0.0, 0.3}) {
    for (int64_t cols : {2, 7, 33, 300, 1100}) {
      for (A level : {root, 1000 * root, std::numeric_limits<A>::max() / 8}) {
        const int64_t rows = 6;
        Case<T> in(rows, cols, rate);
        for (int64_t i = 0; i < in.n; ++i)
          if (i / cols % 3 == 1) in.residual[i] = T(A(in.residual[i]) * level);
        const auto got = forward(in);
        Forward<T> norm{got.sum, poisoned<T>(in.n), poisoned<A>(rows), poisoned<A>(rows)};
        normalize_sum(in, norm);
        const auto exact = plain_layer_norm<T>(convert<Exact>(got.sum), convert<Exact>(in.weight),
                                               convert<Exact>(in.bias), rows, cols, kEps);
        expect_within(got.y, norm.y, exact.y, 2, "y", 8);
        Backward<T> alone = poisoned_backward(in);
        auto alone_args = backward_args(in, got, alone);
        alone_args.residual = false;
        alone_args.gsum = nullptr;
        alone_args.gresidual = nullptr;
        alone_args.dropout = Dropout();
        cpu::norm_backward(alone_args);
        const std::vector<T>& gx = alone.gx;
        for (const bool accumulates : {false, true}) {
          auto gsum = in.gsum;  // which is gresidual too
          auto dropped_gx = accumulates ? std::vector<T>(in.n, T(A(1))) : poisoned<T>(in.n);
          Backward<T> out = poisoned_backward(in);
          auto args = backward_args(in, got, out);
          args.gsum = args.gresidual = gsum.data();
          args.gx = dropped_gx.data();
          args.accumulate_x = accumulates;
          cpu::norm_backward(args);
          EXPECT_TRUE(same_bits(out.gweight, alone.gweight) && same_bits(out.gbias, alone.gbias));
          for (int64_t i = 0; i < in.n; ++i) {
            const Exact sum = widen(in.gsum[i]) + widen(gx[i]),
                        exact_gx = dropped(in.dropout, i, sum) + (accumulates ? 1 : 0);
            const Exact most = 4 + std::abs(widen(gx[i]));
            ASSERT_NEAR(widen(gsum[i]), sum, 2 * ulp<T>(most)) << i;
            ASSERT_NEAR(widen(dropped_gx[i]), exact_gx, 4 * ulp<T>(most)) << i;
          }
        }
      }
    }
  }
}

TYPED_TEST(ResidualLayerNormTest, BackwardAgainstThePlainLoop) {
  using T = TypeParam;
  using A = accumulator_t<T>;
  for (double rate : {0.0, 0.3}) {
    for (int64_t cols : kSizes) {
      for (int64_t rows : {1, 5, 70}) {
        const auto what = std::to_string(rows) + " x " + std::to_string(cols);
        Case<T> in(rows, cols, rate);
        if (rows == 5) in.gsum.clear();
        const auto saved = forward(in);
        const auto got = backward(in, saved);
        const auto reference = [&](auto w) {
          using W = decltype(w);
          const auto stats = plain_layer_norm<T>(convert<W>(saved.sum), convert<W>(in.weight),
                                                 convert<W>(in.bias), rows, cols, kEps);
          auto out = plain_layer_norm_backward(convert<W>(in.gy), convert<W>(saved.sum),
                                               convert<W>(in.weight), stats.mean, stats.rstd, rows, cols);
          std::vector<W> gx(in.n), gresidual(in.n);
          for (int64_t i = 0; i < in.n; ++i) {
            const W g = in.gsum.empty() ? out.gx[i] : W(widen(in.gsum[i])) + out.gx[i];
            gresidual[i] = stored<T>(g);
            gx[i] = stored<T>(dropped(in.dropout, i, g));
          }
          return std::make_tuple(gresidual, gx, out.gweight, out.gbias, out.largest_sum, stats.rstd);
        };
        const auto plain = reference(A());
        const auto exact = reference(Exact());
        const Exact largest_sum = std::get<4>(exact);
        const auto& rstd = std::get<5>(exact);
        const Exact largest = 4 * *std::max_element(rstd.begin(), rstd.end());
        expect_within(got.gresidual, convert<T>(std::get<0>(plain)), std::get<0>(exact), 3,
                      "gresidual " + what, largest);
        expect_within(got.gx, convert<T>(std::get<1>(plain)), std::get<1>(exact), 3, "gx " + what, largest);
        expect_within(got.gweight, std::get<2>(plain), std::get<2>(exact), 3, "gweight " + what, largest_sum);
        expect_within(got.gbias, std::get<3>(plain), std::get<3>(exact), 3, "gbias " + what, largest_sum);
        for (int64_t i = 0; i < in.n; ++i) {
          ASSERT_TRUE(kept(in.dropout, i) || widen(got.gx[i]) == 0) << what << ", element " << i;
        }
      }
    }
  }
}

TYPED_TEST(ResidualLayerNormTest, BackwardTakesTheDropoutThatTheForwardKept) {
  using T = TypeParam;
  for (int64_t cols : kSizes) {
    const Case<T> in(70, cols, 0.3);
    std::vector<uint8_t> kept(static_cast<size_t>(cpu::norm_keep_mask_size(in.rows, cols, in.dropout)));
    const auto saved = forward(in), keeping = forward(in, kept.data());
    EXPECT_TRUE(same_bits(keeping.sum, saved.sum)) << cols;
    const auto drawn = backward(in, saved), taken = backward(in, saved, kept.data());
    EXPECT_TRUE(same_bits(taken.gresidual, drawn.gresidual)) << cols;
    EXPECT_TRUE(same_bits(taken.gx, drawn.gx)) << cols;
    EXPECT_TRUE(same_bits(taken.gweight, drawn.gweight)) << cols;
  }
}

TYPED_TEST(ResidualLayerNormTest, SumMayTakeThePlaceOfAnInput) {
  using T = TypeParam;
  using A = accumulator_t<T>;
  const Case<T> in(5, 33, 0.3);
  const auto expected = forward(in);
  for (bool over_x : {false, true}) {
    Case<T> overwritten = in;
    auto& place = over_x ? overwritten.x : overwritten.residual;
    Forward<T> out{{}, poisoned<T>(in.n), std::vector<A>(5), std::vector<A>(5)};
    auto args = forward_args(overwritten, out);
    args.sum = place.data();
    cpu::norm_forward(args);
    EXPECT_TRUE(same_bits(out.y, expected.y));
    EXPECT_TRUE(same_bits(place, expected.sum));
  }
  const auto all = backward(in, expected);
  auto gsum = in.gsum;
  Backward<T> none;
  auto args = backward_args(in, expected, none);
  args.gsum = args.gresidual = gsum.data();
  args.gx = nullptr;
  args.gweight = args.gbias = nullptr;
  cpu::norm_backward(args);
  EXPECT_TRUE(same_bits(gsum, all.gresidual));
}

TYPED_TEST(ResidualLayerNormTest, WantedGradientsOnlyAndAccumulation) {
  using T = TypeParam;
  using A = accumulator_t<T>;
  const Case<T> in(70, 33, 0.3);
  const auto saved = forward(in);
  const auto all = backward(in, saved);
  for (int wanted = 0; wanted < 16; ++wanted) {
    Backward<T> out = poisoned_backward(in);
    auto args = backward_args(in, saved, out);
    if (!(wanted & 1)) args.gresidual = nullptr;
    if (!(wanted & 2)) args.gx = nullptr;
    if (!(wanted & 4)) args.gweight = nullptr;
    if (!(wanted & 8)) args.gbias = nullptr;
    cpu::norm_backward(args);
    EXPECT_TRUE(same_bits(out.gresidual, wanted & 1 ? all.gresidual : poisoned<T>(in.n))) << wanted;
    EXPECT_TRUE(same_bits(out.gx, wanted & 2 ? all.gx : poisoned<T>(in.n))) << wanted;
    EXPECT_TRUE(same_bits(out.gweight, wanted & 4 ? all.gweight : poisoned<A>(in.cols))) << wanted;
    EXPECT_TRUE(same_bits(out.gbias, wanted & 8 ? all.gbias : poisoned<A>(in.cols))) << wanted;
  }
  const auto old = random_values<T>(in.n, 7);
  const auto old_weight = random_values<A>(in.cols, 8);
  Backward<T> out{old, old, old_weight, old_weight};
  auto args = backward_args(in, saved, out);
  args.accumulate_residual = args.accumulate_x = args.accumulate_weight = args.accumulate_bias = true;
  cpu::norm_backward(args);
  const auto expect_added = [&](T got, T part, T before) {  // `part` was rounded once more
    const Exact sum = widen(part) + widen(before);
    ASSERT_LE(std::abs(widen(got) - sum), ulp<T>(std::abs(widen(part))) + ulp<T>(std::abs(sum)));
  };
  for (int64_t i = 0; i < in.n; ++i) {
    expect_added(out.gresidual[i], all.gresidual[i], old[i]);
    expect_added(out.gx[i], all.gx[i], old[i]);
  }
  for (int64_t c = 0; c < in.cols; ++c) {
    EXPECT_EQ(out.gweight[c], old_weight[c] + all.gweight[c]);
    EXPECT_EQ(out.gbias[c], old_weight[c] + all.gbias[c]);
  }
}

TYPED_TEST(ResidualLayerNormTest, NoThreadCountChangesABit) {
  const Case<TypeParam> in(333, 129, 0.3);
  expect_same_for_all_thread_counts([&] {
    const auto saved = forward(in);
    const auto grad = backward(in, saved);
    std::vector<double> all;
    append(all, saved.y);
    append(all, saved.sum);
    append(all, grad.gresidual);
    append(all, grad.gx);
    append(all, grad.gweight);
    append(all, grad.gbias);
    return all;
  });
}

TEST(ResidualLayerNormGradient, MatchesCentralDifferences) {
  Case<double> in(3, 7, 0.3);
  const auto grad = backward(in, forward(in));
  const auto loss_with = [&](std::vector<double> Case<double>::*input) {
    return [&in, input](const std::vector<double>& at) {
      Case<double> moved = in;
      moved.*input = at;
      const auto out = forward(moved);
      double sum = 0;
      for (size_t i = 0; i < out.y.size(); ++i) sum += out.y[i] * in.gy[i] + out.sum[i] * in.gsum[i];
      return sum;
    };
  };
  expect_gradient(loss_with(&Case<double>::residual), in.residual, grad.gresidual, "residual");
  expect_gradient(loss_with(&Case<double>::x), in.x, grad.gx, "x");
  expect_gradient(loss_with(&Case<double>::weight), in.weight, grad.gweight, "weight");
  expect_gradient(loss_with(&Case<double>::bias), in.bias, grad.gbias, "bias");
}

}  // namespace
}  // namespace heed
