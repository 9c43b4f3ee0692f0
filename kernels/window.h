// A window that moves over an image: of convolution and pooling.
#pragma once

#include <cstdint>

namespace heed::kernels {

/// Along both axes, rows first. At position i the window's element k is at i * stride - padding + k *
/// dilation.
struct Window {
  int64_t kernel[2], stride[2], padding[2], dilation[2];

  /// From its first element to one past its last.
  int64_t extent(int axis) const { return (kernel[axis] - 1) * dilation[axis] + 1; }
  /// Positions at which it lies within `size` elements and the padding at both ends.
  int64_t positions(int64_t size, int axis) const {
    const int64_t room = size + 2 * padding[axis] - extent(axis);
    return room < 0 ? 0 : room / stride[axis] + 1;
  }
};

}  // namespace heed::kernels
