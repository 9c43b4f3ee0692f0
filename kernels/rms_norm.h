// Root mean square normalisation over the last axis (Zhang and Sennrich, arXiv 1910.07467), of a tensor or of
// what is added to a residual. Contract for both devices.
#pragma once

#include <cstdint>

#include <heed/core/base/cost.h>
#include <heed/core/base/dtype.h>
#include <heed/core/base/philox.h>
#include <heed/kernels/declare.h>

namespace heed::kernels {

/// sum = residual + dropout(x), as it is stored; y = weight * sum * rstd. Any finite elements have a finite
/// y.
template <class T>
struct RMSNormForward {
  const T* residual;       // [rows, cols]; null: the sum is x, undropped, and not written
  const T* x;              // [rows, cols]
  const T* weight;         // [cols] or null: 1
  Dropout dropout;         // element number row * cols + column
  T* sum;                  // [rows, cols]; may be residual or x; null without a residual
  T* y;                    // [rows, cols]
  accumulator_t<T>* rstd;  // [rows], 1 / sqrt(mean of the squares + eps), for the backward; null if none
  int64_t rows, cols;      // cols >= 1
  double eps;

  Cost cost() const { return bytes_moved<T>((residual ? 4 : 2) * rows * cols); }
};

template <class T>
struct RMSNormBackward {
  const T* gy;                   // [rows, cols]
  const T* gsum;                 // [rows, cols], the gradient that sum receives from elsewhere; null if none
  const T* sum;                  // [rows, cols]
  const T* weight;               // [cols] or null
  const accumulator_t<T>* rstd;  // [rows]
  Dropout dropout;
  T* gresidual;               // [rows, cols]; null if not wanted; may be gsum
  T* gx;                      // [rows, cols]; null if not wanted
  accumulator_t<T>* gweight;  // [cols], summed over rows in fixed order; null if not wanted
  bool accumulate_residual, accumulate_x, accumulate_weight;
  int64_t rows, cols;

  Cost cost() const {
    const int matrices = 2 + (gsum ? 1 : 0) + (gresidual ? 1 : 0) +
                         (gresidual && accumulate_residual ? 1 : 0) + (gx ? 1 : 0) +
                         (gx && accumulate_x ? 1 : 0);
    return bytes_moved<T>(rows * cols * matrices);
  }
};

}  // namespace heed::kernels

HEED_KERNEL(rms_norm_forward, RMSNormForward);
HEED_KERNEL(rms_norm_backward, RMSNormBackward);
