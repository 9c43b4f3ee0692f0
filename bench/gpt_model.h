// The decoder-only Transformer of the programs that time GPT-2's training step.
#pragma once

#include <string>

#include <heed/core/ops.h>
#include <heed/nn/init.h>
#include <heed/nn/transformer.h>

namespace heed::bench {

/// By default GPT-2 with 124 million parameters.
struct GptSizes {
  int64_t d_model = 768, heads = 12, layers = 12, vocab = 50257, context = 1024;
};

/// Pre-norm blocks with GELU by tanh between learned positions and a final norm; the logits' weight is the
/// embedding's.
class Gpt : public nn::Module {
 public:
  explicit Gpt(const GptSizes& s)
      : embedding(s.vocab, s.d_model),
        position(nn::PositionKind::learned, s.d_model, s.context),
        layers(layer(s), s.layers, true) {
    nn::initialize(*this, nn::matrix_rules(nn::Initializer::normal));
  }

  Tensor forward(const nn::Tokens& tokens, const Tensor& position_ids) const {
    const Tensor x = embedding(tokens.ids, {.position = position.weight, .position_ids = position_ids});
    return linear(layers(x, tokens.segments, {.visibility = {Causal::top_left}}), embedding.weight);
  }

  void visit(nn::Visitor& v) override {
    v("embedding", embedding), v("position", position), v("layers", layers);
  }
  std::string describe() const override { return "Gpt"; }

  nn::Embedding embedding;
  nn::PositionTable position;
  nn::Encoder layers;

 private:
  static nn::LayerConfig layer(const GptSizes& s) {
    nn::LayerConfig config{.d_model = s.d_model, .heads = s.heads, .d_ff = 4 * s.d_model};
    config.norm = nn::NormPlacement::pre;
    config.activation = nn::FeedForwardKind::gelu_tanh;
    config.attention_dropout = config.activation_dropout = config.residual_dropout = 0;
    return config;
  }
};

}  // namespace heed::bench
