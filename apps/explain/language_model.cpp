#include "apps/explain/language_model.h"

#include <cmath>

namespace heed::apps {

namespace {

const LanguageModelConfig& checked(const LanguageModelConfig& config) {
  HEED_CHECK(config.vocabulary > 0, ConfigError, "vocabulary = ", config.vocabulary, "; expected at least 1");
  HEED_CHECK(config.layers >= 0, ConfigError, "layers = ", config.layers, "; expected 0 or more");
  HEED_CHECK(config.position != nn::PositionKind::learned, ConfigError,
             "a language model of unlimited length has no learned positions");
  return config;
}

}  // namespace

LanguageModel::LanguageModel(const LanguageModelConfig& config, Generator& random)
    : embedding(checked(config).vocabulary, config.d_model, random),
      position(config.position, config.d_model, {}, random),
      layers(config, config.layers, config.norm == nn::NormPlacement::pre, random),
      output(config.d_model, config.vocabulary, true, random),
      embedding_dropout_(config.embedding_dropout) {
  for (size_t i = 0; i < layers.layers.size(); ++i)
    layers.layers[i]->self_attn.name = concat("layers.", i, ".self_attn");
}

Tensor LanguageModel::forward(const nn::Tokens& tokens, const nn::AttentionCall& call) const {
  const Tensor& weight = embedding.weight;
  const Tensor table = position.table(tokens.segments.max_query(), weight.dtype(), weight.device());
  const Tensor ids =
      table.defined() ? nn::position_ids(tokens.segments, tokens.ids.numel(), weight.device()) : Tensor();
  const Tensor x = embedding(tokens.ids, {.scale = std::sqrt(static_cast<double>(weight.size(1))),
                                          .position = table,
                                          .position_ids = ids,
                                          .dropout = training() ? embedding_dropout_ : 0});
  return output(layers(x, tokens.segments, call));
}

void LanguageModel::visit(nn::Visitor& v) {
  v("embedding", embedding);
  v("position", position);
  v("layers", layers);
  v("generator", output);
}

std::string LanguageModel::describe() const {
  return concat("LanguageModel(", embedding.weight.size(0), " tokens, ", layers.layers.size(), " layers)");
}

}  // namespace heed::apps
