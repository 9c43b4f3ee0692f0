// Layer norm and RMS norm over the last axis, of a tensor or of what is added to a residual. Contract for
// both devices.
#pragma once

#include <cstdint>

#include <heed/core/base/cost.h>
#include <heed/core/base/dtype.h>
#include <heed/core/base/philox.h>
#include <heed/kernels/declare.h>

namespace heed {

/// layer: to mean 0 and variance 1 (Ba, Kiros and Hinton, arXiv 1607.06450); rms: divided by the root mean
/// square (Zhang and Sennrich, arXiv 1910.07467).
enum class NormKind : uint8_t { layer, rms };

}  // namespace heed

namespace heed::kernels {

/// The operation that a call is, for profiles.
inline const char* norm_name(NormKind kind, bool residual, bool backward) {
  static constexpr const char* kNames[2][2][2] = {
      {{"layer_norm_forward", "layer_norm_backward"},
       {"residual_layer_norm_forward", "residual_layer_norm_backward"}},
      {{"rms_norm_forward", "rms_norm_backward"},
       {"residual_rms_norm_forward", "residual_rms_norm_backward"}}};
  return kNames[static_cast<int>(kind)][residual][backward];
}

/// sum = residual + dropout(x), as it is stored, or x; y = weight * (sum - mean) * rstd + bias, for each row.
/// An RMS norm has mean 0, and 1 / rstd is the root mean square. Finite elements of any size have a finite y.
/// A post-norm's sum is for the backward alone. A device whose backward takes y as well may then leave it out
/// (compare Rota Bulò et al., arXiv 1712.02616): what the memory of `sum` holds afterwards is not told.
template <class T>
struct NormForward {
  NormKind kind;
  const T* residual;       // [rows, cols]; null: the sum is x, undropped, and not written
  const T* x;              // [rows, cols]
  const T* weight;         // [cols] or null: 1
  const T* bias;           // [cols] or null: 0; null for an RMS norm
  Dropout dropout;         // element number row * cols + column
  T* sum;                  // [rows, cols]; may be residual or x; null without a residual
  T* y;                    // [rows, cols]
  accumulator_t<T>* mean;  // [rows], for the backward; null if there is none, and for an RMS norm
  accumulator_t<T>* rstd;  // [rows], 1 / sqrt(variance or mean square + eps); null if there is no backward
  uint8_t* keep_mask;  // for the CPU's backward, norm_keep_mask_size() bytes of what dropout keeps; or null
  bool again;          // x is the sum of an earlier call, whose y is computed again to the same bits
  int64_t rows, cols;  // cols >= 1
  double eps;
  bool post = false;           // nobody but the backward reads the sum
  bool* invertible = nullptr;  // [1], of a post-norm: whether the backward is to take y in place of the sum;
                               // null if there is no backward, or it reads the sum

  Cost cost() const { return bytes_moved<T>((residual ? (invertible ? 3 : 4) : 2) * rows * cols); }
  const char* name() const { return norm_name(kind, residual != nullptr || again, false); }
};

template <class T>
struct NormBackward {
  NormKind kind;
  bool residual;                 // whether the forward had one
  const T* gy;                   // [rows, cols]
  const T* gsum;                 // [rows, cols], the gradient that sum receives from elsewhere; null if none
  const T* sum;                  // [rows, cols]
  const T* weight;               // [cols] or null
  const accumulator_t<T>* mean;  // [rows]; null for an RMS norm
  const accumulator_t<T>* rstd;  // [rows]
  Dropout dropout;
  const uint8_t* keep_mask;   // what the forward wrote there; null: drawn again
  T* gresidual;               // [rows, cols]; null if not wanted; may be gsum
  T* gx;                      // [rows, cols]; null if not wanted
  accumulator_t<T>* gweight;  // [cols], summed over rows in fixed order; null if not wanted
  accumulator_t<T>* gbias;    // [cols]; null if not wanted, and for an RMS norm
  bool accumulate_residual, accumulate_x, accumulate_weight, accumulate_bias;
  int64_t rows, cols;
  // Of a post-norm's forward that had `invertible`; else null.
  const T* y = nullptr;              // [rows, cols]
  const T* bias = nullptr;           // [cols] or null
  const bool* invertible = nullptr;  // [1]

  Cost cost() const {
    const int matrices = 2 + (gsum ? 1 : 0) + (gresidual ? 1 : 0) +
                         (gresidual && accumulate_residual ? 1 : 0) + (gx ? 1 : 0) +
                         (gx && accumulate_x ? 1 : 0);
    return bytes_moved<T>(rows * cols * matrices);
  }
  const char* name() const { return norm_name(kind, residual, true); }
};

}  // namespace heed::kernels

HEED_KERNEL(norm_forward, NormForward);
HEED_KERNEL(norm_backward, NormBackward);

namespace heed::cpu {

/// Bytes of NormForward::keep_mask; 0 without dropout.
int64_t norm_keep_mask_size(int64_t rows, int64_t cols, const Dropout& dropout);

}  // namespace heed::cpu
