// Multi-head attention with its projections.
#pragma once

#include <heed/core/attention.h>
#include <heed/nn/linear.h>
#include <heed/nn/position.h>

namespace heed::nn {

struct MultiHeadAttentionOptions {
  double dropout = 0;                          // of the attention weights, while training
  bool qkv_bias = true;                        // of the input projections
  bool out_bias = true;                        // of the output projection
  PositionKind position = PositionKind::none;  // alibi or relative act inside attention
  int64_t relative_limit = 32;                 // distances beyond it share one bias
};

/// What a call may add.
struct AttentionCall {
  Visibility visibility = {};
  Mask mask = {};
};

/// softmax(q kᵀ / √width) v for each head, with projections before and after (arXiv 1706.03762). Parameters
/// are named and laid out as torch.nn.MultiheadAttention's: q, k and v stacked in in_proj_weight. All rows
/// are packed: x [rows, d_model] with Segments.
class MultiHeadAttention : public Module {
 public:
  /// ConfigError unless heads divides d_model.
  MultiHeadAttention(int64_t d_model, int64_t heads, const MultiHeadAttentionOptions& options = {},
                     Generator& generator = default_generator());

  /// Queries, keys and values all from x.
  Tensor self(const Tensor& x, const Segments& segments, const AttentionCall& call = {}) const;
  /// Queries from x, keys and values from memory.
  Tensor cross(const Tensor& x, const Tensor& memory, const Segments& segments,
               const AttentionCall& call = {}) const;

  // The steps of the above, for decoding with a cache.
  Tensor project_qkv(const Tensor& x) const;      // [rows, 3 d_model]
  Tensor project_q(const Tensor& x) const;        // [rows, d_model]
  Tensor project_kv(const Tensor& memory) const;  // [rows, 2 d_model]
  Tensor attend(const Tensor& q, const Tensor& kv, const Segments& segments,
                const AttentionCall& call = {}) const;

  void visit(Visitor& v) override;
  std::string describe() const override;

  int64_t d_model, heads;
  MultiHeadAttentionOptions options;
  std::string name;       // under which an AttentionRecord lists it
  Tensor in_proj_weight;  // [3 d_model, d_model]
  Tensor in_proj_bias;    // [3 d_model], or undefined
  Tensor relative_bias;   // [heads, 2 relative_limit + 1] if relative
  Linear out_proj;

 private:
  Tensor project(const Tensor& x, int64_t first, int64_t count) const;
  AttentionOptions attention_options(const AttentionCall& call) const;

  mutable Tensor alibi_slopes_;
};

}  // namespace heed::nn
