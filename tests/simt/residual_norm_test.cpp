// Layer norm of what is added to a residual, on the device, against plain loops.
#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <heed/kernels/norm.h>
#include <heed/kernels/runtime.h>

#include "../kernels/layer_norm_reference.h"
#include "device_buffer.h"
#include "device_test.h"

namespace heed {
namespace {

using namespace heed::testing;

constexpr double kEps = 1e-5;

struct Size {
  int64_t rows, cols;
};

// Rows of a few lanes, a warp and a block, by vectors and without; too long to be kept; and more of them than
// groups of threads.
constexpr Size kResidualSizes[] = {{5, 33},    {5, 40},    {6, 100},    {3, 1032}, {2, 4099},
                                   {2, 16392}, {16901, 8}, {135, 1025}, {0, 8}};

template <class T>
struct Inputs {
  int64_t rows, cols, n = rows * cols;
  Dropout dropout;
  std::vector<T> residual = random_values<T>(n, 1), x = random_values<T>(n, 2),
                 weight = random_values<T>(cols, 3), bias = random_values<T>(cols, 4),
                 gy = random_values<T>(n, 5), gsum = random_values<T>(n, 6),
                 gresidual = random_values<T>(n, 7), gx = random_values<T>(n, 8);  // what is added to

  Inputs(Size size, double rate)
      : rows(size.rows),
        cols(size.cols),
        dropout(make_dropout(rate, {.seed = 5, .base = nullptr, .offset = 9})) {}
};

template <class T>
struct Forward {
  std::vector<T> sum, y;
  std::vector<float> mean, rstd;
};

// in_place: the sum takes the residual's memory.
template <class T>
Forward<T> forward(const Inputs<T>& in, bool in_place, bool statistics = true) {
  const size_t n = in.x.size(), rows = static_cast<size_t>(in.rows);
  const DeviceBuffer<T> residual(in.residual), x(in.x), weight(in.weight), bias(in.bias), sum(n), y(n);
  const DeviceBuffer<float> mean(rows), rstd(rows);
  const DeviceBuffer<T>& to = in_place ? residual : sum;
  auto args = layer_norm_args<T>(x.data(), weight.data(), bias.data(), in.rows, in.cols, kEps);
  args.residual = residual.data();
  args.dropout = in.dropout;
  args.sum = to.data();
  args.y = y.data();
  if (statistics) {
    args.mean = mean.data();
    args.rstd = rstd.data();
  }
  cuda::norm_forward(args);
  cuda::synchronize(0);
  return {to.get(), y.get(), mean.get(), rstd.get()};
}

template <class T>
class ResidualNorm : public ::testing::Test {};
TYPED_TEST_SUITE(ResidualNorm, KernelTypes);

TYPED_TEST(ResidualNorm, Forward) {
  using T = TypeParam;
  for (const Size& size : kResidualSizes)
    for (const double rate : {0.0, 0.3}) {
      SCOPED_TRACE(std::to_string(size.rows) + " x " + std::to_string(size.cols));
      ++kernel_cases.count;
      const Inputs<T> in(size, rate);
      const Forward<T> got = forward(in, rate > 0);
      for (int64_t i = 0; i < in.n; ++i) {
        const Exact exact = widen(in.residual[i]) + dropped(in.dropout, i, widen(in.x[i]));
        ASSERT_LE(std::abs(widen(got.sum[i]) - exact), ulp<T>(4)) << "sum of element " << i;
      }
      const auto norm = [&](auto w) {
        using W = decltype(w);
        return plain_layer_norm<T>(convert<W>(got.sum), convert<W>(in.weight), convert<W>(in.bias), in.rows,
                                   in.cols, kEps);
      };
      const auto plain = norm(0.0f);
      const auto exact = norm(Exact(0));
      expect_within(got.y, convert<T>(plain.y), exact.y, 2, "y");
      expect_within(got.mean, plain.mean, exact.mean, 2, "mean", 1);
      expect_within(got.rstd, plain.rstd, exact.rstd, 2, "rstd");
      const Forward<T> without = forward(in, false, false);
      EXPECT_TRUE(same_bits(without.sum, got.sum) && same_bits(without.y, got.y)) << "without statistics";
    }
}

// What a backward is given and asked for.
struct Wanted {
  bool gsum, gresidual, gx, sums, accumulate, in_place;  // in_place: gresidual takes gsum's memory
};

template <class W>
struct Gradients {
  std::vector<W> gresidual, gx;
};

// From the norm's own gradient.
template <class W, class T>
Gradients<W> plain_gradients(const Inputs<T>& in, const Wanted& wanted, const std::vector<W>& of_norm) {
  Gradients<W> out{of_norm, of_norm};
  for (int64_t i = 0; i < in.n; ++i) {
    const W sum = of_norm[i] + (wanted.gsum ? W(widen(in.gsum[i])) : W(0));
    out.gresidual[i] = sum + (wanted.accumulate ? W(widen(in.gresidual[i])) : W(0));
    out.gx[i] = dropped(in.dropout, i, sum) + (wanted.accumulate ? W(widen(in.gx[i])) : W(0));
  }
  return out;
}

template <class T>
void check_backward(const Inputs<T>& in, const Wanted& wanted) {
  ++kernel_cases.count;
  const Forward<T> saved = forward(in, false);
  const DeviceBuffer<T> gy(in.gy), gsum(in.gsum), sum(saved.sum), weight(in.weight), gresidual(in.gresidual),
      gx(in.gx);
  const DeviceBuffer<float> mean(saved.mean), rstd(saved.rstd), gweight(in.weight.size()),
      gbias(in.bias.size());
  const DeviceBuffer<T>& to = wanted.in_place ? gsum : gresidual;
  kernels::NormBackward<T> args{};
  args.residual = true;
  args.gy = gy.data();
  args.gsum = wanted.gsum ? gsum.data() : nullptr;
  args.sum = sum.data();
  args.weight = weight.data();
  args.mean = mean.data();
  args.rstd = rstd.data();
  args.dropout = in.dropout;
  args.gresidual = wanted.gresidual ? to.data() : nullptr;
  args.gx = wanted.gx ? gx.data() : nullptr;
  args.gweight = wanted.sums ? gweight.data() : nullptr;
  args.gbias = wanted.sums ? gbias.data() : nullptr;
  args.accumulate_residual = args.accumulate_x = wanted.accumulate;
  args.rows = in.rows;
  args.cols = in.cols;
  cuda::norm_backward(args);
  cuda::synchronize(0);

  const auto reference = [&](auto w) {
    using W = decltype(w);
    return plain_layer_norm_backward<W>(convert<W>(in.gy), convert<W>(saved.sum), convert<W>(in.weight),
                                        convert<W>(saved.mean), convert<W>(saved.rstd), in.rows, in.cols);
  };
  const auto plain = reference(0.0f);
  const auto exact = reference(Exact(0));
  const auto plain_given = plain_gradients(in, wanted, plain.gx);
  const auto exact_given = plain_gradients(in, wanted, exact.gx);
  if (wanted.gresidual)
    expect_within(to.get(), convert<T>(plain_given.gresidual), exact_given.gresidual, 3, "gresidual", 4);
  else
    EXPECT_TRUE(same_bits(to.get(), in.gresidual));
  if (wanted.gx)
    expect_within(gx.get(), convert<T>(plain_given.gx), exact_given.gx, 3, "gx", 4);
  else
    EXPECT_TRUE(same_bits(gx.get(), in.gx));
  if (!wanted.sums) return;
  expect_within(gweight.get(), plain.gweight, exact.gweight, 3, "gweight", exact.largest_sum);
  expect_within(gbias.get(), plain.gbias, exact.gbias, 3, "gbias", exact.largest_sum);
}

TYPED_TEST(ResidualNorm, Backward) {
  using T = TypeParam;
  for (const Size& size : kResidualSizes) {
    SCOPED_TRACE(std::to_string(size.rows) + " x " + std::to_string(size.cols));
    check_backward<T>({size, 0.3}, {true, true, true, true, false, true});
    if (size.rows > 100) continue;
    check_backward<T>({size, 0.3}, {true, true, true, false, true, false});
    check_backward<T>({size, 0.3}, {true, false, true, true, true, false});
    check_backward<T>({size, 0.0}, {true, true, false, false, false, false});
    check_backward<T>({size, 0.0}, {false, true, true, true, true, false});
  }
}

}  // namespace
}  // namespace heed
