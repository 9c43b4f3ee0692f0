// The forward of sixteen queries by one warp: softmax over tiles of keys, each seen once (Milakov and
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

/// Lane l has rows l / 4 and l / 4 + 8.
template <int kWidth>
class OnlineSoftmax {
 public:
  /// Takes in kKeys keys from `key` on, in rows [0, kKeys) of the tiles k and v; (row, group) is where the
  /// dropout decisions of `query` and `key` are.
  template <int kKeys>
  __device__ __forceinline__ void add(const Operand<kWidth>& q, const bfloat16* k, const bfloat16* v,
                                      const Pairs<AttentionForward<bfloat16>>& pairs, const KeptKeys& kept,
                                      int row, int query, int key, int keys) {
    float score[kKeys / kTile][2][4];
    float most[2] = {most_[0], most_[1]};
    uint32_t hidden = 0;  // a bit for each block of keys
#pragma unroll
    for (int j = 0; j < kKeys / kTile; ++j) {
      const BlockVisibility seen =
          key + j * kTile < keys ? pairs.prepare(query, key + j * kTile) : BlockVisibility::none;
      if (seen == BlockVisibility::none) {
        hidden |= 1u << j;
#pragma unroll
        for (int i = 0; i < 4; ++i) score[j][0][i] = score[j][1][i] = -kInfinity;
      } else {
        q.multiply(score[j], k, j * kTile);
        pairs.template scores<RowsAre::queries>(score[j], seen);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) most[i / 2] = fmaxf(most[i / 2], fmaxf(score[j][0][i], score[j][1][i]));
    }
    float shift[2];
    rescale(most, shift);
#pragma unroll
    for (int j = 0; j < kKeys / kTile; ++j) {
      if (hidden >> j & 1) continue;
#pragma unroll
      for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          score[j][n][i] = simt::exp2_approx(score[j][n][i] - shift[i / 2]);
          total_[i / 2] += score[j][n][i];
        }
      if (kept.active())
#pragma unroll
        for (int n = 0; n < 2; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i) score[j][n][i] *= kept.kept<RowsAre::queries>(row, j * 2, n, i);
      out_.add(score[j][0], score[j][1], v, j * kTile);
    }
  }

  /// Writes the output and log-sum-exp of queries from `query` on.
  __device__ __forceinline__ void write(const AttentionForward<bfloat16>& args, const BatchHead& p, int query,
                                        float* scratch) {
    const int valid = p.queries - query;
    float scale[2];
    total_[0] = row_sum(total_[0]);
    total_[1] = row_sum(total_[1]);
#pragma unroll
    for (int half = 0; half < 2; ++half)
      scale[half] =
          total_[half] == 0.0f ? 0.0f : (args.dropout.active() ? args.dropout.scale : 1.0f) / total_[half];
    const int64_t row = p.query_first + query;
    if (!out_.finite(valid)) {  // perhaps 0 * NaN of a hidden key
      __syncwarp();
      for (int i = 0; i < kTile && i < valid; ++i)
        attend_query(args, p, query + i, WarpRows(scratch, kWidth, 1));
      return;
    }
    out_.write(row_of(args.out, row, p.head), args.out.row_stride, valid, scale, false);
    if (args.lse == nullptr || lane_id() % 4 != 0) return;
#pragma unroll
    for (int half = 0; half < 2; ++half)
      if (const int i = lane_id() / 4 + half * 8; i < valid)
        args.lse[p.head * args.query_rows + row + i] =
            total_[half] == 0.0f ? -kInfinity : (most_[half] + log2f(total_[half])) * kLn2;
  }

 private:
  // To the larger maximum of each row; shift is what to take off the scores.
  __device__ __forceinline__ void rescale(float (&most)[2], float (&shift)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      most[half] = row_max(most[half]);
      shift[half] = most[half] == -kInfinity ? 0.0f : most[half];
      const float factor = simt::exp2_approx(most_[half] - shift[half]);
      most_[half] = most[half];
      total_[half] *= factor;
#pragma unroll
      for (int n = 0; n < kWidth / 8; ++n) {
        out_.value[n][2 * half] *= factor;
        out_.value[n][2 * half + 1] *= factor;
      }
    }
  }

  Sums<kWidth> out_;
  float most_[2] = {-kInfinity, -kInfinity}, total_[2] = {};
};

}  // namespace heed::cuda
