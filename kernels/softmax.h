// Softmax and log-softmax over the last axis. Contract for both devices.
#pragma once

#include <cstdint>

#include <heed/core/base/cost.h>
#include <heed/core/base/dtype.h>
#include <heed/kernels/declare.h>

namespace heed::kernels {

template <class T>
struct SoftmaxForward {  // y = exp(x - m) / sum exp(x - m), m the row's maximum; its logarithm if log
  const T* x;            // [rows, cols]
  T* y;                  // [rows, cols]; a row whose elements are all -inf gives zeros (log: -inf)
  int64_t rows, cols;
  bool log;

  Cost cost() const { return bytes_moved<T>(2 * rows * cols); }
};

template <class T>
struct SoftmaxBackward {
  const T* y;   // [rows, cols], what the forward returned
  const T* gy;  // [rows, cols]
  T* gx;        // [rows, cols]; may be gy unless accumulate
  int64_t rows, cols;
  bool log, accumulate;

  Cost cost() const { return bytes_moved<T>((accumulate ? 4 : 3) * rows * cols); }
};

}  // namespace heed::kernels

HEED_KERNEL(softmax_forward, SoftmaxForward);
HEED_KERNEL(softmax_backward, SoftmaxBackward);
