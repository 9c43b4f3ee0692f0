// From products of queries and keys to scores, for the kernels that take sixteen of each at a time: what is
// visible, what is added, what dropout keeps. Scores here are in units of log 2, so that weights are powers
// of two.
#pragma once

#include <climits>

#include <heed/kernels/cuda/attention/attention_generic.cuh>
#include <heed/kernels/cuda/attention/attention_tile.cuh>

namespace heed::cuda {

inline constexpr float kLog2e = 1.44269504088896341f, kLn2 = 0.693147180559945309f;

/// Which way round a warp holds a block of pairs: queries as its rows, or keys.
enum class RowsAre { queries, keys };

/// Places [begin, end).
struct Range {
  int begin, end;

  __device__ __forceinline__ bool contains(int first, int last) const {
    return begin <= first && last <= end;
  }
};

/// Whether scores are products times what is above 0, so that the largest stays the largest, and no more.
template <class Args>
__device__ __forceinline__ bool are_bare(const Args& args) {
  const auto& b = args.bias;
  return args.scale > 0 && b.bias == nullptr && b.mask == nullptr && b.alibi_slopes == nullptr &&
         b.relative == nullptr;
}

// Tiles within these ranges need no masks: their products only have to be scaled. Other tiles may not need
// them either, as where a window is dilated or tokens are global.

/// Keys that all of `count` queries from `query` on see.
template <class Args>
__device__ __forceinline__ Range plain_keys(const Args& args, const BatchHead& p, int query, int count) {
  const Visibility& v = args.visibility;
  if (!are_bare(args) || v.dilation > 1) return {0, 0};
  const int first = static_cast<int>(v.diagonal(query, p.queries, p.keys)), last = first + count - 1;
  Range range{0, p.keys};
  if (hides_later(v.causal) && first + 1 < range.end) range.end = first + 1;
  if (v.window_right >= 0 && int64_t{first} + v.window_right + 1 < range.end)
    range.end = first + v.window_right + 1;
  if (v.window_left >= 0 && int64_t{last} - v.window_left > 0) range.begin = last - v.window_left;
  return range;
}

/// Queries that see all of `count` keys from `key` on; behind the last query and key there are zeros, which
/// add nothing.
template <class Args>
__device__ __forceinline__ Range plain_queries(const Args& args, const BatchHead& p, int key, int count) {
  const Visibility& v = args.visibility;
  if (!are_bare(args) || v.dilation > 1) return {0, 0};
  const int shift = static_cast<int>(v.diagonal(0, p.queries, p.keys)), first = key - shift,
            last = first + count - 1;
  Range range{0, INT_MAX};
  if (hides_later(v.causal) && last > 0) range.begin = last;
  if (v.window_right >= 0 && last - range.begin > v.window_right) range.begin = last - v.window_right;
  if (v.window_left >= 0 && int64_t{first} + v.window_left + 1 < range.end)
    range.end = first + v.window_left + 1;
  return range;
}

/// A warp's view of the pairs of one plane.
template <class Args>
class Pairs {
 public:
  static constexpr int kTermStride = 24;  // floats: no bank conflicts of either way round
  static constexpr int kScratch =
      kTile * kTermStride;  // floats of a warp's own shared memory, for each block

  __device__ __forceinline__ Pairs(const Args& args, const BatchHead& plane, float* scratch)
      : args_(args),
        plane_(plane),
        terms_(scratch),
        scale_(static_cast<float>(args.scale) * kLog2e),
        bare_(are_bare(args)) {}

  /// What makes scores of products.
  __device__ __forceinline__ float scale() const { return scale_; }

  /// What there is to do with `queries` and `keys` from these on. All: the products only have to be scaled.
  __device__ __forceinline__ BlockVisibility seen(int query, int queries, int key, int keys) const {
    const BlockVisibility seen =
        args_.visibility.block(query, query + queries, key, key + keys, plane_.queries, plane_.keys);
    const bool plain = bare_ && key + keys <= plane_.keys;
    return seen == BlockVisibility::all && !plain ? BlockVisibility::some : seen;
  }

  // Of blocks of sixteen queries and keys, which follow each other down a warp's rows.

  /// What is to be done with each; whether there is something. Some: its terms were written for scores().
  template <RowsAre kRows, int kBlocks>
  __device__ __forceinline__ bool prepare(BlockVisibility (&each)[kBlocks], int query, int key) const {
    bool any = false;
#pragma unroll
    for (int t = 0; t < kBlocks; ++t) {
      const int q = kRows == RowsAre::queries ? query + t * kTile : query,
                k = kRows == RowsAre::keys ? key + t * kTile : key;
      each[t] = seen(q, kTile, k, kTile);
      if (each[t] == BlockVisibility::some) write_terms(terms_ + t * kScratch, q, k);
      any = any || each[t] != BlockVisibility::none;
    }
    return any;
  }

