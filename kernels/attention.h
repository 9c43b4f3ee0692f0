// Scaled dot-product attention over segments (Vaswani et al., arXiv 1706.03762), without storing the weights
// (Dao et al., arXiv 2205.14135). Contract for both devices.
#pragma once

#include <cstdint>

#include <heed/core/base/cost.h>
#include <heed/core/base/dtype.h>
#include <heed/core/base/philox.h>
#include <heed/core/base/segments.h>
#include <heed/core/base/visibility_view.h>
#include <heed/kernels/declare.h>

namespace heed::kernels {

/// A [rows, heads, head width] operand inside a larger matrix: element (r, h, d) is at
/// data[r * row_stride + h * head_stride + d].
template <class T>
struct HeadsView {
  T* data;
  int64_t row_stride, head_stride;
};

/// What is added to the scaled scores and what is masked, in positions inside a sequence. Each part may be
/// absent (null). Element (sequence, head, query, key) of a strided part is at the sum of index * stride;
/// stride 0 broadcasts.
template <class T>
struct AttentionBias {
  const T* bias;           // added to the scaled scores
  int64_t bias_stride[4];  // sequence, head, query, key
  const bool* mask;        // true: visible
  int64_t mask_stride[4];
  const float* alibi_slopes;  // [heads]: adds -slope * |key - diagonal(query)| (arXiv 2108.12409)
  const T* relative;          // [heads, 2 * relative_limit + 1]: adds the entry of
  int32_t relative_limit;     //   clamp(key - diagonal(query), ±relative_limit) + relative_limit
};

/// What the scores of an attention are made from: capped(scale * q kᵀ) + bias, over the visible keys of each
/// sequence and head. Query head h reads key head h * key_heads / heads.
template <class T>
struct AttentionScores {
  HeadsView<const T> q;  // [query_rows, heads, width]
  HeadsView<const T> k;  // [key_rows, key_heads, width]
  SegmentsView segments;
  int64_t query_rows, key_rows;  // rows of the buffers, gaps included
  int64_t heads, key_heads, width;
  double scale;      // usually 1 / sqrt(width)
  double logit_cap;  // above 0: a scaled score s becomes cap tanh(s / cap), before anything is added; else 0
  VisibilityView visibility;
  AttentionBias<T> bias;

  /// Products with each visible pair of query and key, `factor` of them, each as long as a head is wide.
  /// Reads the segments and the pattern: for the CPU.
  Cost products(int factor) const {
    int64_t pairs = 0;
    for (int64_t i = 0; i < segments.count; ++i) {
      const int32_t queries = segments.query_length[i], keys = segments.key_length[i];
      for (int32_t q = 0; q < queries; ++q) pairs += visibility.keys_seen(q, queries, keys);
    }
    return {2.0 * factor * static_cast<double>(pairs * heads * width), 0};
  }
};

/// out = dropout(softmax(scores)) v, for each sequence and head. A query that sees no key gives zeros and
/// lse = -inf. Keys that are not visible have no influence, whatever they hold. Rows of out outside the
/// segments are set to zero. Dropout of the weight (sequence, head, query, key) is drawn by
/// attention_dropout_bits with plane sequence * heads + head.
template <class T>
struct AttentionForward : AttentionScores<T> {
  HeadsView<const T> v;  // [key_rows, key_heads, width]
  Dropout dropout;
  HeadsView<T> out;       // [query_rows, heads, width]
  accumulator_t<T>* lse;  // [heads, query_rows], log Σ exp(score); null if not wanted
  // What dropout keeps, for the CPU's backward: attention_keep_mask_size() bytes, or null.
  uint8_t* keep_mask = nullptr;

  Cost cost() const {
    const int64_t query = this->query_rows * this->heads, key = this->key_rows * this->key_heads;
    return this->products(2) + bytes_moved<T>(2 * (query + key) * this->width);
  }
};

/// Gradients with respect to q, k, v and the biases; rows outside the segments get zero (or keep what they
/// have, if accumulate). The same bits in every run.
template <class T>
struct AttentionBackward : AttentionScores<T> {
  HeadsView<const T> v;
  Dropout dropout;
  HeadsView<const T> out, gout;  // [query_rows, heads, width]
  const accumulator_t<T>* lse;   // [heads, query_rows]
  HeadsView<T> gq, gk, gv;       // overlap no operand; data null if not wanted
  bool accumulate_q, accumulate_k, accumulate_v;
  accumulator_t<T>* gbias;      // laid out as bias, summed where a stride is 0, always added to what is
                                // there; null if not wanted
  accumulator_t<T>* grelative;  // [heads, 2 * relative_limit + 1], added to; null if not wanted
  // What the forward wrote there; null: drawn again.
  const uint8_t* keep_mask = nullptr;

  Cost cost() const {  // the scores again, and the gradients of weights, values, queries and keys
    const int64_t query = this->query_rows * this->heads, key = this->key_rows * this->key_heads;
    return this->products(5) + bytes_moved<T>(4 * (query + key) * this->width);
  }
};

/// The softmax weights of some queries of one sequence and head before dropout, rebuilt from lse. A query
/// that sees no key has a row of zeros.
template <class T>
struct AttentionWeights : AttentionScores<T> {
  const accumulator_t<T>* lse;  // [heads, query_rows]
  accumulator_t<T>* weights;    // [queries, keys of that sequence]
  int64_t sequence, head;
  int64_t first_query, queries;  // within the sequence
};

}  // namespace heed::kernels

HEED_KERNEL(attention_forward, AttentionForward);
HEED_KERNEL(attention_backward, AttentionBackward);
HEED_KERNEL(attention_weights, AttentionWeights);

namespace heed::cpu {

/// Bytes of AttentionForward::keep_mask; 0 without dropout or where sequences are so long that drawing again
/// beats memory of their square.
template <class T>
int64_t attention_keep_mask_size(const SegmentsView& segments, int64_t heads, const Dropout& dropout);

}  // namespace heed::cpu
