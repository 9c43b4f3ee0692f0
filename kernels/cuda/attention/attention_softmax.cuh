// The forward of sixteen or more queries by one warp: softmax over tiles of keys, each seen once (Milakov and
// Gimelshein, arXiv 1805.02867; Dao, arXiv 2307.08691).
#pragma once

#include <heed/kernels/cuda/attention/attention_pairs.cuh>

namespace heed::cuda {

/// The largest, and the sum, of what the four lanes of a row have.
__device__ __forceinline__ float row_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
__device__ __forceinline__ float row_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

/// Of sixteen queries lane l has rows l / 4 and l / 4 + 8.
template <int kWidth, int kRows, bool kInRegisters = true>
class OnlineSoftmax {
 public:
  __device__ __forceinline__ OnlineSoftmax() {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) most_[t][0] = most_[t][1] = -kInfinity;
  }

  /// Takes in kKeys keys from `key` on, in rows [0, kKeys) of the tiles k and v. Masked: some of them may be
  /// hidden; otherwise Pairs::seen() said that none is. (row, group) is where the dropout decisions of
  /// `query` and `key` are.
  template <int kKeys, bool kMasked>
  __device__ __forceinline__ void add(const Operand<kWidth, kRows, kInRegisters>& q, const bfloat16* k,
                                      const bfloat16* v, const Pairs<AttentionForward<bfloat16>>& pairs,
                                      const KeptKeys& kept, int row, int group, int query, int key,
                                      int keys) {
    float score[kTiles][kKeys / 8][4];
    uint32_t hidden = 0;  // a bit for each sixteen keys
    if constexpr (kMasked)
      hidden = masked_scores<kKeys>(score, q, k, pairs, query, key, keys);
    else
      q.template multiply<kKeys>(score, k, 0);
    const float scale = kMasked ? 1.0f : pairs.scale();  // what is left of it to do
    float shift[kTiles][2];
    rescale<kMasked>(score, scale, shift);
    __syncwarp();  // or the compiler loads values before, for which there are no registers
#pragma unroll
    for (int j = 0; j < kKeys / kTile; ++j) {
      if (hidden >> j & 1) continue;
      float weight[kTiles][2][4];
#pragma unroll
      for (int t = 0; t < kTiles; ++t)
#pragma unroll
        for (int n = 0; n < 2; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            weight[t][n][i] = simt::exp2_approx(fmaf(score[t][2 * j + n][i], scale, -shift[t][i / 2]));
            total_[t][i / 2] += weight[t][n][i];
          }
      if (kept.active())
#pragma unroll
        for (int t = 0; t < kTiles; ++t)
#pragma unroll
          for (int n = 0; n < 2; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i)
              weight[t][n][i] *= kept.kept<RowsAre::queries>(row + t * kTile, group + j * 2, n, i);
      add_weighted(out_, weight, v, j * kTile);
    }
  }

  /// Writes the output and log-sum-exp of queries from `query` on.
  __device__ __forceinline__ void write(const AttentionForward<bfloat16>& args, const BatchHead& p, int query,
                                        float* scratch) {
    if (all_finite(out_, p.queries - query)) {
#pragma unroll
      for (int t = 0; t < kTiles; ++t) write_tile(args, p, query + t * kTile, t);
      return;
    }
    __syncwarp();
    for (int i = query; i < query + kRows && i < p.queries; ++i)  // perhaps 0 * NaN of a hidden key
      attend_query(args, p, i, WarpRows(scratch, kWidth, 1));
  }

 private:
  static constexpr int kTiles = kRows / kTile;

  // Returns the sixteens of keys that are hidden from all queries, of which nothing is multiplied.
  template <int kKeys>
  __device__ __forceinline__ uint32_t masked_scores(float (&score)[kTiles][kKeys / 8][4],
                                                    const Operand<kWidth, kRows, kInRegisters>& q,
                                                    const bfloat16* k,
                                                    const Pairs<AttentionForward<bfloat16>>& pairs, int query,
                                                    int key, int keys) {
    uint32_t hidden = 0;
#pragma unroll
    for (int j = 0; j < kKeys / kTile; ++j) {
      BlockVisibility seen[kTiles] = {};
      const auto set = [&](auto of) {
#pragma unroll
        for (int t = 0; t < kTiles; ++t)
#pragma unroll
          for (int n = 0; n < 2; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i) score[t][2 * j + n][i] = of(t, n, i);
      };
      if (key + j * kTile < keys && pairs.template prepare<RowsAre::queries>(seen, query, key + j * kTile)) {
        float block[kTiles][2][4];
        q.template multiply<kTile>(block, k, j * kTile);
        pairs.template scores<RowsAre::queries>(block, seen);
        set([&](int t, int n, int i) { return block[t][n][i]; });
      } else {
        hidden |= 1u << j;
        set([](int, int, int) { return -kInfinity; });
      }
    }
    return hidden;
  }

  // To the larger maximum of each row; shift is what to take off the scores times scale.
  template <bool kMasked, int kSlices>
  __device__ __forceinline__ void rescale(const float (&score)[kTiles][kSlices][4], float scale,
                                          float (&shift)[kTiles][2]) {
#pragma unroll
    for (int t = 0; t < kTiles; ++t)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float most = fmaxf(score[t][0][2 * half], score[t][0][2 * half + 1]);
#pragma unroll
        for (int n = 1; n < kSlices; ++n)
          most = fmaxf(most, fmaxf(score[t][n][2 * half], score[t][n][2 * half + 1]));
        most = fmaxf(most_[t][half], row_max(most) * scale);
        shift[t][half] = kMasked && most == -kInfinity ? 0.0f : most;
        const float factor = simt::exp2_approx(most_[t][half] - shift[t][half]);
        most_[t][half] = most;
        total_[t][half] *= factor;
#pragma unroll
        for (int n = 0; n < kWidth / 8; ++n) {
          out_[t].value[n][2 * half] *= factor;
          out_[t].value[n][2 * half + 1] *= factor;
        }
      }
  }

  // Those of sixteen queries.
  __device__ __forceinline__ void write_tile(const AttentionForward<bfloat16>& args, const BatchHead& p,
                                             int query, int t) {
    const int valid = p.queries - query;
    float scale[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float total = total_[t][half] = row_sum(total_[t][half]);
      scale[half] = total == 0.0f ? 0.0f : (args.dropout.active() ? args.dropout.scale : 1.0f) / total;
    }
    const int64_t row = p.query_first + query;
    out_[t].write(row_of(args.out, row, p.head), args.out.row_stride, valid, scale, false);
    if (args.lse == nullptr || lane_id() % 4 != 0) return;
#pragma unroll
    for (int half = 0; half < 2; ++half)
      if (const int i = lane_id() / 4 + half * 8; i < valid)
        args.lse[p.head * args.query_rows + row + i] =
            total_[t][half] == 0.0f ? -kInfinity : (most_[t][half] + log2f(total_[t][half])) * kLn2;
  }

  Sums<kWidth> out_[kTiles];
  float most_[kTiles][2], total_[kTiles][2] = {};
};

}  // namespace heed::cuda
