// What the attention kernels share: where a query and a key are, and how their weight is made.
#pragma once

#include <heed/kernels/attention.h>
#include <heed/kernels/cuda/vector.cuh>

namespace heed::cuda {

/// One sequence and head.
struct BatchHead {
  int sequence, head, key_head;
  int queries, keys;
  int64_t query_first, key_first;  // rows

  template <class Args>
  __device__ __forceinline__ BatchHead(const Args& args, int of_sequence, int of_head)
      : sequence(of_sequence),
        head(of_head),
        key_head(static_cast<int>(static_cast<unsigned>(of_head * args.key_heads) /
                                  static_cast<unsigned>(args.heads))),
        queries(args.segments.query_length[of_sequence]),
        keys(args.segments.key_length[of_sequence]),
        query_first(args.segments.query_first[of_sequence]),
        key_first(args.segments.key_first[of_sequence]) {}
};

/// The row of one head of a view.
template <class T>
__device__ __forceinline__ T* row_of(const kernels::HeadsView<T>& view, int64_t row, int64_t head) {
  return view.data + row * view.row_stride + head * view.head_stride;
}

template <class X, class Y>
__device__ __forceinline__ float dot(const X* x, const Y* y, int64_t width) {
  float sum = 0.0f;
#pragma unroll 4
  for (int64_t c = 0; c < width; ++c) sum += static_cast<float>(x[c]) * static_cast<float>(y[c]);
  return sum;
}

/// A product of q and k, scaled and, where there is a cap, capped. Kernels are compiled apart for a cap,
/// which takes registers.
template <bool kCapped, class Args>
__device__ __forceinline__ float capped_score(const Args& args, float product) {
  const float score = product * static_cast<float>(args.scale);
  if constexpr (!kCapped) return score;
  const float cap = static_cast<float>(args.logit_cap);
  return cap * tanhf(__fdividef(score, cap));
}

/// The score of a pair from its capped_score; -inf if the query does not see the key.
template <class Args>
__device__ __forceinline__ float score_of(const Args& args, const BatchHead& p, int query, int key,
                                          float score) {
  const auto& b = args.bias;
  const auto at = [&](const int64_t(&stride)[4]) {
    return p.sequence * stride[0] + p.head * stride[1] + query * stride[2] + key * stride[3];
  };
  if (!args.visibility.visible(query, key, p.queries, p.keys) ||
      (b.mask != nullptr && !b.mask[at(b.mask_stride)]))
    return -kInfinity;
  if (b.bias != nullptr) score += static_cast<float>(b.bias[at(b.bias_stride)]);
  if (b.alibi_slopes == nullptr && b.relative == nullptr) return score;
  int64_t distance = key - args.visibility.diagonal(query, p.queries, p.keys);
  if (b.alibi_slopes != nullptr)
    score -= b.alibi_slopes[p.head] * static_cast<float>(distance < 0 ? -distance : distance);
  if (b.relative != nullptr) {
    const int64_t limit = b.relative_limit;
    distance = distance < -limit ? -limit : distance > limit ? limit : distance;
    score += static_cast<float>(b.relative[p.head * (2 * limit + 1) + distance + limit]);
  }
  return score;
}

/// The softmax weight that belongs to a score; 0 where nothing is seen.
__device__ __forceinline__ float weight_of(float score, float lse) {
  constexpr float kNothing = -kInfinity;
  return score == kNothing || lse == kNothing ? 0.0f : expf(score - lse);
}

/// What dropout multiplies a weight by.
template <class Args>
__device__ __forceinline__ float dropout_factor(const Args& args, const BatchHead& p, int query, int key) {
  if (!args.dropout.active()) return 1.0f;
  const DropoutBits draw =
      attention_dropout_bits(args.dropout.rng, static_cast<uint32_t>(key / 8), static_cast<uint32_t>(query),
                             static_cast<uint32_t>(p.sequence * args.heads + p.head));
  return draw.bits(key % 8) >= args.dropout.threshold ? args.dropout.scale : 0.0f;
}

}  // namespace heed::cuda
