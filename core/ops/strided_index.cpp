#include <algorithm>

#include <heed/core/base/check.h>
#include <heed/core/ops/strided_index.h>

namespace heed::detail {

void broadcast_strides(const Tensor& operand, const Shape& shape, int64_t* strides) {
  std::fill_n(strides, shape.rank(), 0);
  if (!operand.defined()) return;
  const int shift = shape.rank() - operand.rank();
  HEED_ASSERT(shift >= 0, "operand ", operand.shape(), " in an index space of ", shape);
  for (int axis = 0; axis < operand.rank(); ++axis) {
    if (operand.shape()[axis] == 1) continue;
    HEED_ASSERT(operand.shape()[axis] == shape[shift + axis], "operand ", operand.shape(),
                " in an index space of ", shape);
    strides[shift + axis] = operand.strides()[axis];
  }
}

void merge_axes(int operands, int& rank, int64_t* sizes, int64_t (*strides)[kMaxRank]) {
  const auto move_axis = [&](int from, int to) {
    sizes[to] = sizes[from];
    for (int k = 0; k < operands; ++k) strides[k][to] = strides[k][from];
  };
  int kept = 0;
  for (int axis = 0; axis < rank; ++axis) {
    if (sizes[axis] == 1) continue;
    if (kept != axis) move_axis(axis, kept);
    ++kept;
  }
  rank = kept;

  const auto swap_axes = [&](int a, int b) {
    std::swap(sizes[a], sizes[b]);
    for (int k = 0; k < operands; ++k) std::swap(strides[k][a], strides[k][b]);
  };
  for (int axis = 1; axis < rank; ++axis)  // stable insertion sort, the largest stride first
    for (int a = axis; a > 0 && strides[0][a - 1] < strides[0][a]; --a) swap_axes(a - 1, a);

  const auto walked_as_one = [&](int outer, int inner) {
    for (int k = 0; k < operands; ++k)
      if (strides[k][outer] != strides[k][inner] * sizes[inner]) return false;
    return true;
  };
  kept = 0;
  for (int axis = 1; axis < rank; ++axis) {
    if (walked_as_one(kept, axis)) {
      const int64_t size = sizes[kept] * sizes[axis];
      move_axis(axis, kept);
      sizes[kept] = size;
    } else {
      move_axis(axis, ++kept);
    }
  }
  rank = std::min(rank, kept + 1);
}

}  // namespace heed::detail
