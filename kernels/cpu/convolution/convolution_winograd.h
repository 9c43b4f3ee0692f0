// Convolution by a 3 x 3 window, whose sums Winograd's F(2 x 2, 3 x 3) makes with 16 multiplications in place
// of
// 36. Not installed.
#pragma once

#include <heed/kernels/convolution.h>

namespace heed::cpu {

/// Whether it is faster for a shape. Its gradients then are by the same means.
bool uses_winograd(const kernels::ConvolutionSizes& sizes);

template <class T>
void winograd_forward(const kernels::ConvolutionForward<T>& args);

/// gx, or gweight; neither null.
template <class T>
void winograd_input_gradient(const kernels::ConvolutionBackward<T>& args);
template <class T>
void winograd_weight_gradient(const kernels::ConvolutionBackward<T>& args);

}  // namespace heed::cpu