  /// Products of prepared blocks become scores, -inf where hidden.
  template <RowsAre kRows, int kBlocks>
  __device__ __forceinline__ void scores(float (&product)[kBlocks][2][4],
                                         const BlockVisibility (&each)[kBlocks]) const {
#pragma unroll
    for (int t = 0; t < kBlocks; ++t) block_scores<kRows>(product[t], each[t], terms_ + t * kScratch);
  }

 private:
  template <RowsAre kRows>
  __device__ __forceinline__ void block_scores(float (&product)[2][4], BlockVisibility seen,
                                               const float* terms) const {
    if (seen == BlockVisibility::all) {
#pragma unroll
      for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) product[n][i] *= scale_;
      return;
    }
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = lane_id() / 4 + i / 2 * 8, column = n * 8 + lane_id() % 4 * 2 + i % 2;
        const int place = kRows == RowsAre::queries ? row * kTermStride + column : column * kTermStride + row;
        const float term = seen == BlockVisibility::some ? terms[place] : -kInfinity;
        // What a hidden key holds must not count, NaN included.
        product[n][i] = term == -kInfinity ? term : product[n][i] * scale_ + term;
      }
  }

  // In a loop over the pairs, so that reads of a bias are side by side and the rules are compiled once.
  // Opaque: this is seldom done, and the registers that could speed it up are scarce.
  __device__ __forceinline__ void write_terms(float* terms, int query, int key) const {
    BatchHead plane = plane_;
    plane.sequence = simt::opaque(plane.sequence);
    plane.head = simt::opaque(plane.head);
    __syncwarp();
#pragma unroll 1
    for (int i = simt::opaque(lane_id()); i < kTile * kTile; i += 32) {
      const int row = i / kTile, column = i % kTile;
      float term = -kInfinity;
      if (query + row < plane_.queries && key + column < plane_.keys)
        term = score_of(args_, plane, query + row, key + column, 0.0f) * kLog2e;
      terms[row * kTermStride + column] = term;
    }
    __syncwarp();
  }

  const Args& args_;
  const BatchHead& plane_;
  float* terms_;
  float scale_;
  bool bare_;
};

/// Dropout decisions: a bit for each key in a byte for each query and eight keys.
class KeptKeys {
 public:
  __device__ __forceinline__ KeptKeys(uint8_t* bytes, int stride, bool active)
      : bytes_(active ? bytes : nullptr), stride_(stride) {}

  /// Draws `queries` rows of `groups` bytes at (row, group) for queries from `query` on and keys from 8 *
  /// key_group on: by one warp, which may read them afterwards; others must meet with it.
  template <class Args>
  __device__ __forceinline__ void draw(const Args& args, const BatchHead& p, int query, int key_group,
                                       int row, int group, int queries, int groups) const {
    if (!active()) return;
    const auto plane = static_cast<uint32_t>(p.sequence * args.heads + p.head);
    __syncwarp();
#pragma unroll 1
    for (int i = simt::opaque(lane_id()); i < queries * groups; i += 32) {
      const int r = i / groups, g = i % groups;
      const DropoutBits draw = attention_dropout_bits(args.dropout.rng, static_cast<uint32_t>(key_group + g),
                                                      static_cast<uint32_t>(query + r), plane);
      uint32_t byte = 0;
#pragma unroll
      for (int j = 0; j < 8; ++j) byte |= (draw.bits(j) >= args.dropout.threshold ? 1u : 0u) << j;
      bytes_[(row + r) * stride_ + group + g] = static_cast<uint8_t>(byte);
    }
    __syncwarp();
  }

  __device__ __forceinline__ bool active() const { return bytes_ != nullptr; }

  /// For lane l's element i of the n-th half of a block at (row, 8 * group): 1 if it is kept, else 0.
  template <RowsAre kRows>
  __device__ __forceinline__ float kept(int row, int group, int n, int i) const {
    if (!active()) return 1.0f;
    const int lane = simt::opaque(lane_id());
    const int r = lane / 4 + i / 2 * 8, c = n * 8 + lane % 4 * 2 + i % 2;
    const int query = kRows == RowsAre::queries ? r : c, key = kRows == RowsAre::queries ? c : r;
    return static_cast<float>(bytes_[(row + query) * stride_ + group + key / 8] >> (key % 8) & 1);
  }

 private:
  uint8_t* bytes_;
  int stride_;
};

}  // namespace heed::cuda
