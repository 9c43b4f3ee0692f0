// From products of queries and keys to scores, for the kernels that take sixteen of each at a time: what is
// visible, what is added, what dropout keeps. Scores here are in units of log 2, so that weights are powers
// of two.
#pragma once

#include <heed/kernels/cuda/attention/attention_generic.cuh>
#include <heed/kernels/cuda/attention/attention_tile.cuh>

namespace heed::cuda {

inline constexpr float kLog2e = 1.44269504088896341f, kLn2 = 0.693147180559945309f;

/// Which way round a warp holds a block of pairs: queries as its rows, or keys.
enum class RowsAre { queries, keys };

/// A warp's view of the pairs of one plane.
template <class Args>
class Pairs {
 public:
  static constexpr int kTermStride = 24;                // floats: no bank conflicts of either way round
  static constexpr int kScratch = kTile * kTermStride;  // floats of a warp's own shared memory

  __device__ __forceinline__ Pairs(const Args& args, const BatchHead& plane, float* scratch)
      : args_(args),
        plane_(plane),
        terms_(scratch),
        scale_(static_cast<float>(args.scale) * kLog2e),
        bare_(args.bias.bias == nullptr && args.bias.mask == nullptr && args.bias.alibi_slopes == nullptr &&
              args.bias.relative == nullptr) {}

  /// What is to be done with a block of sixteen queries and keys; some: terms() were written for it.
  __device__ __forceinline__ BlockVisibility prepare(int query, int key) const {
    BlockVisibility seen =
        args_.visibility.block(query, query + kTile, key, key + kTile, plane_.queries, plane_.keys);
    if (seen == BlockVisibility::all && !(bare_ && key + kTile <= plane_.keys)) seen = BlockVisibility::some;
    if (seen == BlockVisibility::some) write_terms(query, key);
    return seen;
  }

  /// The products of a prepared block become scores, -inf where hidden.
  template <RowsAre kRows>
  __device__ __forceinline__ void scores(float (&product)[2][4], BlockVisibility seen) const {
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
        const float term = kRows == RowsAre::queries ? terms_[row * kTermStride + column]
                                                     : terms_[column * kTermStride + row];
        // What a hidden key holds must not count, NaN included.
        product[n][i] = term == -kInfinity ? term : product[n][i] * scale_ + term;
      }
  }

 private:
  // In a loop over the pairs, so that reads of a bias are side by side and the rules are compiled once.
  __device__ __forceinline__ void write_terms(int query, int key) const {
    __syncwarp();
#pragma unroll 1
    for (int i = lane_id(); i < kTile * kTile; i += 32) {
      const int row = i / kTile, column = i % kTile;
      float term = -kInfinity;
      if (query + row < plane_.queries && key + column < plane_.keys)
        term = score_of(args_, plane_, query + row, key + column, 0.0f) * kLog2e;
      terms_[row * kTermStride + column] = term;
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
    for (int i = lane_id(); i < queries * groups; i += 32) {
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
    const int r = lane_id() / 4 + i / 2 * 8, c = n * 8 + lane_id() % 4 * 2 + i % 2;
    const int query = kRows == RowsAre::queries ? r : c, key = kRows == RowsAre::queries ? c : r;
    return static_cast<float>(bytes_[(row + query) * stride_ + group + key / 8] >> (key % 8) & 1);
  }

 private:
  uint8_t* bytes_;
  int stride_;
};

}  // namespace heed::cuda
