// The index space of several tensors, for the elementwise kernels. Private to core: not installed.
#pragma once

#include <heed/core/base/strided.h>
#include <heed/core/tensor.h>

namespace heed {

namespace detail {
/// Drops axes of size 1, puts the axes into the order of operand 0's strides, and merges neighbours that
/// every operand walks as one.
void merge_axes(int operands, int& rank, int64_t* sizes, int64_t (*strides)[kMaxRank]);
/// Strides of `operand` seen with `shape`, to which it broadcasts.
void broadcast_strides(const Tensor& operand, const Shape& shape, int64_t* strides);
}  // namespace detail

/// The index space of `operands`, the output first, each broadcast to `shape`. An undefined operand, which
/// stands for a scalar, has stride 0.
template <class... Tensors>
Strided<static_cast<int>(sizeof...(Tensors))> strided_index(const Shape& shape, const Tensors&... operands) {
  Strided<static_cast<int>(sizeof...(Tensors))> index{};
  index.rank = shape.rank();
  for (int axis = 0; axis < shape.rank(); ++axis) index.sizes[axis] = shape[axis];
  int k = 0;
  (detail::broadcast_strides(operands, shape, index.strides[k++]), ...);
  detail::merge_axes(k, index.rank, index.sizes, index.strides);
  return index;
}

}  // namespace heed
