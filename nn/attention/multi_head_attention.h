// Multi-head attention with its projections.
#pragma once

#include <heed/core/attention.h>
#include <heed/nn/attention/position.h>
#include <heed/nn/layers/linear.h>

namespace heed::nn {

class KeyValueCache;

/// The heads of an attention: `heads` of queries, which in groups share `key_heads` of keys and values (arXiv
/// 2305.13245), each `width` columns wide.
struct HeadLayout {
  int64_t heads = 1;
  int64_t key_heads = 0;  // 0: as many as heads
  int64_t width = 0;      // 0: d_model / heads

  int64_t query_columns() const { return heads * width; }
  int64_t key_columns() const { return key_heads * width; }
  /// With no number 0. ConfigError unless key_heads divides heads and, without a width, heads divides
  /// d_model.
  HeadLayout of(int64_t d_model) const;
};

struct MultiHeadAttentionOptions {
  double dropout = 0;                          // of the attention weights, while training
  bool qkv_bias = true;                        // of the input projections
  bool out_bias = true;                        // of the output projection
  PositionKind position = PositionKind::none;  // alibi, relative or t5 act inside attention
  int64_t relative_limit = 32;                 // of relative and t5: distances beyond it share one bias
  int64_t relative_buckets = 32;               // of t5
  bool causal_buckets = false;                 // of t5: all for keys before the query
};

/// What a call may add.
struct AttentionCall {
  Visibility visibility = {};
  BlockPattern blocks = {};
  Mask mask = {};
  Rotation rotation = {};          // of queries and keys, in self-attention
  KeyValueCache* cache = nullptr;  // self-attention appends its keys and values there and sees all it holds
  int64_t layer = 0;               // whose keys and values of the cache are meant
};

/// softmax(q kᵀ / √width) v for each head, with projections before and after (arXiv 1706.03762). Parameters
/// are named and laid out as torch.nn.MultiheadAttention's: q, k and v stacked in in_proj_weight, of which k
/// and v have fewer rows where queries are grouped. All rows are packed: x [rows, d_model] with Segments.
class MultiHeadAttention : public Module {
 public:
  MultiHeadAttention(int64_t d_model, const HeadLayout& layout, const MultiHeadAttentionOptions& options = {},
                     Generator& generator = default_generator());
  MultiHeadAttention(int64_t d_model, int64_t heads, const MultiHeadAttentionOptions& options = {},
                     Generator& generator = default_generator())
      : MultiHeadAttention(d_model, HeadLayout{.heads = heads}, options, generator) {}

  /// Queries, keys and values all from x.
  Tensor self(const Tensor& x, const Segments& segments, const AttentionCall& call = {}) const;
  /// Queries from x, keys and values from memory.
  Tensor cross(const Tensor& x, const Tensor& memory, const Segments& segments,
               const AttentionCall& call = {}) const;

  // The steps of the above, for decoding with a cache.
  Tensor project_qkv(const Tensor& x) const;      // [rows, query_columns + 2 key_columns]
  Tensor project_q(const Tensor& x) const;        // [rows, query_columns]
  Tensor project_kv(const Tensor& memory) const;  // [rows, 2 key_columns]
  Tensor attend(const Tensor& q, const Tensor& kv, const Segments& segments,
                const AttentionCall& call = {}) const;

  void visit(Visitor& v) override;
  std::string describe() const override;

  int64_t d_model;
  HeadLayout layout;
  MultiHeadAttentionOptions options;
  std::string name;       // under which an AttentionRecord lists it
  Tensor in_proj_weight;  // [query_columns + 2 key_columns, d_model]
  Tensor in_proj_bias;    // [query_columns + 2 key_columns], or undefined
  Tensor relative_bias;   // [heads, 2 relative_limit + 1] if relative, [relative_buckets, heads] if t5
  Linear out_proj;        // query_columns → d_model
  Tensor head_mask;       // f32 [heads], a factor for the output of each; undefined: 1. No parameter

 private:
  Tensor join(const Tensor& heads) const;  // the output projection of what the heads found
  Tensor project(const Tensor& x, int64_t begin, int64_t end) const;
  AttentionOptions attention_options(const AttentionCall& call) const;
  Tensor relative() const;  // the bias of each distance

  mutable Tensor alibi_slopes_, buckets_;
};

}  // namespace heed::nn
