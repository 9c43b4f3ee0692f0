// Moving elements between tensors outside the graph. Private to core: not installed.
#pragma once

#include <heed/core/tensor.h>

namespace heed {

/// to = from, or to += from: from broadcasts to to's shape and is converted; both on one device. Checks
/// nothing: `to` is memory of the caller's own.
void copy_elements(const Tensor& to, const Tensor& from, bool accumulate = false);

/// ConfigError if `dtype` is an integer type that cannot hold `value`.
void check_scalar(double value, DType dtype, const char* operation);

}  // namespace heed
