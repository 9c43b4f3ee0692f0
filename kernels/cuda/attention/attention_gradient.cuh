// The backward of sixteen queries, or of sixteen keys, by one warp. Weights are made again from the
// log-sum-exp.
#pragma once

#include <heed/kernels/cuda/attention/attention_pairs.cuh>

namespace heed::cuda {

using Bf16Backward = AttentionBackward<bfloat16>;

/// Where what the backward knows of queries is: what is taken off their scores, and Σ gout * out.
struct QueryValues {
  float *shift, *delta;

  __device__ __forceinline__ QueryValues from(int64_t query) const { return {shift + query, delta + query}; }
};

/// Where a warp reads all that it needs of queries, in shared memory.
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

/// What is taken off a query's scores, in units of log 2: its log-sum-exp, or +inf where it sees nothing, for
/// weights of 0.
__device__ __forceinline__ float shift_of(float lse) { return lse == -kInfinity ? kInfinity : lse * kLog2e; }

/// Writes the values of sixteen queries from `query` on, those of weights of 0 behind the last.
template <int kWidth>
__device__ __forceinline__ void write_query_values(const QueryValues& to, const Bf16Backward& args,
                                                   const BatchHead& p, int query) {
  const int64_t row = p.query_first + query;
  write_deltas<kWidth>(to.delta, args, row, p.head, p.queries - query);
  if (const int i = lane_id(); i < kTile)
    to.shift[i] = query + i < p.queries ? shift_of(args.lse[p.head * args.query_rows + row + i]) : kInfinity;
}

/// A lane's values of sixteen queries from `row` on.
template <RowsAre kRows>
struct LaneQueries {
  static constexpr int kCount = kRows == RowsAre::queries ? 2 : 4;

  float shift[kCount], delta[kCount];

  __device__ __forceinline__ void load(const QueryValues& values, int row) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int query =
          row + (kRows == RowsAre::queries ? lane_id() / 4 + i * 8 : i / 2 * 8 + lane_id() % 4 * 2 + i % 2);
      shift[i] = values.shift[query];
      delta[i] = values.delta[query];
    }
  }

  /// Which of them element i of the n-th half of a block belongs to.
  static __device__ __forceinline__ int of(int n, int i) {
    return kRows == RowsAre::queries ? i / 2 : n * 2 + i % 2;
  }
};

__device__ __forceinline__ float dropout_scale(const Bf16Backward& args) {
  return args.dropout.active() ? args.dropout.scale : 1.0f;
}

/// A block of scores, but for a factor, and of the gradients of weights becomes weights, zero where dropped
/// (their scale is left to the end), and gradients of scores. Its decisions are in `kept` from (row, group)
/// on.
template <RowsAre kRows>
__device__ __forceinline__ void pair_gradients(float (*weight)[4], float (*gradient)[4], float factor,
                                               const LaneQueries<kRows>& queries, const Bf16Backward& args,
                                               const KeptKeys& kept, int row, int group) {
  const auto each = [&]<bool kDropout>() {
    if constexpr (kDropout) __syncwarp();  // or decisions are loaded before, for which there are no registers
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int of = LaneQueries<kRows>::of(n, i);
        const float w = simt::exp2_approx(fmaf(weight[n][i], factor, -queries.shift[of]));
        const float keep = kDropout ? kept.kept<kRows>(row, group, n, i) : 1.0f;
        if constexpr (kDropout) gradient[n][i] *= keep * args.dropout.scale;
        gradient[n][i] = w * (gradient[n][i] - queries.delta[of]);
        weight[n][i] = w * keep;
      }
  };
  kept.active() ? each.template operator()<true>() : each.template operator()<false>();
}

/// Adds to the gradients of kRows queries from `query` on what kKeys keys from `key` on give: rows [0, kKeys)
/// of `keys`. Masked: sixteen keys, of which some may be hidden; otherwise Pairs::seen() said that none is.
/// (row, group) is where the dropout decisions are.
template <int kKeys, bool kMasked, int kWidth, int kRows, bool kInRegisters>
__device__ __forceinline__ void add_query_gradients(
    Sums<kWidth> (&gq)[kRows / kTile], const Operand<kWidth, kRows, kInRegisters>& q,
    const Operand<kWidth, kRows, kInRegisters>& gout,
    const LaneQueries<RowsAre::queries> (&values)[kRows / kTile], const Bf16Backward& args,
    const Pairs<Bf16Backward>& pairs, const KeptKeys& kept, int row, int group, int query,
    const KeyTile& keys, int key) {
  static_assert(!kMasked || kKeys == kTile);
  constexpr int kBlocks = kRows / kTile;
  [[maybe_unused]] BlockVisibility seen[kBlocks];
  if constexpr (kMasked)
    if (!pairs.template prepare<RowsAre::queries>(seen, query, key)) return;
  float weight[kBlocks][kKeys / 8][4], gradient[kBlocks][kKeys / 8][4];
  q.template multiply<kKeys>(weight, keys.k, 0);
  gout.template multiply<kKeys>(gradient, keys.v, 0);
  if constexpr (kMasked) pairs.template scores<RowsAre::queries>(weight, seen);
#pragma unroll
  for (int t = 0; t < kBlocks; ++t)
#pragma unroll
    for (int n = 0; n < kKeys / 8; n += 2)
      pair_gradients<RowsAre::queries>(weight[t] + n, gradient[t] + n, kMasked ? 1.0f : pairs.scale(),
                                       values[t], args, kept, row + t * kTile, group + n);
  add_weighted(gq, gradient, keys.k, 0);
}

