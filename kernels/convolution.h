// Convolution (cross-correlation) in two dimensions, with groups. Contract for both devices.
#pragma once

#include <cstdint>

#include <heed/core/base/cost.h>
#include <heed/core/base/dtype.h>
#include <heed/kernels/declare.h>
#include <heed/kernels/window.h>

namespace heed::kernels {

/// y[n, o, i, j] = bias[o] + the sum over c, k, l of w[o, c, k, l] x[n, g + c, i s - p + k d, j s - p + l d],
/// with c below channels / groups and g the first channel of o's group. Beyond x there are zeros.
struct ConvolutionSizes {
  int64_t batch, channels, height, width;  // of x
  int64_t outputs, groups;                 // channels of y; groups divides both
  Window window;

  int64_t out_height() const { return window.positions(height, 0); }
  int64_t out_width() const { return window.positions(width, 1); }
  int64_t pixels() const { return out_height() * out_width(); }
  int64_t group_channels() const { return channels / groups; }
  int64_t group_outputs() const { return outputs / groups; }
  int64_t taps() const { return window.kernel[0] * window.kernel[1]; }
  int64_t depth() const { return group_channels() * taps(); }  // terms of a sum

  Cost product() const { return Cost{2.0 * static_cast<double>(batch * outputs * pixels() * depth()), 0}; }
};

template <class T>
struct ConvolutionForward {
  ConvolutionSizes sizes;
  const T* x;       // [batch, channels, height, width]
  const T* weight;  // [outputs, channels / groups, kernel[0], kernel[1]]
  const T* bias;    // [outputs] or null
  T* y;             // [batch, outputs, out_height, out_width]

  Cost cost() const {
    return sizes.product() + bytes_moved<T>(sizes.batch * (sizes.channels * sizes.height * sizes.width +
                                                           sizes.outputs * sizes.pixels()));
  }
};

template <class T>
struct ConvolutionBackward {
  ConvolutionSizes sizes;
  const T* gy;                // [batch, outputs, out_height, out_width]
  const T* x;                 // with gweight
  const T* weight;            // with gx
  T* gx;                      // [batch, channels, height, width]; null if not wanted
  accumulator_t<T>* gweight;  // the weight's shape; summed in fixed order; null if not wanted
  bool accumulate_x, accumulate_weight;

  Cost cost() const {
    Cost all = bytes_moved<T>(sizes.batch * sizes.outputs * sizes.pixels());
    if (gx) all = all + sizes.product();
    if (gweight) all = all + sizes.product();
    return all;
  }
};

}  // namespace heed::kernels

HEED_KERNEL(convolution_forward, ConvolutionForward);
HEED_KERNEL(convolution_backward, ConvolutionBackward);
