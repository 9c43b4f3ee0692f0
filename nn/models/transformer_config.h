// What a Transformer looks like.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>

#include <heed/nn/attention/multi_head_attention.h>
#include <heed/nn/attention/position.h>
#include <heed/nn/layers/feed_forward.h>
#include <heed/nn/layers/norm.h>

namespace heed::nn {

/// Where a block normalises: after the residual sum, as the paper does, or before each sub-layer.
enum class NormPlacement { post, pre };

/// "post" or "pre"; ConfigError on anything else.
NormPlacement parse_norm(const std::string& name);
const char* name(NormPlacement norm);

/// One layer, and the stacks made of it. The defaults are the paper's base model (arXiv 1706.03762).
struct LayerConfig {
  int64_t d_model = 512;
  int64_t heads = 8;
  int64_t key_heads = 0;   // fewer than heads: grouped queries; 0: as many
  int64_t head_width = 0;  // 0: d_model / heads
  int64_t d_ff = 2048;
  NormPlacement norm = NormPlacement::post;
  NormKind norm_kind = NormKind::layer;
  FeedForwardKind activation = FeedForwardKind::relu;
  double attention_dropout = 0.1;   // of the attention weights
  double activation_dropout = 0.1;  // of the feed-forward activation
  double residual_dropout = 0.1;    // of each sub-layer's output
  double eps = 1e-5;
  bool qkv_bias = true;
  bool out_bias = true;
  bool feed_forward_bias = true;
  PositionKind position = PositionKind::sinusoidal;
  int64_t relative_limit = 32;    // of relative and t5 (there T5's own is 128)
  int64_t relative_buckets = 32;  // of t5; each layer has its own biases
  RotaryConfig rotary = {};

  HeadLayout head_layout() const { return {heads, key_heads, head_width}; }
};

struct TransformerConfig : LayerConfig {
  int64_t source_vocabulary = 0;
  int64_t target_vocabulary = 0;
  int64_t encoder_layers = 6;
  int64_t decoder_layers = 6;
  double embedding_dropout = 0.1;
  bool scale_embeddings = true;  // by √d_model
  // Of the first embeddings. Unset: what makes them N(0, 1) once scaled, as in the paper's own program, so
  // that positions, whose entries are about 0.7, are not drowned.
  std::optional<double> embedding_deviation = {};
  std::optional<bool> final_norm = {};  // after both stacks; unset: for pre-norm only
  int64_t max_length = 512;             // of learned positions only
  SinusoidColumns sinusoids = SinusoidColumns::interleaved;
  bool tie_generator = false;     // the output layer shares the target embedding's weight
  bool share_embeddings = false;  // source and target embedding share one weight

  /// Sets all four rates.
  void set_dropout(double rate) {
    attention_dropout = activation_dropout = residual_dropout = embedding_dropout = rate;
  }
  double embedding_scale() const { return scale_embeddings ? std::sqrt(static_cast<double>(d_model)) : 1; }
  double first_embedding_deviation() const { return embedding_deviation.value_or(1 / embedding_scale()); }
  bool has_final_norm() const { return final_norm.value_or(norm == NormPlacement::pre); }
  PositionOptions position_options() const {
    return {.max_length = max_length,
            .rotary = rotary,
            .head_width = head_layout().of(d_model).width,
            .sinusoids = sinusoids};
  }
  /// ConfigError with the name and value of the first setting that cannot be.
  void check() const;
};

}  // namespace heed::nn
