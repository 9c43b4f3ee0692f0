// Pooling: the largest element, or the mean, under a window that moves over each plane. Contract for both
// devices.
#pragma once

#include <cstdint>

#include <heed/core/base/cost.h>
#include <heed/core/base/dtype.h>
#include <heed/kernels/declare.h>
#include <heed/kernels/window.h>

namespace heed {

enum class PoolKind { max, mean };

}  // namespace heed

namespace heed::kernels {

/// Padding is never the largest, and counts as zeros in a mean. NaN is above everything.
struct PoolSizes {
  PoolKind kind;
  int64_t planes, height, width;  // of x; height * width < 2^30
  Window window;

  int64_t out_height() const { return window.positions(height, 0); }
  int64_t out_width() const { return window.positions(width, 1); }
  int64_t pixels() const { return out_height() * out_width(); }
};

template <class T>
struct PoolForward {
  PoolSizes sizes;
  const T* x;      // [planes, height, width]
  T* y;            // [planes, out_height, out_width]
  int32_t* index;  // the same: the first of the largest in its plane, -1 under padding alone. For the
                   // backward of max; null if there is none

  Cost cost() const { return bytes_moved<T>(sizes.planes * (sizes.height * sizes.width + sizes.pixels())); }
};

template <class T>
struct PoolBackward {
  PoolSizes sizes;
  const T* gy;           // [planes, out_height, out_width]
  const int32_t* index;  // the forward's; null for means
  T* gx;                 // [planes, height, width]
  bool accumulate;

  Cost cost() const { return bytes_moved<T>(sizes.planes * (sizes.height * sizes.width + sizes.pixels())); }
};

}  // namespace heed::kernels

HEED_KERNEL(pool_forward, PoolForward);
HEED_KERNEL(pool_backward, PoolBackward);
