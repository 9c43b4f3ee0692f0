// Convolution and pooling of images and of sequences of equal length. Channels stand before the places:
// [batch, channels, height, width] or [batch, channels, length].
#pragma once

#include <cstdint>

#include <heed/core/tensor.h>

namespace heed {

/// A number for each axis of an image, or one for both.
struct Size2d {
  int64_t height, width;

  Size2d(int64_t both) : height(both), width(both) {}
  Size2d(int64_t height, int64_t width) : height(height), width(width) {}
};

struct Convolution2dOptions {
  Size2d stride = 1, padding = 0, dilation = 1;  // padding: zeros at either end
  int64_t groups = 1;                            // channels and outputs divide into groups that do not mix
};
/// Cross-correlation, as in PyTorch: x [batch, channels, height, width], weight [outputs, channels / groups,
/// kernel height, kernel width], bias [outputs] or undefined → [batch, outputs, (height + 2 padding -
/// dilation (kernel - 1) - 1) / stride + 1, …]. ShapeError, also for x without channels and for a window
/// larger than the padded image; ConfigError.
[[nodiscard]] Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                            const Convolution2dOptions& options = {});

struct Convolution1dOptions {
  int64_t stride = 1, padding = 0, dilation = 1, groups = 1;
};
/// The same along one axis: x [batch, channels, length], weight [outputs, channels / groups, kernel].
[[nodiscard]] Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                            const Convolution1dOptions& options = {});

struct Pool2dOptions {
  Size2d stride = 0;  // 0: the kernel
  Size2d padding = 0, dilation = 1;
};
/// The largest element under each window; padding is below everything, and at most half of the window. NaN
/// where there is one. The gradient goes to the first of the largest. x [batch, channels, height, width].
/// ShapeError, ConfigError.
[[nodiscard]] Tensor max_pool2d(const Tensor& x, Size2d kernel, const Pool2dOptions& options = {});
/// The mean under each window; padding counts as zeros.
[[nodiscard]] Tensor avg_pool2d(const Tensor& x, Size2d kernel, const Pool2dOptions& options = {});

struct Pool1dOptions {
  int64_t stride = 0, padding = 0, dilation = 1;
};
/// The same along one axis: x [batch, channels, length].
[[nodiscard]] Tensor max_pool1d(const Tensor& x, int64_t kernel, const Pool1dOptions& options = {});
[[nodiscard]] Tensor avg_pool1d(const Tensor& x, int64_t kernel, const Pool1dOptions& options = {});

}  // namespace heed
