// The dropout of neighbouring elements.
#pragma once

#include <cstdint>

#include <heed/core/base/philox.h>
#include <heed/kernels/simt/simt.h>

namespace heed::cuda {

inline constexpr int kDropoutGroup = 8;  // elements that one draw decides on

/// Drops and scales elements [first, first + kWidth) of a tensor; kWidth divides the group, and first is a
/// multiple of kWidth.
template <int kWidth>
__device__ __forceinline__ void apply_dropout(float (&v)[kWidth], const Dropout& dropout, int64_t first) {
  static_assert(kDropoutGroup % kWidth == 0);
  if (!dropout.active()) return;
  const DropoutBits draw = dropout_bits(dropout.rng, first / kDropoutGroup);
  const int start = kWidth == kDropoutGroup ? 0 : static_cast<int>(first % kDropoutGroup);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    v[i] = draw.bits(start + i) >= dropout.threshold ? v[i] * dropout.scale : 0.0f;
  }
}

}  // namespace heed::cuda
