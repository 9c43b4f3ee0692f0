// Rows written in place by index.
#pragma once

#include <heed/core/tensor.h>

namespace heed {

/// Row index[i] of x becomes row i of source; an index of kNoToken (-1) writes nothing. In place and never
/// recorded, as copy_() of Tensor; index_put() of core/ops.h is recorded and leaves x as it is. x [rows, …]
/// has no gaps, index is i64 [count] and no two of it are equal, source is [count, …] in memory of its own.
/// ShapeError, DTypeError unless both are of one floating-point type, DeviceError, IndexError, AliasError,
/// AutogradError.
void index_put_(const Tensor& x, const Tensor& index, const Tensor& source);

}  // namespace heed
