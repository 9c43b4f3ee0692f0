// Norms of post-norm blocks on the device: whether y is said to hold the normalised rows, the sum left out
// then, and gradients from y.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
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

template <class T>
struct Inputs {
  NormKind kind;
  int64_t rows, cols, n = rows * cols;
  std::vector<T> residual = random_values<T>(n, 1), x = random_values<T>(n, 2),
                 weight = random_values<T>(cols, 3), bias = random_values<T>(cols, 4),
                 gy = random_values<T>(n, 5), untouched = random_values<T>(n, 6);
  Dropout dropout = make_dropout(0.3, {.seed = 5, .base = nullptr, .offset = 9});

  // Weights from 0.5 to 2 in size, of both signs, and biases of at most 1.
  Inputs(NormKind norm_kind, int64_t row_count, int64_t col_count)
      : kind(norm_kind), rows(row_count), cols(col_count) {
    for (T& w : weight) w = T(std::copysign(std::clamp(std::abs(float(w)), 0.5f, 2.0f), float(w)));
    for (T& b : bias) b = T(std::clamp(float(b), -1.0f, 1.0f));
    if (kind == NormKind::rms) bias.clear();
  }
};

enum class Call { both, post, no_backward };

template <class T>
struct Forward {
  std::vector<T> sum, y;
  std::vector<float> mean, rstd;
  bool invertible = false;
};

// The sum's memory holds in.untouched beforehand.
template <class T>
Forward<T> forward(const Inputs<T>& in, Call call) {
  const size_t n = in.x.size(), rows = static_cast<size_t>(in.rows);
  const DeviceBuffer<T> residual(in.residual), x(in.x), weight(in.weight), bias(in.bias), sum(in.untouched),
      y(n);
  const DeviceBuffer<float> mean(std::vector<float>(rows, 0)), rstd(std::vector<float>(rows, 0));
  const DeviceBuffer<uint8_t> invertible(std::vector<uint8_t>{7});
  auto args = layer_norm_args<T>(x.data(), weight.data(), bias.data(), in.rows, in.cols, kEps);
  args.kind = in.kind;
  args.residual = residual.data();
  args.dropout = in.dropout;
  args.sum = sum.data();
  args.y = y.data();
  args.post = call != Call::both;
  if (call != Call::no_backward) {
    args.mean = in.kind == NormKind::layer ? mean.data() : nullptr;
    args.rstd = rstd.data();
  }
  if (call == Call::post) args.invertible = reinterpret_cast<bool*>(invertible.data());
  cuda::norm_forward(args);
  cuda::synchronize(0);
  const uint8_t said = invertible.get()[0];
  EXPECT_TRUE(call == Call::post ? said <= 1 : said == 7);
  return {sum.get(), y.get(), mean.get(), rstd.get(), said == 1};
}

template <class T>
struct Gradients {
  std::vector<T> gresidual, gx;
  std::vector<float> gweight, gbias;
};

template <class T>
Gradients<T> backward(const Inputs<T>& in, const Forward<T>& saved, Call call) {
  const bool layer = in.kind == NormKind::layer;
  const DeviceBuffer<T> gy(in.gy), sum(saved.sum), y(saved.y), weight(in.weight), bias(in.bias),
      gresidual(in.x.size()), gx(in.x.size());
  const size_t cols = static_cast<size_t>(in.cols);
  const DeviceBuffer<float> mean(saved.mean), rstd(saved.rstd), gweight(cols), gbias(layer ? cols : 0);
  const DeviceBuffer<uint8_t> invertible(std::vector<uint8_t>{saved.invertible});
  kernels::NormBackward<T> args{};
  args.kind = in.kind;
  args.residual = true;
  args.gy = gy.data();
  args.sum = sum.data();
  args.weight = weight.data();
  args.mean = layer ? mean.data() : nullptr;
  args.rstd = rstd.data();
  args.dropout = in.dropout;
  args.gresidual = gresidual.data();
  args.gx = gx.data();
  args.gweight = gweight.data();
  args.gbias = gbias.data();
  args.rows = in.rows;
  args.cols = in.cols;
  if (call == Call::post) {
    args.y = y.data();
    args.bias = bias.data();
    args.invertible = reinterpret_cast<const bool*>(invertible.data());
  }
  cuda::norm_backward(args);
  cuda::synchronize(0);
  return {gresidual.get(), gx.get(), gweight.get(), gbias.get()};
}

