// Operations whose weight is kept as 8-bit integers. Private to core: not installed.
#pragma once

#include <heed/core/ops.h>

namespace heed::detail {

/// linear() of a weight that is_int8(). What is recorded, and other inputs than f32, it refuses.
Tensor int8_linear(const Tensor& x, const Tensor& weight, const Tensor& bias, const LinearOptions& options);

}  // namespace heed::detail
