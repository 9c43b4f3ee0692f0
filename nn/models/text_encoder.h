// An encoder of texts: a state for each token, and one for the whole.
#pragma once

#include <memory>

#include <heed/nn/decoding/tokens.h>
#include <heed/nn/layers/embedding.h>
#include <heed/nn/models/transformer.h>

namespace heed::nn {

/// BERT (Devlin et al., arXiv 1810.04805) unless changed: post-norm, learned positions, exact GELU.
struct TextEncoderConfig : LayerConfig {
  int64_t vocabulary = 0;
  int64_t layers = 12;
  int64_t max_length = 512;    // tokens of the longest sequence
  int64_t first_position = 0;  // row of the position table that the first token gets: RoBERTa's 2
  int64_t token_types = 2;     // kinds of tokens, such as first and second sentence; 0: no such embedding
  double embedding_dropout = 0.1;
  bool pooler = true;

  TextEncoderConfig() {
    d_model = 768;
    heads = 12;
    d_ff = 3072;
    activation = FeedForwardKind::gelu;
    position = PositionKind::learned;
    eps = 1e-12;
  }
  HeadLayout layout() const { return head_layout().of(d_model); }
  /// ConfigError with the name and value of the first setting that cannot be.
  void check() const;
};

/// Embeddings with positions and token types, a norm, layers that see the whole sequence, and a pooler:
/// tanh(linear(state of the first token)). Matrices begin N(0, 0.02), biases 0. Parameters: embedding.weight,
/// position.weight, token_type.weight, embedding_norm.weight, layers.0.self_attn.in_proj_weight, …,
/// pooler.weight, as far as there are such.
class TextEncoder : public Module {
 public:
  explicit TextEncoder(const TextEncoderConfig& config, Generator& generator = default_generator());

  /// States [rows, d_model]. token_types i64 [rows]; undefined: all 0.
  Tensor forward(const Tokens& tokens, const Tensor& token_types = {}) const;
  /// The pooler's output for each sequence, [sequences, d_model], from the states of a forward. StateError
  /// without a pooler, ShapeError where a sequence is empty.
  Tensor pooled(const Tensor& states, const Segments& segments) const;
  /// The mean of each sequence's states, of length 1: what sentence encoders compare. [sequences, d_model].
  Tensor embed(const Tokens& tokens, const Tensor& token_types = {}) const;

  const TextEncoderConfig& config() const { return config_; }
  void visit(Visitor& v) override;
  std::string describe() const override;

  Embedding embedding;
  PositionTable position;
  std::unique_ptr<Embedding> token_type;  // null if there are no types
  Norm embedding_norm;
  Encoder layers;
  std::unique_ptr<Linear> pooler;  // null if there is none

 private:
  TextEncoderConfig config_;
};

}  // namespace heed::nn