// From y as it is stored. What is normalised there has mean 0 and rstd 1 already.
template <class W, class T>
PlainBackward<W> plain_backward(const Inputs<T>& in, const Forward<T>& saved) {
  const auto rows = static_cast<size_t>(in.rows), cols = static_cast<size_t>(in.cols);
  std::vector<W> n(in.x.size());
  for (size_t i = 0; i < n.size(); ++i) {
    const size_t col = i % cols;
    const W weight = in.weight.empty() ? W(1) : W(widen(in.weight[col])),
            bias = in.bias.empty() ? W(0) : W(widen(in.bias[col]));
    n[i] = (W(widen(saved.y[i])) - bias) / weight;
  }
  const std::vector<W> gy = convert<W>(in.gy);
  auto out = plain_layer_norm_backward<W>(gy, n, convert<W>(in.weight), std::vector<W>(rows, W(0)),
                                          std::vector<W>(rows, W(1)), in.rows, in.cols);
  for (size_t row = 0; row < rows; ++row) {
    W mean = 0;  // of the gradients of what is normalised: an RMS norm does not subtract it
    for (size_t c = 0; c < cols && in.kind == NormKind::rms; ++c)
      mean += gy[row * cols + c] * (in.weight.empty() ? W(1) : W(widen(in.weight[c]))) / W(in.cols);
    for (size_t c = 0; c < cols; ++c) {
      W& gx = out.gx[row * cols + c];
      gx = (gx + mean) * W(saved.rstd[row]);
    }
  }
  return out;
}

template <class T>
void expect_gradients_from_y(const Inputs<T>& in, const Forward<T>& saved) {
  const Gradients<T> got = backward(in, saved, Call::post);
  const auto plain = plain_backward<float>(in, saved);
  const auto exact = plain_backward<Exact>(in, saved);
  const auto given = [&](const auto& of_sum) {
    auto gx = of_sum;
    for (int64_t i = 0; i < in.n; ++i) gx[i] = dropped(in.dropout, i, gx[i]);
    return gx;
  };
  expect_within(got.gresidual, convert<T>(plain.gx), exact.gx, 3, "gresidual");
  expect_within(got.gx, convert<T>(given(plain.gx)), given(exact.gx), 3, "gx");
  expect_within(got.gweight, plain.gweight, exact.gweight, 3, "gweight", exact.largest_sum);
  if (in.kind == NormKind::layer)
    expect_within(got.gbias, plain.gbias, exact.gbias, 3, "gbias", exact.largest_sum);
}

// What a row's threads have in registers together.
template <class T>
bool fits_registers(int64_t cols) {
  return cols <= (cols % (16 / static_cast<int64_t>(sizeof(T))) == 0 ? 16384 : 4096);
}

template <class T>
class PostNorm : public ::testing::Test {};
TYPED_TEST_SUITE(PostNorm, KernelTypes);

constexpr NormKind kKinds[] = {NormKind::layer, NormKind::rms};

struct Size {
  int64_t rows, cols;
};
// Of a few lanes, a warp and a block, by vectors and without, more rows than groups, too long to be kept: by
// the backward alone or by both.
constexpr Size kSizes[] = {{5, 33},     {5, 40},   {6, 100},  {300, 8},   {3, 1032},
                           {135, 1025}, {2, 4099}, {2, 8200}, {2, 16392}, {0, 8}};

TYPED_TEST(PostNorm, LeavesTheSumOutAndFindsTheGradientsFromY) {
  using T = TypeParam;
  for (const NormKind kind : kKinds)
    for (const Size& size : kSizes) {
      SCOPED_TRACE(std::to_string(size.rows) + " x " + std::to_string(size.cols));
      ++kernel_cases.count;
      const Inputs<T> in(kind, size.rows, size.cols);
      if (size.rows == 0) {
        const Gradients<T> none = backward(in, {in.x, in.x, {}, {}, false}, Call::post);
        EXPECT_EQ(none.gweight, std::vector<float>(8, 0.0f));
        continue;
      }
      const Forward<T> with_sum = forward(in, Call::both), got = forward(in, Call::post),
                       alone = forward(in, Call::no_backward);
      EXPECT_TRUE(same_bits(got.y, with_sum.y) && same_bits(alone.y, with_sum.y));
      EXPECT_TRUE(same_bits(got.mean, with_sum.mean) && same_bits(got.rstd, with_sum.rstd));
      const bool left_out = fits_registers<T>(size.cols);
      EXPECT_EQ(got.invertible, left_out);
      for (const Forward<T>* one : {&got, &alone})
        EXPECT_TRUE(same_bits(one->sum, left_out ? in.untouched : with_sum.sum));
      if (left_out) expect_gradients_from_y(in, got);
    }
}

