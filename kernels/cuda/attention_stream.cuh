// How the flash kernels are cut: a block keeps 64 queries or keys and lets tiles of the other stream past.
#pragma once

#include <heed/kernels/cuda/attention_tile.cuh>

namespace heed::cuda {

inline constexpr int kStreamWarps = 4, kStreamThreads = kStreamWarps * 32, kStreamRows = kStreamWarps * kTile;

/// The block's sequence and the first of its 64 rows there, `blocks` blocks a sequence; the later ones begin
/// first if `reversed`, as a causal query has the more keys the later it is.
struct StreamTask {
  int sequence, first;

  __device__ __forceinline__ StreamTask(int64_t blocks, bool reversed)
      : sequence(static_cast<int>(blockIdx.x / static_cast<unsigned>(blocks))) {
    const int block = static_cast<int>(blockIdx.x % static_cast<unsigned>(blocks));
    first = (reversed ? static_cast<int>(blocks) - 1 - block : block) * kStreamRows;
  }
};

/// Begins to copy a tile full of rows, from row `first` on, zeros from the `valid`-th on: by the whole block.
template <int kWidth, int kElements>
__device__ __forceinline__ void stream(bfloat16 (&tile)[kElements],
                                       const kernels::HeadsView<const bfloat16>& view, int64_t first,
                                       int head, int valid) {
  Tile<kWidth>::load(tile, view, first, head, kElements / kWidth, valid, static_cast<int>(threadIdx.x),
                     kStreamThreads);
}

/// f with the head width that the flash kernels are compiled for.
template <class F>
void with_width(int64_t width, F f) {
  if (width == 16) return f(std::integral_constant<int, 16>());
  if (width == 32) return f(std::integral_constant<int, 32>());
  if (width == 64) return f(std::integral_constant<int, 64>());
  f(std::integral_constant<int, 128>());
}

}  // namespace heed::cuda
