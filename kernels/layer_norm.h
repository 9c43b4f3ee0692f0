// Layer normalisation over the last axis (Ba, Kiros and Hinton, arXiv 1607.06450). Contract for both devices.
#pragma once

#include <cstdint>

#include <heed/core/base/cost.h>
#include <heed/core/base/dtype.h>
#include <heed/kernels/declare.h>

namespace heed::kernels {

template <class T>
struct LayerNormForward {  // y = weight * (x - mean) * rstd + bias, for each row
  const T* x;              // [rows, cols]
  const T* weight;         // [cols] or null: 1
  const T* bias;           // [cols] or null: 0
  T* y;                    // [rows, cols]
  accumulator_t<T>* mean;  // [rows], for the backward; null if there is none
  accumulator_t<T>* rstd;  // [rows], 1 / sqrt(variance + eps); null with mean
  int64_t rows, cols;      // cols >= 1
  double eps;

  Cost cost() const { return bytes_moved<T>(2 * rows * cols); }
};

template <class T>
struct LayerNormBackward {
  const T* gy;                   // [rows, cols]
  const T* x;                    // [rows, cols]
  const T* weight;               // [cols] or null
  const accumulator_t<T>* mean;  // [rows]
  const accumulator_t<T>* rstd;  // [rows]
  T* gx;                         // [rows, cols]; null if not wanted
  accumulator_t<T>* gweight;     // [cols], summed over rows in fixed order; null if not wanted
  accumulator_t<T>* gbias;       // [cols]; null if not wanted
  bool accumulate_x, accumulate_weight, accumulate_bias;
  int64_t rows, cols;

  Cost cost() const {
    return bytes_moved<T>(rows * cols * (2 + (gx ? 1 : 0) + (gx && accumulate_x ? 1 : 0)));
  }
};

}  // namespace heed::kernels

HEED_KERNEL(layer_norm_forward, LayerNormForward);
HEED_KERNEL(layer_norm_backward, LayerNormBackward);