/// Adds to the gradients of kRows keys from `key` on what kQueries queries from `query` on give: rows
/// [0, kQueries) of `queries`; likewise.
template <int kQueries, bool kMasked, int kWidth, int kRows, bool kInRegisters>
__device__ __forceinline__ void add_key_gradients(Sums<kWidth> (&gk)[kRows / kTile],
                                                  Sums<kWidth> (&gv)[kRows / kTile],
                                                  const Operand<kWidth, kRows, kInRegisters>& k,
                                                  const Operand<kWidth, kRows, kInRegisters>& v,
                                                  const Bf16Backward& args, const Pairs<Bf16Backward>& pairs,
                                                  const KeptKeys& kept, int row, int group, int query,
                                                  const QueryTile& queries, int key) {
  static_assert(!kMasked || kQueries == kTile);
  constexpr int kBlocks = kRows / kTile;
  [[maybe_unused]] BlockVisibility seen[kBlocks];
  if constexpr (kMasked)
    if (!pairs.template prepare<RowsAre::keys>(seen, query, key)) return;
  float weight[kBlocks][kQueries / 8][4], gradient[kBlocks][kQueries / 8][4];
  k.template multiply<kQueries>(weight, queries.q, 0);
  v.template multiply<kQueries>(gradient, queries.gout, 0);
  if constexpr (kMasked) pairs.template scores<RowsAre::keys>(weight, seen);
#pragma unroll
  for (int n = 0; n < kQueries / 8; n += 2) {
    LaneQueries<RowsAre::keys> values;
    values.load(queries.values, n * 8);
#pragma unroll
    for (int t = 0; t < kBlocks; ++t)
      pair_gradients<RowsAre::keys>(weight[t] + n, gradient[t] + n, kMasked ? 1.0f : pairs.scale(), values,
                                    args, kept, row + n * 8, group + t * 2);
  }
  add_weighted(gv, weight, queries.gout, 0);
  add_weighted(gk, gradient, queries.q, 0);
}

/// Writes the gradients of a warp's queries from `query` on.
template <int kWidth, int kTiles>
__device__ __forceinline__ void write_query_gradients(const Sums<kWidth> (&gq)[kTiles],
                                                      const Bf16Backward& args, const BatchHead& p, int query,
                                                      float* scratch) {
  const float scale = static_cast<float>(args.scale);
  if (all_finite(gq, p.queries - query)) {
    write_rows(gq, args.gq, p.query_first + query, p.head, p.queries - query, scale, args.accumulate_q);
    return;
  }
  __syncwarp();
  for (int i = query; i < query + kTiles * kTile && i < p.queries; ++i)  // perhaps 0 * NaN of a hidden key
    query_gradient(args, p, i, delta_of(args, p.query_first + i, p.head, lane_id()),
                   WarpRows(scratch, kWidth, 1));
}

/// Writes the gradients of a warp's keys from `key` on.
template <int kWidth, int kTiles>
__device__ __forceinline__ void write_key_gradients(const Sums<kWidth> (&gk)[kTiles],
                                                    const Sums<kWidth> (&gv)[kTiles],
                                                    const Bf16Backward& args, const BatchHead& p, int key,
                                                    float* scratch) {
  const int valid = p.keys - key;
  const int64_t row = p.key_first + key;
  if ((args.gk.data == nullptr || all_finite(gk, valid)) &&
      (args.gv.data == nullptr || all_finite(gv, valid))) {
    if (args.gk.data != nullptr)
      write_rows(gk, args.gk, row, p.key_head, valid, static_cast<float>(args.scale), args.accumulate_k);
    if (args.gv.data != nullptr)
      write_rows(gv, args.gv, row, p.key_head, valid, dropout_scale(args), args.accumulate_v);
    return;
  }
  __syncwarp();
  for (int i = key; i < key + kTiles * kTile && i < p.keys; ++i)
    key_gradient(
        args, p.sequence, p.key_head, i,
        [&](int64_t query_row, int64_t head) {
          return dot(row_of(args.gout, query_row, head), row_of(args.out, query_row, head), kWidth);
        },
        WarpRows(scratch, kWidth, 2));
}

}  // namespace heed::cuda
