// The sum over the threads of a block.
#pragma once

#include <heed/kernels/simt/simt.h>

namespace heed::cuda {

template <int kThreads, class A>
struct WarpSumsOfBlock {
  A value[kThreads / 32];
};

/// The sum of all threads' values, the same bits in each of them: by warps, then over the warps in order. All
/// kThreads threads of the block, whole warps, call it.
template <int kThreads, class A>
__device__ __forceinline__ A block_sum(A value) {
  auto& shared = simt::shared<WarpSumsOfBlock<kThreads, A>>();
  value = simt::warp_sum(value);
  __syncthreads();  // an earlier sum has been read
  if (threadIdx.x % 32 == 0) shared.value[threadIdx.x / 32] = value;
  __syncthreads();
  A sum = 0;
  for (int warp = 0; warp < kThreads / 32; ++warp) sum += shared.value[warp];
  return sum;
}

}  // namespace heed::cuda
