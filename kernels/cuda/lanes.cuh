// How the threads of a block share the terms of a reduction: some lanes for each result, more blocks for each
// where there are few results. The cut depends on the shape alone, and so do the bits.
#pragma once

#include <algorithm>
#include <cstdint>

#include <heed/kernels/cuda/device.cuh>
#include <heed/kernels/cuda/index_space.cuh>
#include <heed/kernels/cuda/vector.cuh>

namespace heed::cuda {

inline constexpr int kLaneThreads = 256;

struct Lanes {
  int64_t results, terms;
  int64_t chunk, chunks;  // terms of a block; blocks of a result
  int lanes;              // threads of a result, a power of two
  bool results_first;     // neighbouring threads work on different results, else on terms of one

  /// `most_chunks` limits the blocks of a result; with 1 they are final.
  Lanes(int64_t result_count, int64_t term_count, bool results_side_by_side, int64_t most_chunks = 512)
      : results(result_count), terms(term_count), results_first(results_side_by_side) {
    constexpr int64_t kBlocks = 1024;  // about as many as keep a GPU busy
    constexpr int64_t kTermsOfAThread = 4, kTermsOfAChunk = 16;
    const auto power_above = [](int64_t n) {
      int power = 1;
      while (power < kLaneThreads && power < n) power *= 2;
      return power;
    };
    const int wide = power_above(terms);
    lanes = results_first ? std::min(wide, kLaneThreads / std::min(32, power_above(results)))
                          : std::max(std::min(32, wide), power_above(terms / kTermsOfAThread));
    const int64_t blocks = simt::ceil_div<int64_t>(results, kLaneThreads / lanes);
    chunks = std::min({most_chunks, kBlocks / blocks, terms / (lanes * kTermsOfAChunk)});
    chunks = std::max<int64_t>(1, chunks);
    chunk = simt::ceil_div(terms, chunks);
  }

  dim3 grid() const {
    return {static_cast<unsigned>(simt::ceil_div<int64_t>(results, kLaneThreads / lanes)),
            static_cast<unsigned>(chunks)};
  }
};

/// A thread's part.
struct LanePlace {
  int lane, slot;               // slot: number of the result in the block
  int64_t result, first, last;  // terms first, first + lanes, … below last

  __device__ __forceinline__ explicit LanePlace(const Lanes& lanes) {
    const int thread = static_cast<int>(threadIdx.x), slots = kLaneThreads / lanes.lanes;
    lane = lanes.results_first ? thread / slots : thread % lanes.lanes;
    slot = lanes.results_first ? thread % slots : thread / lanes.lanes;
    result = int64_t{blockIdx.x} * slots + slot;
    first = blockIdx.y * lanes.chunk + lane;
    last = (int64_t{blockIdx.y} + 1) * lanes.chunk;
    if (last > lanes.terms) last = lanes.terms;
  }
};

template <class A>
struct LaneValues {
  A value[kLaneThreads];
};

/// The values of a result's lanes joined in a balanced tree, in lane 0. All threads of the block call it.
template <class A, class Join>
__device__ __forceinline__ A join_lanes(const Lanes& lanes, const LanePlace& me, A value, Join join) {
  auto& shared = simt::shared<LaneValues<A>>();
  const int slots = kLaneThreads / lanes.lanes, mine = me.lane * slots + me.slot;
  shared.value[mine] = value;
  for (int half = lanes.lanes / 2; half > 0; half /= 2) {
    __syncthreads();
    if (me.lane < half) {
      value = join(value, shared.value[mine + half * slots]);
      shared.value[mine] = value;
    }
  }
  return value;
}

}  // namespace heed::cuda
