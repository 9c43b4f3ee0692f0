// The windows of convolution and pooling. Private to core: not installed.
#pragma once

#include <heed/core/convolution.h>
#include <heed/kernels/window.h>

namespace heed {

/// ConfigError for a kernel, stride or dilation below 1 or a negative padding; ShapeError where the window
/// does not fit into an image of x and its padding.
kernels::Window make_window(const char* operation, const Tensor& x, Size2d kernel, Size2d stride,
                            Size2d padding, Size2d dilation);

}  // namespace heed
