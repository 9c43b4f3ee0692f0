// How the flash kernels are cut: a block keeps the queries or keys of its four warps and lets tiles of the
// other stream past.
#pragma once

#include <heed/kernels/cuda/attention/attention_tile.cuh>

namespace heed::cuda {

inline constexpr int kStreamWarps = 4, kStreamThreads = kStreamWarps * 32;

/// Blocks of a multiprocessor that the compiler has to leave registers for.
template <int kWidth>
inline constexpr int kStreamBlocks = kWidth == 16 ? 3 : 2;

/// The block's sequence and the first of its kRows rows there, `blocks` blocks a sequence; the later ones
/// begin first if `reversed`, as a causal query has the more keys the later it is.
template <int kRows>
struct StreamTask {
  int sequence, first;
  int threads;  // of those that take the sequence and a head

  __device__ __forceinline__ StreamTask(int64_t blocks, bool reversed)
      : sequence(static_cast<int>(blockIdx.x / static_cast<unsigned>(blocks))),
        threads(static_cast<int>(blocks) * kStreamThreads) {
    const int block = static_cast<int>(blockIdx.x % static_cast<unsigned>(blocks));
    first = (reversed ? static_cast<int>(blocks) - 1 - block : block) * kRows;
  }

  __device__ __forceinline__ int thread() const {
    return first / kRows * kStreamThreads + static_cast<int>(threadIdx.x);
  }
};

/// Copies of a head's rows by the whole block, kRows at a time: a thread's part.
template <int kWidth, int kRows>
class TileCopy {
 public:
  using Tile = cuda::Tile<kWidth>;
  static constexpr int kStep = kStreamThreads / Tile::kChunks;  // rows that are copied at once
  static_assert(kRows % kStep == 0 && kStep % 8 == 0);  // so that chunks lie the same way in all of them

  /// Of rows from `first` on.
  __device__ __forceinline__ TileCopy(const kernels::HeadsView<const bfloat16>& view, int64_t first, int head)
      : row_(static_cast<int>(threadIdx.x) / Tile::kChunks),
        to_(Tile::offset(row_, static_cast<int>(threadIdx.x) % Tile::kChunks)),
        stride_(static_cast<int>(view.row_stride)),
        from_(row_of(view, first + row_, head) + static_cast<int>(threadIdx.x) % Tile::kChunks * 8) {}

  /// Begins to copy the next tile, with zeros from its `valid`-th row on.
  __device__ __forceinline__ void next(bfloat16* tile, int valid) {
    bfloat16* const to = tile + to_;
    const int64_t stride =
        simt::opaque(stride_);  // 32 bits times a constant: an instruction for each address
#pragma unroll
    for (int i = 0; i < kRows; i += kStep)
      simt::cp_async<16>(to + i * kWidth, from_ + i * stride, i < valid - row_);
    from_ += kRows * stride;
  }

  /// Passes over elements.
  __device__ __forceinline__ void skip(int64_t elements) { from_ += elements; }

 private:
  int row_, to_, stride_;
  const bfloat16* from_;
};

/// Begins to copy a tile full of rows, from row `first` on, zeros from the `valid`-th on: by the whole block.
template <int kWidth, int kElements>
__device__ __forceinline__ void stream(bfloat16 (&tile)[kElements],
                                       const kernels::HeadsView<const bfloat16>& view, int64_t first,
                                       int head, int valid) {
  TileCopy<kWidth, kElements / kWidth>(view, first, head).next(tile, valid);
}

/// The tiles of kRows keys that some of a block's kQueries queries see, in order, each on its way while the
/// one before is worked on.
template <int kWidth, int kQueries, int kRows, class Args>
class KeyStream {
 public:
  struct Memory {
    bfloat16 k[2][kRows * kWidth], v[2][kRows * kWidth];
  };

  /// Begins to copy the first tile for queries from `query` on.
  __device__ __forceinline__ KeyStream(const Args& args, const BatchHead& plane, int query, Memory& memory)
      : args_(args),
        plane_(plane),
        memory_(memory),
        copy_k_(args.k, plane.key_first, plane.key_head),
        copy_v_(args.v, plane.key_first, plane.key_head),
        query_(query),
        end_(plane.keys),
        walks_(args.visibility.has_window() || args.visibility.blocks.given()) {
    const int last = query + kQueries - 1;
    if (hides_later(args.visibility.causal))
      end_ = min(end_, static_cast<int>(args.visibility.diagonal(last, plane.queries, plane.keys)) + 1);
    find();
    load(0);
  }

  /// On to the next tile, if there is one: by the whole block, which is then done with the one before.
  __device__ __forceinline__ bool next() {
    if (next_ >= end_) return false;
    simt::cp_async_wait<0>();
    __syncthreads();
    key_ = next_;
    stage_ ^= 1;
    next_ += kRows;
    find();
    load(stage_ ^ 1);
    return true;
  }

  __device__ __forceinline__ int key() const { return key_; }  // the first of the tile
  __device__ __forceinline__ const bfloat16* k() const { return memory_.k[stage_]; }
  __device__ __forceinline__ const bfloat16* v() const { return memory_.v[stage_]; }

 private:
  // To the first tile from next_ on that may be seen.
  __device__ __forceinline__ void find() {
    if (!walks_) return;
    const int query = simt::opaque(query_);  // less to keep in registers from tile to tile
    const int found =
        args_.visibility.next_key(query, query + kQueries, next_, kRows, plane_.queries, plane_.keys);
    copy_k_.skip((found - next_) * args_.k.row_stride);
    copy_v_.skip((found - next_) * args_.v.row_stride);
    next_ = found;
  }

  __device__ __forceinline__ void load(int stage) {
    if (next_ >= end_) return;
    copy_k_.next(memory_.k[stage], plane_.keys - next_);
    copy_v_.next(memory_.v[stage], plane_.keys - next_);
    simt::cp_async_commit();
  }

  const Args& args_;
  const BatchHead& plane_;
  Memory& memory_;
  TileCopy<kWidth, kRows> copy_k_, copy_v_;
  int query_, end_, next_ = 0, key_ = 0, stage_ = 1;  // end_: of what a causal rule shows
  bool walks_;                                        // a window or a pattern may leave tiles out
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
