// The index space of an elementwise kernel: up to eight axes, with a stride for each operand.
#pragma once

#include <cstdint>

namespace heed {

/// The most axes a tensor may have.
inline constexpr int kMaxRank = 8;

/// Element (i0, i1, …) of operand n is at Σ i[a] * strides[n][a], in elements. Operand 0 is the output.
/// Neighbouring axes that can be walked as one are already merged; rank 0 is a single element.
template <int Operands>
struct Strided {
  int rank;
  int64_t sizes[kMaxRank];
  int64_t strides[Operands][kMaxRank];

  int64_t count() const {
    int64_t product = 1;
    for (int axis = 0; axis < rank; ++axis) product *= sizes[axis];
    return product;
  }

  /// Elements of one operand: an axis that repeats it does not count.
  int64_t count_of(int operand) const {
    int64_t product = 1;
    for (int axis = 0; axis < rank; ++axis) product *= strides[operand][axis] == 0 ? 1 : sizes[axis];
    return product;
  }
};

}  // namespace heed
