// Residual connection, dropout and layer normalisation in one pass each way. Contract for both devices.
#pragma once

#include <cstdint>

#include <heed/core/base/cost.h>
#include <heed/core/base/dtype.h>
#include <heed/core/base/philox.h>
#include <heed/kernels/declare.h>

namespace heed::kernels {

template <class T>
struct ResidualLayerNormForward {  // sum = residual + dropout(x); y = layer_norm(sum)
  const T* residual;               // [rows, cols]; null: the sum is x, undropped, and not written
  const T* x;                      // [rows, cols]
  const T* weight;                 // [cols] or null: 1
  const T* bias;                   // [cols] or null: 0
  Dropout dropout;                 // element number row * cols + column
  T* sum;                          // [rows, cols]; may be residual or x; null without a residual
  T* y;                            // [rows, cols]
  accumulator_t<T>* mean;          // [rows], for the backward; null if there is none
  accumulator_t<T>* rstd;          // [rows]; null with mean
  int64_t rows, cols;
  double eps;
  uint8_t* keep_mask = nullptr;  // for the CPU's backward, residual_layer_norm_keep_mask_size() bytes of what
                                 // dropout keeps; or null

  Cost cost() const { return bytes_moved<T>((residual ? 4 : 2) * rows * cols); }
};

template <class T>
struct ResidualLayerNormBackward {
  const T* gy;                   // [rows, cols]
  const T* gsum;                 // [rows, cols], the gradient that sum receives from elsewhere; null if none
  const T* sum;                  // [rows, cols]
  const T* weight;               // [cols] or null
  const accumulator_t<T>* mean;  // [rows]
  const accumulator_t<T>* rstd;  // [rows]
  Dropout dropout;
  T* gresidual;               // [rows, cols]; null if not wanted; may be gsum
  T* gx;                      // [rows, cols]; null if not wanted
  accumulator_t<T>* gweight;  // [cols]; null if not wanted
  accumulator_t<T>* gbias;    // [cols]; null if not wanted
  bool accumulate_residual, accumulate_x, accumulate_weight, accumulate_bias;
  int64_t rows, cols;
  const uint8_t* keep_mask = nullptr;  // what the forward wrote there; null: drawn again

  Cost cost() const {
    const int matrices = 2 + (gsum ? 1 : 0) + (gresidual ? 1 : 0) +
                         (gresidual && accumulate_residual ? 1 : 0) + (gx ? 1 : 0) +
                         (gx && accumulate_x ? 1 : 0);
    return bytes_moved<T>(rows * cols * matrices);
  }
};

}  // namespace heed::kernels

HEED_KERNEL(residual_layer_norm_forward, ResidualLayerNormForward);
HEED_KERNEL(residual_layer_norm_backward, ResidualLayerNormBackward);

namespace heed::cpu {

/// Bytes of ResidualLayerNormForward::keep_mask; 0 without dropout.
int64_t residual_layer_norm_keep_mask_size(int64_t rows, int64_t cols, const Dropout& dropout);

}  // namespace heed::cpu