TYPED_TEST(PostNorm, KeepsTheSumWhereWeightOrBiasWouldLoseIt) {
  using T = TypeParam;
  struct Parameters {
    float weight, bias;
    bool invertible;
  };
  const float infinity = std::numeric_limits<float>::infinity(),
              nan = std::numeric_limits<float>::quiet_NaN();
  for (const Parameters p : {Parameters{0.5f, 2.0f, true},
                             {0.5f, -2.0f, true},
                             {-0.5f, 2.03125f, false},
                             {0.5f, -2.03125f, false},
                             {0x1p-63f, 0.0f, true},
                             {0x1p-64f, 0.0f, false},
                             {-0x1p63f, 1.0f, true},
                             {0x1p64f, 1.0f, false},
                             {0.0f, 0.0f, false},
                             {infinity, 0.0f, false},
                             {nan, 0.0f, false},
                             {1.0f, nan, false}})
    for (const int64_t cols : {33, 40, 1032}) {
      SCOPED_TRACE(std::to_string(p.weight) + ", " + std::to_string(p.bias) + " of " + std::to_string(cols));
      ++kernel_cases.count;
      Inputs<T> in(NormKind::layer, 5, cols);
      in.weight.back() = T(p.weight);
      in.bias.back() = T(p.bias);
      const Forward<T> with_sum = forward(in, Call::both), got = forward(in, Call::post);
      EXPECT_EQ(got.invertible, p.invertible);
      EXPECT_TRUE(same_bits(got.sum, p.invertible ? in.untouched : with_sum.sum));
      if (p.invertible) {
        expect_gradients_from_y(in, got);
      } else {
        const Gradients<T> from_sum = backward(in, with_sum, Call::both),
                           other = backward(in, got, Call::post);
        EXPECT_TRUE(same_bits(other.gx, from_sum.gx) && same_bits(other.gresidual, from_sum.gresidual));
        EXPECT_TRUE(same_bits(other.gweight, from_sum.gweight) && same_bits(other.gbias, from_sum.gbias));
      }
    }
}

// An absent weight counts as 1, an absent bias as 0.
TYPED_TEST(PostNorm, JudgesOneParameterAlone) {
  using T = TypeParam;
  for (const auto& [bias, invertible] : {std::pair{4.0f, true}, {4.5f, false}}) {
    Inputs<T> in(NormKind::layer, 3, 40);
    in.weight.clear();
    in.bias.back() = T(bias);
    EXPECT_EQ(forward(in, Call::post).invertible, invertible) << bias;
  }
  Inputs<T> in(NormKind::rms, 3, 40);
  in.weight.back() = T(0.125f);
  EXPECT_TRUE(forward(in, Call::post).invertible);
}

TYPED_TEST(PostNorm, WithoutParametersAndInRowsWhoseSquaresOverflow) {
  using T = TypeParam;
  for (const NormKind kind : kKinds)
    for (const float scale : {1.0f, 0x1p100f})
      for (const int64_t cols : {33, 1032, 8200}) {
        ++kernel_cases.count;
        Inputs<T> in(kind, 5, cols);
        if (scale == 1.0f) {
          in.weight.clear();
          in.bias.clear();
        }
        for (auto* values : {&in.residual, &in.x})
          for (T& value : *values) value = T(float(value) * scale);
        const Forward<T> with_sum = forward(in, Call::both), got = forward(in, Call::post);
        EXPECT_TRUE(got.invertible);
        EXPECT_TRUE(same_bits(got.y, with_sum.y));
        EXPECT_TRUE(same_bits(got.mean, with_sum.mean) && same_bits(got.rstd, with_sum.rstd));
        expect_gradients_from_y(in, got);
      }
}

}  // namespace
}  // namespace heed
