// Walking an index space of several strided operands, a thread an element.
#pragma once

#include <cstdint>

#include <heed/core/base/strided.h>
#include <heed/kernels/simt/simt.h>

namespace heed::cuda {

/// Division of n < 2^31 by a number that the host knows, as a product.
struct Divisor {
  uint32_t multiplier, shift;

  Divisor() = default;
  explicit Divisor(uint32_t divisor) : shift(0) {
    while ((uint64_t{1} << shift) < divisor) ++shift;
    multiplier =
        static_cast<uint32_t>((uint64_t{1} << 32) * ((uint64_t{1} << shift) - divisor) / divisor + 1);
  }

  __device__ __forceinline__ uint32_t quotient(uint32_t n) const {
    return (__umulhi(n, multiplier) + n) >> shift;
  }
};

/// Strided<kOperands> with the innermost axis first, ready for division.
template <int kOperands>
struct IndexSpace {
  int rank;
  bool small;  // fewer than 2^31 elements
  int64_t sizes[kMaxRank];
  Divisor divisors[kMaxRank];
  int64_t strides[kMaxRank][kOperands];

  IndexSpace() = default;
  explicit IndexSpace(const Strided<kOperands>& index)
      : rank(index.rank), small(index.count() < int64_t{1} << 31), strides{} {
    for (int axis = 0; axis < rank; ++axis) {
      const int from = rank - 1 - axis;
      sizes[axis] = index.sizes[from];
      divisors[axis] = Divisor(small && sizes[axis] > 0 ? static_cast<uint32_t>(sizes[axis]) : 1);
      for (int k = 0; k < kOperands; ++k) strides[axis][k] = index.strides[k][from];
    }
  }

  /// Where element number i, in row-major order, of each operand is.
  __device__ __forceinline__ void locate(int64_t (&at)[kOperands], int64_t i) const {
#pragma unroll
    for (int k = 0; k < kOperands; ++k) at[k] = 0;
#pragma unroll
    for (int axis = 0; axis < kMaxRank; ++axis) {
      int64_t place = i;
      const bool last = axis + 1 >= rank;  // it takes what is left
      if (!last) {
        i = small ? divisors[axis].quotient(static_cast<uint32_t>(i)) : i / sizes[axis];
        place -= i * sizes[axis];
      }
#pragma unroll
      for (int k = 0; k < kOperands; ++k) at[k] += place * strides[axis][k];
      if (last) break;
    }
  }
};

}  // namespace heed::cuda
