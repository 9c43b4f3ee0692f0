// Drawing numbers by weight. Contract for both devices, and what both do for a row: sums in double, each
// rounded by itself, in one order, so that the same numbers are drawn on both.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include <heed/core/base/dtype.h>
#include <heed/core/base/host_device.h>
#include <heed/core/base/philox.h>
#include <heed/kernels/box_muller.h>
#include <heed/kernels/declare.h>
#include <heed/kernels/random.h>

namespace heed::kernels {

/// y[row, i] = a column, with probabilities as the row's weights. -1 in each place where they are no weights,
/// and where none is left.
template <class T>
struct Sample {
  int64_t* y;      // [rows, count]
  const T* x;      // [rows, cols], weights or logits
  float* weights;  // [rows, cols], room
  bool logits;     // weights are exp(factor (x - the row's largest))
  double factor;
  double share;  // below 1: only of the first columns that make up this share of the weights, at least of one
  bool replace;  // whether a column may be drawn again
  int64_t rows, cols, count;
  PhiloxState rng;  // draw i of a row is that of element row * count + i
};

/// e^x for x <= 0 within 1e-14 of it; 0 below -80, and NaN where x is.
HEED_HOST_DEVICE inline double exp_below_zero(double x) {
  if (!(x >= -80)) return x == x ? 0 : x;
  const double n = std::floor(multiply_add(x, 1.4426950408889634, 0.5));
  double r = multiply_add(n, -0.69314718036912381649, x);  // of ln 2 the first digits: n times them is exact
  r = multiply_add(n, -1.9082149292705877e-10, r);
  double sum = 1;
  for (int i = 13; i > 0; --i) sum = multiply_add(sum, r / i, 1);
  const uint64_t bits = static_cast<uint64_t>(static_cast<int64_t>(n) + 1023) << 52;
  double power;
  memcpy(&power, &bits, sizeof power);
  return sum * power;
}

inline constexpr double kNoLogit = -std::numeric_limits<double>::infinity();
inline constexpr float kMaxWeight = std::numeric_limits<float>::max();

/// Writes a row's weights; whether they are weights.
template <class T>
HEED_HOST_DEVICE bool make_weights(const Sample<T>& args, int64_t row) {
  using M = math_t<T>;
  const T* x = args.x + row * args.cols;
  float* weights = args.weights + row * args.cols;
  double largest = kNoLogit;
  for (int64_t i = 0; args.logits && i < args.cols; ++i) {
    const double value = static_cast<double>(static_cast<M>(x[i]));
    if (value > largest) largest = value;
  }
  bool sound = true;
  for (int64_t i = 0; i < args.cols; ++i) {
    const double value = static_cast<double>(static_cast<M>(x[i]));
    weights[i] = static_cast<float>(args.logits ? exp_below_zero((value - largest) * args.factor) : value);
    sound &= weights[i] >= 0 && weights[i] <= kMaxWeight;
  }
  return sound;
}

/// The draws of one row.
template <class T>
HEED_HOST_DEVICE void sample_row(const Sample<T>& args, int64_t row) {
  const bool sound = make_weights(args, row);
  float* weights = args.weights + row * args.cols;
  int64_t end = args.cols;
  for (int64_t draw = 0; draw < args.count; ++draw) {
    int64_t& y = args.y[row * args.count + draw];
    y = -1;
    double total = 0;
    for (int64_t i = 0; i < end; ++i) total += weights[i];
    if (!sound || !(total > 0)) continue;
    if (draw == 0 && args.share < 1) {
      const double enough = args.share * total;
      total = 0;
      for (end = 0; end == 0 || total < enough; ++end) total += weights[end];
    }
    const Philox4 words = fill_words(args.rng, row * args.count + draw, 0);
    const double limit = static_cast<double>(join(words.word[0], words.word[1]) >> 11) * 0x1p-53 * total;
    double sum = 0;
    for (int64_t i = 0; i < end && y < 0; ++i) {
      sum += weights[i];
      if (sum > limit) y = i;
    }
    if (!args.replace) weights[y] = 0;
  }
}

}  // namespace heed::kernels

HEED_KERNEL(sample, Sample);
