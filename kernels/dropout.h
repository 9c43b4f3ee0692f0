// Dropout, alone or added to a residual. Contract for both devices.
#pragma once

#include <cstdint>

#include <heed/core/base/cost.h>
#include <heed/core/base/dtype.h>
#include <heed/core/base/philox.h>
#include <heed/kernels/declare.h>

namespace heed::kernels {

template <class T>
struct DropoutForward {  // y = residual + dropout(x)
  const T* x;            // [count]
  const T* residual;     // [count] or null: 0
  T* y;                  // [count]; may be x or residual
  int64_t count;
  Dropout dropout;  // its mask is drawn again in the backward

  Cost cost() const { return bytes_moved<T>((residual ? 3 : 2) * count); }
};

template <class T>
struct DropoutBackward {  // gx (+)= dropout'(gy)
  const T* gy;            // [count]
  T* gx;                  // [count]; may be gy unless accumulate
  int64_t count;
  Dropout dropout;
  bool accumulate;

  Cost cost() const { return bytes_moved<T>((accumulate ? 3 : 2) * count); }
};

}  // namespace heed::kernels

HEED_KERNEL(dropout_forward, DropoutForward);
HEED_KERNEL(dropout_backward, DropoutBackward);
