// The block of a grid that finishes what all have begun, in an order of its own: no other launch is needed
// for that, and no block waits.
#pragma once

#include <heed/kernels/simt/simt.h>

namespace heed::cuda {

struct LastBlock {
  bool is_last;
};

/// Whether all other blocks have come here before: then what any of their threads wrote before can be read.
/// All threads of every block call it once. counter: of launch_counter(), and 0 again after the last block.
__device__ __forceinline__ bool is_last_block(unsigned* counter) {
  auto& shared = simt::shared<LastBlock>();
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) shared.is_last = atomicInc(counter, gridDim.x - 1) == gridDim.x - 1;
  __syncthreads();
  if (!shared.is_last) return false;
  __threadfence();
  return true;
}

}  // namespace heed::cuda
