// The backward of sixteen queries, or of sixteen keys, by one warp. Weights are made again from the
// log-sum-exp.
#pragma once

#include <heed/kernels/cuda/attention/attention_pairs.cuh>

namespace heed::cuda {

using Bf16Backward = AttentionBackward<bfloat16>;

/// Where a warp reads log-sum-exp and delta of queries.
struct QueryValues {
  const float *lse, *delta;
};

/// Where it reads all that it needs of them, in shared memory.
struct QueryTile {
  const bfloat16 *q, *gout;
  QueryValues values;
};

/// Likewise for keys.
struct KeyTile {
  const bfloat16 *k, *v;
};

/// Begins to copy `rows` values, zeros from `valid` on.
__device__ __forceinline__ void load_values(float* to, const float* from, int rows, int valid, int thread,
                                            int threads) {
  for (int i = thread; i < rows; i += threads)
    simt::cp_async<4>(to + i, i < valid ? from + i : from, i < valid);
}

/// delta[i] = Σ gout * out of sixteen queries from row `row` on, 0 from `valid` on.
template <int kWidth>
__device__ __forceinline__ void write_deltas(float* delta, const Bf16Backward& args, int64_t row,
                                             int64_t head, int valid) {
  constexpr int kLanes = kWidth / 8;  // of a row
  const int chunk = lane_id() % kLanes;
  for (int i = lane_id() / kLanes; i < kTile; i += 32 / kLanes) {
    float sum = 0.0f;
    if (i < valid) {
      float gout[8], out[8];
      cuda::load<8>(gout, row_of(args.gout, row + i, head) + chunk * 8);
      cuda::load<8>(out, row_of(args.out, row + i, head) + chunk * 8);
#pragma unroll
      for (int c = 0; c < 8; ++c) sum += gout[c] * out[c];
    }
#pragma unroll
    for (int step = 1; step < kLanes; step *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (chunk == 0) delta[i] = sum;
  }
}

/// A block of scores and of the gradients of weights becomes weights, zero where dropped (their scale is left
/// to the end), and gradients of scores. The block's queries are in `queries` from `row` on, its decisions in
/// `kept` from (row, group) on; `scale` is dropout's.
template <RowsAre kRows>
__device__ __forceinline__ void pair_gradients(float (&weight)[2][4], float (&gradient)[2][4],
                                               const QueryValues& queries, int row, const KeptKeys& kept,
                                               int group, float scale) {
  const auto each = [&]<bool kDropout>() {
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int query =
            row + (kRows == RowsAre::queries ? lane_id() / 4 + i / 2 * 8 : n * 8 + lane_id() % 4 * 2 + i % 2);
        const float lse = queries.lse[query];
        // A query that sees nothing has a log-sum-exp of -inf, and weights of 0.
        const float w = simt::exp2_approx(weight[n][i] - (lse == -kInfinity ? kInfinity : lse * kLog2e));
        const float keep = kDropout ? kept.kept<kRows>(row, group, n, i) : 1.0f;
        gradient[n][i] = w == 0.0f ? 0.0f : w * (gradient[n][i] * keep * scale - queries.delta[query]);
        weight[n][i] = w * keep;
      }
  };
  kept.active() ? each.template operator()<true>() : each.template operator()<false>();
}

__device__ __forceinline__ float dropout_scale(const Bf16Backward& args) {
  return args.dropout.active() ? args.dropout.scale : 1.0f;
}

/// Adds to the gradient of sixteen queries, rows [row, row + 16) of `queries`, what keys [key, key + count)
/// give: rows [0, count) of `keys`, their decisions from byte 0 on.
template <int kWidth, bool kInRegisters>
__device__ __forceinline__ void add_query_gradients(Sums<kWidth>& gq, const Operand<kWidth, kInRegisters>& q,
                                                    const Operand<kWidth, kInRegisters>& gout,
                                                    const Bf16Backward& args,
                                                    const Pairs<Bf16Backward>& pairs, const KeptKeys& kept,
                                                    const QueryValues& queries, int row, int query,
                                                    const KeyTile& keys, int key, int count) {
#pragma unroll 1
  for (int j = 0; j < count; j += kTile) {
    const BlockVisibility seen = pairs.prepare(query, key + j);
    if (seen == BlockVisibility::none) continue;
    float weight[2][4], gradient[2][4];
    q.multiply(weight, keys.k, j);
    gout.multiply(gradient, keys.v, j);
    pairs.template scores<RowsAre::queries>(weight, seen);
    pair_gradients<RowsAre::queries>(weight, gradient, queries, row, kept, j / 8, dropout_scale(args));
    gq.add(gradient[0], gradient[1], keys.k, j);
  }
}

/// Adds to the gradients of sixteen keys what queries [query, query + count) give: rows [0, count) of
/// `queries`; the decisions of the keys are at byte `group` of each row.
template <int kWidth, bool kInRegisters>
__device__ __forceinline__ void add_key_gradients(Sums<kWidth>& gk, Sums<kWidth>& gv,
                                                  const Operand<kWidth, kInRegisters>& k,
                                                  const Operand<kWidth, kInRegisters>& v,
                                                  const Bf16Backward& args, const Pairs<Bf16Backward>& pairs,
                                                  const KeptKeys& kept, int group, const QueryTile& queries,
                                                  int query, int count, int key) {
#pragma unroll 1
  for (int i = 0; i < count; i += kTile) {
    const BlockVisibility seen = pairs.prepare(query + i, key);
    if (seen == BlockVisibility::none) continue;
    float weight[2][4], gradient[2][4];
    k.multiply(weight, queries.q, i);
    v.multiply(gradient, queries.gout, i);
    pairs.template scores<RowsAre::keys>(weight, seen);
    pair_gradients<RowsAre::keys>(weight, gradient, queries.values, i, kept, group, dropout_scale(args));
    gv.add(weight[0], weight[1], queries.gout, i);
    gk.add(gradient[0], gradient[1], queries.q, i);
  }
}

/// Writes the gradients of sixteen queries.
template <int kWidth>
__device__ __forceinline__ void write_query_gradients(const Sums<kWidth>& gq, const Bf16Backward& args,
                                                      const BatchHead& p, int query, float* scratch) {
  const int valid = p.queries - query;
  if (gq.finite(valid)) {
    const float scale = static_cast<float>(args.scale);
    gq.write(row_of(args.gq, p.query_first + query, p.head), args.gq.row_stride, valid, {scale, scale},
             args.accumulate_q);
    return;
  }
  __syncwarp();
  for (int i = query; i < query + kTile && i < p.queries; ++i)  // perhaps 0 * NaN of a hidden key
    query_gradient(args, p, i, delta_of(args, p.query_first + i, p.head, lane_id()),
                   WarpRows(scratch, kWidth, 1));
}

/// Writes the gradients of sixteen keys.
template <int kWidth>
__device__ __forceinline__ void write_key_gradients(const Sums<kWidth>& gk, const Sums<kWidth>& gv,
                                                    const Bf16Backward& args, const BatchHead& p, int key,
                                                    float* scratch) {
  const int valid = p.keys - key;
  const int64_t row = p.key_first + key;
  if ((args.gk.data == nullptr || gk.finite(valid)) && (args.gv.data == nullptr || gv.finite(valid))) {
    const float scale = static_cast<float>(args.scale), kept = dropout_scale(args);
    if (args.gk.data != nullptr)
      gk.write(row_of(args.gk, row, p.key_head), args.gk.row_stride, valid, {scale, scale},
               args.accumulate_k);
    if (args.gv.data != nullptr)
      gv.write(row_of(args.gv, row, p.key_head), args.gv.row_stride, valid, {kept, kept}, args.accumulate_v);
    return;
  }
  __syncwarp();
  for (int i = key; i < key + kTile && i < p.keys; ++i)
    key_gradient(
        args, p.sequence, p.key_head, i,
        [&](int64_t query_row, int64_t head) {
          return dot(row_of(args.gout, query_row, head), row_of(args.out, query_row, head), kWidth);
        },
        WarpRows(scratch, kWidth, 2));
}

}  // namespace heed::cuda
