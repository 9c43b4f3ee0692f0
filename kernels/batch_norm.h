// Batch normalisation (Ioffe and Szegedy, arXiv 1502.03167) by the statistics of the batch. Contract for both
// devices.
#pragma once

#include <cstdint>

#include <heed/core/base/cost.h>
#include <heed/core/base/dtype.h>
#include <heed/kernels/declare.h>

namespace heed::kernels {

template <class T>
struct BatchNormForward {           // y = weight * (x - mean) / sqrt(variance + eps) + bias, for each channel
  const T* x;                       // [batch, channels, pixels]
  const T* weight;                  // [channels] or null: 1
  const T* bias;                    // [channels] or null: 0
  T* y;                             // [batch, channels, pixels]
  accumulator_t<T>* mean;           // [channels]
  accumulator_t<T>* variance;       // [channels], mean square distance from the mean
  int64_t batch, channels, pixels;  // 1 <= batch * pixels < 2^31
  double eps;

  Cost cost() const { return bytes_moved<T>(2 * batch * channels * pixels); }
};

template <class T>
struct BatchNormBackward {
  const T* gy;                   // [batch, channels, pixels]
  const T* x;                    // [batch, channels, pixels]
  const T* weight;               // [channels] or null
  const accumulator_t<T>* mean;  // the forward's
  const accumulator_t<T>* variance;
  T* gx;                      // [batch, channels, pixels]; null if not wanted
  accumulator_t<T>* gweight;  // [channels], summed in fixed order; null if not wanted
  accumulator_t<T>* gbias;    // [channels]; null if not wanted
  bool accumulate_x, accumulate_weight, accumulate_bias;
  int64_t batch, channels, pixels;
  double eps;

  Cost cost() const { return bytes_moved<T>(batch * channels * pixels * (2 + (gx ? 1 : 0))); }
};

}  // namespace heed::kernels

HEED_KERNEL(batch_norm_forward, BatchNormForward);
HEED_KERNEL(batch_norm_backward, BatchNormBackward);
