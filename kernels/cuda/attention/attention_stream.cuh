// How the flash kernels are cut: a block keeps 64 queries or keys and lets tiles of the other stream past.
#pragma once

#include <heed/kernels/cuda/attention/attention_tile.cuh>

namespace heed::cuda {

inline constexpr int kStreamWarps = 4, kStreamThreads = kStreamWarps * 32, kStreamRows = kStreamWarps * kTile;

/// Blocks of a multiprocessor that the compiler has to leave registers for.
template <int kWidth>
inline constexpr int kStreamBlocks = kWidth <= 32 ? 3 : 2;

/// The block's sequence and the first of its 64 rows there, `blocks` blocks a sequence; the later ones begin
/// first if `reversed`, as a causal query has the more keys the later it is.
struct StreamTask {
  int sequence, first;
  int threads;  // of those that take the sequence and a head

  __device__ __forceinline__ StreamTask(int64_t blocks, bool reversed)
      : sequence(static_cast<int>(blockIdx.x / static_cast<unsigned>(blocks))),
        threads(static_cast<int>(blocks) * kStreamThreads) {
    const int block = static_cast<int>(blockIdx.x % static_cast<unsigned>(blocks));
    first = (reversed ? static_cast<int>(blocks) - 1 - block : block) * kStreamRows;
  }

  __device__ __forceinline__ int thread() const {
    return first / kStreamRows * kStreamThreads + static_cast<int>(threadIdx.x);
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

/// The tiles of keys that some of 64 queries see, in order, each on its way while the one before is worked
/// on.
template <int kWidth, int kRows, class Args>
class KeyStream {
 public:
  struct Memory {
    bfloat16 k[2][kRows * kWidth], v[2][kRows * kWidth];
  };

  /// Begins to copy the first tile for queries from `query` on.
  __device__ __forceinline__ KeyStream(const Args& args, const BatchHead& plane, int query, Memory& memory)
      : args_(args), plane_(plane), memory_(memory), query_(query), next_(visible_from(0)) {
    load(0);
  }

  /// On to the next tile, if there is one: by the whole block, which is then done with the one before.
  __device__ __forceinline__ bool next() {
    if (next_ >= plane_.keys) return false;
    simt::cp_async_wait<0>();
    __syncthreads();
    key_ = next_;
    stage_ ^= 1;
    next_ = visible_from(key_ + kRows);
    load(stage_ ^ 1);
    return true;
  }

  __device__ __forceinline__ int key() const { return key_; }  // the first of the tile
  __device__ __forceinline__ const bfloat16* k() const { return memory_.k[stage_]; }
  __device__ __forceinline__ const bfloat16* v() const { return memory_.v[stage_]; }

 private:
  __device__ __forceinline__ int visible_from(int key) const {
    return args_.visibility.next_key(query_, query_ + kStreamRows, key, kRows, plane_.queries, plane_.keys);
  }

  __device__ __forceinline__ void load(int stage) {
    if (next_ >= plane_.keys) return;
    const int64_t row = plane_.key_first + next_;
    stream<kWidth>(memory_.k[stage], args_.k, row, plane_.key_head, plane_.keys - next_);
    stream<kWidth>(memory_.v[stage], args_.v, row, plane_.key_head, plane_.keys - next_);
    simt::cp_async_commit();
  }

  const Args& args_;
  const BatchHead& plane_;
  Memory& memory_;
  int query_, next_, key_ = 0, stage_ = 1;
};

/// f with the head width that the flash kernels are compiled for.
template <class F>
void with_width(int64_t width, F f) {
  if (width == 16) return f(std::integral_constant<int, 16>());
  if (width == 32) return f(std::integral_constant<int, 32>());
  if (width == 64) return f(std::integral_constant<int, 64>());
  f(std::integral_constant<int, 128>());
}

}  // namespace heed::cuda
