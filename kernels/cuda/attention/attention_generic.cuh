// Attention and its gradients for any element type, width and bias, by one warp for one query or key: all of
// the generic kernels, and what the fast ones do where a number is not finite.
#pragma once

#include <heed/kernels/attention.h>
#include <heed/kernels/cuda/attention/attention_rows.cuh>
#include <heed/kernels/cuda/attention/attention_score.cuh>

namespace heed::cuda {

using kernels::AttentionBackward;
using kernels::AttentionForward;

template <class T>
__device__ __forceinline__ int heads_of_a_key_head(const AttentionBackward<T>& args) {
  return static_cast<int>(static_cast<unsigned>(args.heads) / static_cast<unsigned>(args.key_heads));
}

// A warp walks over 32 keys, or queries, at a time, in step with a pattern's blocks: each such step is in one
// of them, so that the walk leaves out what the pattern hides and only the rule is left to ask.

/// The step after that from `key` on that a query may see; past the last if there is none.
template <class Args>
__device__ __forceinline__ int next_keys(const Args& args, const BatchHead& p, int query, int key) {
  return args.visibility.next_key(query, query + 1, key + 32, 32, p.queries, p.keys);
}

/// Likewise of queries that may see a key, some of them before the first.
template <class Args>
__device__ __forceinline__ int next_queries(const Args& args, const BatchHead& p, int key, int query) {
  return args.visibility.next_query(key, key + 1, query + 32, 32, p.queries, p.keys);
}

/// The output and log-sum-exp of one query. `rows`: one.
template <bool kCapped = false, class T>
__device__ __forceinline__ void attend_query(const AttentionForward<T>& args, const BatchHead& p, int query,
                                             const WarpRows& rows) {
  constexpr float kNothing = -kInfinity;
  const int lane = static_cast<int>(threadIdx.x) % 32, width = static_cast<int>(args.width);
  const int64_t row = p.query_first + query;
  const T* q = row_of(args.q, row, p.head);
  float* const sum = rows.row(0);
  for (int c = lane; c < width; c += 32) sum[c] = 0.0f;

  float most = kNothing, total = 0.0f;
  for (int first = -32; (first = next_keys(args, p, query, first)) < p.keys;) {
    const int key = first + lane;
    float score = kNothing;
    if (key < p.keys)
      score =
          score_of(args, p, query, key,
                   capped_score<kCapped>(args, dot(q, row_of(args.k, p.key_first + key, p.key_head), width)));
    // NaN must come through; fmaxf passes it over, and the sum has it.
    const float now = fmaxf(most, simt::warp_max(score));
    const float shift = now == kNothing ? 0.0f : now;
    const float before = most == kNothing ? 0.0f : expf(most - shift);
    const float weight = expf(score - shift);
    total = total * before + simt::warp_sum(weight);
    most = now;
    __syncwarp();
    rows.value(0)[lane] = weight == 0.0f ? 0.0f : weight * dropout_factor(args, p, query, key);
    __syncwarp();
    const int count = p.keys - first < 32 ? p.keys - first : 32;
    for (int c = lane; c < width; c += 32) {
      float value = sum[c] * before;
      for (int j = 0; j < count; ++j)  // what a key holds that has no weight must not count
        if (const float w = rows.value(0)[j]; w != 0.0f)
          value += w * static_cast<float>(row_of(args.v, p.key_first + first + j, p.key_head)[c]);
      sum[c] = value;
    }
  }
  const float inverse = total == 0.0f ? 0.0f : 1.0f / total;
  T* out = row_of(args.out, row, p.head);
  for (int c = lane; c < width; c += 32) out[c] = T(sum[c] * inverse);
  if (args.lse != nullptr && lane == 0)
    args.lse[p.head * args.query_rows + row] = total == 0.0f ? kNothing : most + logf(total);
}

/// A weight after dropout, and the gradients of its score and of the scaled product that this is made from.
struct PairGradient {
  float weight, score, product;
};

template <bool kCapped, class T>
__device__ __forceinline__ PairGradient pair_gradient(const AttentionBackward<T>& args, const BatchHead& p,
                                                      int query, int key, float lse, float delta,
                                                      float product, float gweight) {
  const float capped = capped_score<kCapped>(args, product),
              weight = weight_of(score_of(args, p, query, key, capped), lse);
  if (weight == 0.0f) return {0.0f, 0.0f, 0.0f};  // what a hidden key holds must not count
  const float factor = dropout_factor(args, p, query, key), gscore = weight * (gweight * factor - delta);
  if constexpr (!kCapped) return {weight * factor, gscore, gscore};
  const float t = __fdividef(capped, static_cast<float>(args.logit_cap));
  return {weight * factor, gscore, gscore * ((1.0f - t) * (1.0f + t))};
}

/// to (+)= values, by the lanes of a warp.
template <class T>
__device__ __forceinline__ void write_row(T* to, const float* values, float scale, int width, bool accumulate,
                                          int lane) {
  for (int c = lane; c < width; c += 32)
    to[c] = T((accumulate ? static_cast<float>(to[c]) : 0.0f) + values[c] * scale);
}

/// Adds up factor[j] * rows(j)[c] over j < count into sum; zero factors are left out with what they multiply.
template <class Rows>
__device__ __forceinline__ void add_products(float* sum, const float* factor, int count, int width, int lane,
                                             Rows rows) {
  for (int c = lane; c < width; c += 32) {
    float total = sum[c];
    for (int j = 0; j < count; ++j)
      if (const float f = factor[j]; f != 0.0f) total += f * static_cast<float>(rows(j)[c]);
    sum[c] = total;
  }
}

/// Σ gout * out of one query, in every lane: what the softmax takes off the gradients of all its scores.
template <class T>
__device__ __forceinline__ float delta_of(const AttentionBackward<T>& args, int64_t row, int64_t head,
                                          int lane) {
  const T *gout = row_of(args.gout, row, head), *out = row_of(args.out, row, head);
  float delta = 0.0f;
  const int width = static_cast<int>(args.width);
  for (int c = lane; c < width; c += 32) delta += static_cast<float>(gout[c]) * static_cast<float>(out[c]);
  return simt::warp_sum(delta);
}

/// The gradient of one query. `rows`: one.
template <bool kCapped = false, class T>
__device__ __forceinline__ void query_gradient(const AttentionBackward<T>& args, const BatchHead& p,
                                               int query, float delta, const WarpRows& rows) {
  const int lane = static_cast<int>(threadIdx.x) % 32, width = static_cast<int>(args.width);
  const int64_t row = p.query_first + query;
  const T *q = row_of(args.q, row, p.head), *gout = row_of(args.gout, row, p.head);
  float* const sum = rows.row(0);
  for (int c = lane; c < width; c += 32) sum[c] = 0.0f;
  const float lse = args.lse[p.head * args.query_rows + row];
  for (int first = -32; (first = next_keys(args, p, query, first)) < p.keys;) {
    const int key = first + lane;
    PairGradient g{0.0f, 0.0f, 0.0f};
    if (key < p.keys)
      g = pair_gradient<kCapped>(args, p, query, key, lse, delta,
                                 dot(q, row_of(args.k, p.key_first + key, p.key_head), width),
                                 dot(gout, row_of(args.v, p.key_first + key, p.key_head), width));
    __syncwarp();
    rows.value(0)[lane] = g.product;
    __syncwarp();
    add_products(sum, rows.value(0), p.keys - first < 32 ? p.keys - first : 32, width, lane,
                 [&](int j) { return row_of(args.k, p.key_first + first + j, p.key_head); });
  }
  write_row(row_of(args.gq, row, p.head), sum, static_cast<float>(args.scale), width, args.accumulate_q,
            lane);
}

/// The gradients of one key; delta(row, head) is a query's delta_of, for one lane. `rows`: two.
template <bool kCapped = false, class T, class Delta>
__device__ __forceinline__ void key_gradient(const AttentionBackward<T>& args, int sequence, int key_head,
                                             int key, Delta delta, const WarpRows& rows) {
  const int lane = static_cast<int>(threadIdx.x) % 32, width = static_cast<int>(args.width);
  const int group = heads_of_a_key_head(args);
  const int64_t row = args.segments.key_first[sequence] + key;
  const T *k = row_of(args.k, row, key_head), *v = row_of(args.v, row, key_head);
  for (int c = lane; c < width; c += 32) rows.row(0)[c] = rows.row(1)[c] = 0.0f;
  for (int head = key_head * group; head < (key_head + 1) * group; ++head) {
    const BatchHead p(args, sequence, head);
    const int place = static_cast<int>(args.visibility.diagonal(0, p.queries, p.keys));
    for (int first = -(place & 31) - 32; (first = next_queries(args, p, key, first)) < p.queries;) {
      const int query = first + lane;
      const int64_t query_row = p.query_first + query;
      PairGradient g{0.0f, 0.0f, 0.0f};
      if (query >= 0 && query < p.queries) {
        g = pair_gradient<kCapped>(args, p, query, key, args.lse[head * args.query_rows + query_row],
                                   delta(query_row, head), dot(row_of(args.q, query_row, head), k, width),
                                   dot(row_of(args.gout, query_row, head), v, width));
      }
      __syncwarp();
      rows.value(0)[lane] = g.product;
      rows.value(1)[lane] = g.weight;
      __syncwarp();
      const int count = p.queries - first < 32 ? p.queries - first : 32;
      const int64_t from = p.query_first + first;
      if (args.gk.data != nullptr)
        add_products(rows.row(0), rows.value(0), count, width, lane,
                     [&](int j) { return row_of(args.q, from + j, head); });
      if (args.gv.data != nullptr)
        add_products(rows.row(1), rows.value(1), count, width, lane,
                     [&](int j) { return row_of(args.gout, from + j, head); });
    }
  }
  if (args.gk.data != nullptr)
    write_row(row_of(args.gk, row, key_head), rows.row(0), static_cast<float>(args.scale), width,
              args.accumulate_k, lane);
  if (args.gv.data != nullptr)
    write_row(row_of(args.gv, row, key_head), rows.row(1), 1.0f, width, args.accumulate_v, lane);
}

}  // namespace heed::cuda
