// Layer normalisation written out plainly, over T in memory and W in arithmetic.
#pragma once

#include <cmath>
#include <vector>

#include <heed/kernels/norm.h>

#include "plain_bound.h"

namespace heed::testing {

/// Stores through T, and reads back, what W arithmetic gives; Exact is never rounded.
template <class T, class W>
W stored(W value) {
  if constexpr (std::is_same_v<W, Exact>)
    return value;
  else
    return W(widen(T(value)));
}

template <class W>
struct PlainForward {
  std::vector<W> y, mean, rstd;
};

/// weight and bias may be empty.
template <class T, class W>
PlainForward<W> plain_layer_norm(const std::vector<W>& x, const std::vector<W>& weight,
                                 const std::vector<W>& bias, int64_t rows, int64_t cols, double eps) {
  PlainForward<W> out;
  for (int64_t r = 0; r < rows; ++r) {
    W mean = 0, variance = 0;
    for (int64_t c = 0; c < cols; ++c) mean += x[r * cols + c];
    mean /= W(cols);
    for (int64_t c = 0; c < cols; ++c) variance += (x[r * cols + c] - mean) * (x[r * cols + c] - mean);
    const W rstd = 1 / std::sqrt(variance / W(cols) + W(eps));
    for (int64_t c = 0; c < cols; ++c) {
      const W normed = (x[r * cols + c] - mean) * rstd;
      out.y.push_back(
          stored<T>(normed * (weight.empty() ? W(1) : weight[c]) + (bias.empty() ? W(0) : bias[c])));
    }
    out.mean.push_back(mean);
    out.rstd.push_back(rstd);
  }
  return out;
}

template <class W>
struct PlainBackward {
  std::vector<W> gx, gweight, gbias;
  W largest_sum = 0;  // on the way to gweight and gbias
};

/// gx before it is rounded to what the memory holds.
template <class W>
PlainBackward<W> plain_layer_norm_backward(const std::vector<W>& gy, const std::vector<W>& x,
                                           const std::vector<W>& weight, const std::vector<W>& mean,
                                           const std::vector<W>& rstd, int64_t rows, int64_t cols) {
  PlainBackward<W> out{std::vector<W>(rows * cols), std::vector<W>(cols), std::vector<W>(cols), W(0)};
  for (int64_t r = 0; r < rows; ++r) {
    W sum = 0, dot = 0;
    for (int64_t c = 0; c < cols; ++c) {
      const W normed = (x[r * cols + c] - mean[r]) * rstd[r];
      const W g = gy[r * cols + c] * (weight.empty() ? W(1) : weight[c]);
      sum += g;
      dot += g * normed;
      out.gweight[c] += gy[r * cols + c] * normed;
      out.gbias[c] += gy[r * cols + c];
      out.largest_sum = std::max({out.largest_sum, std::abs(out.gweight[c]), std::abs(out.gbias[c])});
    }
    for (int64_t c = 0; c < cols; ++c) {
      const W normed = (x[r * cols + c] - mean[r]) * rstd[r];
      const W g = gy[r * cols + c] * (weight.empty() ? W(1) : weight[c]);
      out.gx[r * cols + c] = (g - sum / W(cols) - normed * (dot / W(cols))) * rstd[r];
    }
  }
  return out;
}

/// Whether element i is kept, straight from the contract.
inline bool kept(const Dropout& dropout, int64_t i) {
  return !dropout.active() ||
         dropout_bits(dropout.rng, i / 8).bits(static_cast<int>(i % 8)) >= dropout.threshold;
}

template <class W>
W dropped(const Dropout& dropout, int64_t i, W value) {
  if (!dropout.active()) return value;
  return kept(dropout, i) ? value * W(dropout.scale) : W(0);
}

/// Pointer to the elements, or null if there are none.
template <class T>
const T* or_null(const std::vector<T>& values) {
  return values.empty() ? nullptr : values.data();
}

/// A forward of layer norm without a residual and without results.
template <class T>
kernels::NormForward<T> layer_norm_args(const T* x, const T* weight, const T* bias, int64_t rows,
                                        int64_t cols, double eps) {
  kernels::NormForward<T> args{};
  args.x = x;
  args.weight = weight;
  args.bias = bias;
  args.rows = rows;
  args.cols = cols;
  args.eps = eps;
  return args;
}

template <class T>
std::vector<T> rounded_to(const std::vector<accumulator_t<T>>& values) {
  return convert<T>(values);
}

}  // namespace heed::testing
