// The lines of tensors along one axis, for kernels that work along it. Private to core: not installed.
#pragma once

#include <heed/core/ops/strided_index.h>
#include <heed/core/tensor_impl.h>

namespace heed {

/// The tensor with only the first element along `axis`, and without the axis. Not recorded.
inline Tensor without_axis(const Tensor& x, int axis) {
  Shape shape = x.shape(), strides = x.strides();
  shape.erase(axis);
  strides.erase(axis);
  return make_view(x, shape, strides, x.offset());
}

/// The index space of the lines along `axis`: all other axes of `shape`.
template <class... Tensors>
Strided<static_cast<int>(sizeof...(Tensors))> lines_along(int axis, const Shape& shape,
                                                          const Tensors&... operands) {
  Shape rest = shape;
  rest.erase(axis);
  return strided_index(rest, without_axis(operands, axis)...);
}

}  // namespace heed
