// A model that predicts the next token: embeddings with positions, a stack of layers, a linear layer.
#pragma once

#include <heed/nn/models/transformer.h>

namespace heed::apps {

struct LanguageModelConfig : nn::LayerConfig {
  int64_t vocabulary = 0;
  int64_t layers = 6;
  double embedding_dropout = 0.1;
};

/// Embeddings times √d_model, positions, `layers`, then logits over the vocabulary. Causal unless told
/// otherwise. A pre-norm stack ends with a norm, a post-norm one does not.
class LanguageModel : public nn::Module {
 public:
  /// ConfigError.
  explicit LanguageModel(const LanguageModelConfig& config, Generator& generator = default_generator());

  /// Logits [rows, vocabulary] for the token after each.
  Tensor forward(const nn::Tokens& tokens,
                 const nn::AttentionCall& call = {.visibility = {Causal::top_left}}) const;

  void visit(nn::Visitor& v) override;
  std::string describe() const override;

  nn::Embedding embedding;
  nn::PositionTable position;
  nn::Encoder layers;
  nn::Linear output;

 private:
  double embedding_dropout_;
};

}  // namespace heed::apps
