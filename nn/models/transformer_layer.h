// Encoder and decoder layers, post-norm and pre-norm.
#pragma once

#include <heed/nn/attention/multi_head_attention.h>
#include <heed/nn/layers/dropout.h>
#include <heed/nn/layers/feed_forward.h>
#include <heed/nn/models/transformer_config.h>

namespace heed::nn {

/// The running sum of a pre-norm stack, and the branch that is yet to be added to it: the next norm adds it
/// in the same pass.
struct ResidualStream {
  Tensor sum;     // [rows, d_model]
  Tensor branch;  // [rows, d_model]
};

/// Self-attention and feed-forward, each with residual connection, dropout and norm.
class EncoderLayer : public Module {
 public:
  explicit EncoderLayer(const LayerConfig& config, Generator& generator = default_generator());

  /// x [rows, d_model] → the same.
  Tensor operator()(const Tensor& x, const Segments& segments, const AttentionCall& call = {}) const;
  /// Pre-norm: from the stream's sum and its norm by norm1 to the stream after this layer.
  ResidualStream advance(const ResidualNorm& in, const Segments& segments,
                         const AttentionCall& call = {}) const;

  void visit(Visitor& v) override;
  std::string describe() const override;

  NormPlacement placement;
  double residual_dropout;
  MultiHeadAttention self_attn;
  FeedForward feed_forward;
  Norm norm1, norm2;

 private:
  DropoutOptions dropout() const { return {.p = training() ? residual_dropout : 0}; }
};

/// What a decoder layer attends to besides its own input: either the encoder's output or its projection to
/// keys and values, made once for decoding.
struct Memory {
  Tensor states;     // [source rows, d_model]
  Tensor key_value;  // [source rows, 2 d_model]; used instead of states if defined
};

/// Causal self-attention, cross-attention and feed-forward.
class DecoderLayer : public Module {
 public:
  explicit DecoderLayer(const LayerConfig& config, Generator& generator = default_generator());

  Tensor operator()(const Tensor& x, const Segments& self_segments, const Memory& memory,
                    const Segments& cross_segments,
                    const AttentionCall& self_call = {.visibility = {Causal::top_left}},
                    const AttentionCall& cross_call = {}) const;
  ResidualStream advance(const ResidualNorm& in, const Segments& self_segments, const Memory& memory,
                         const Segments& cross_segments,
                         const AttentionCall& self_call = {.visibility = {Causal::top_left}},
                         const AttentionCall& cross_call = {}) const;

  void visit(Visitor& v) override;
  std::string describe() const override;

  NormPlacement placement;
  double residual_dropout;
  MultiHeadAttention self_attn, multihead_attn;
  FeedForward feed_forward;
  Norm norm1, norm2, norm3;

 private:
  DropoutOptions dropout() const { return {.p = training() ? residual_dropout : 0}; }
  Tensor cross(const Tensor& x, const Memory& memory, const Segments& segments,
               const AttentionCall& call) const;
};

}  // namespace heed::nn
