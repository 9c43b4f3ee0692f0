#include <heed/core/creation.h>
#include <heed/nn/init.h>
#include <heed/nn/layers/dropout.h>
#include <heed/nn/models/text_encoder.h>
#include <heed/nn/parameter.h>

namespace heed::nn {
namespace {

const TextEncoderConfig& checked(const TextEncoderConfig& config) {
  config.check();
  return config;
}

}  // namespace

void TextEncoderConfig::check() const {
  const auto positive = [](int64_t value, const char* what) {
    HEED_CHECK(value > 0, ConfigError, "TextEncoder: ", what, " must be positive, got ", value);
  };
  positive(vocabulary, "vocabulary");
  positive(d_model, "d_model");
  positive(heads, "heads");
  positive(d_ff, "d_ff");
  positive(max_length, "max_length");
  HEED_CHECK(layers >= 0 && token_types >= 0 && first_position >= 0, ConfigError, "TextEncoder: ", layers,
             " layers, ", token_types, " token types and the first position ", first_position,
             "; none may be negative");
  layout();
  check_dropout_rate(embedding_dropout, "TextEncoder");
}

TextEncoder::TextEncoder(const TextEncoderConfig& config, Generator& random)
    : embedding(checked(config).vocabulary, config.d_model, random),
      position(config.position, config.d_model,
               {.max_length = config.max_length + config.first_position,
                .rotary = config.rotary,
                .head_width = config.layout().width},
               random),
      embedding_norm(config.norm_kind, config.d_model, config.eps),
      layers(config, config.layers, config.norm == NormPlacement::pre, random),
      config_(config) {
  if (config.token_types > 0)
    token_type = std::make_unique<Embedding>(config.token_types, config.d_model, random);
  if (config.pooler) pooler = std::make_unique<Linear>(config.d_model, config.d_model, true, random);
  for (size_t i = 0; i < layers.layers.size(); ++i)
    layers.layers[i]->self_attn.name = concat("layers.", i, ".self_attn");
  if (parameters_have_values()) initialize(*this, matrix_rules(Initializer::normal), random);
}

Tensor TextEncoder::forward(const Tokens& tokens, const Tensor& token_types) const {
  HEED_CHECK(token_type || !token_types.defined(), ConfigError, "TextEncoder: it has no token types");
  const Tensor& weight = embedding.weight;
  const int64_t first = config_.first_position, length = tokens.position_end() + first;
  Tensor positions = tokens.row_positions();
  if (first > 0) positions = positions + static_cast<double>(first);
  const Tensor table = position.table(length, weight.dtype(), weight.device());
  Tensor x =
      embedding(tokens.ids, {.position = table, .position_ids = table.defined() ? positions : Tensor()});
  if (token_type)
    x = x + (token_types.defined() ? (*token_type)(token_types) : token_type->weight.select(0, 0));
  x = dropout(embedding_norm(x), {.p = training() ? config_.embedding_dropout : 0});
  return layers(x, tokens.segments,
                {.rotation = position.rotation(positions, length, weight.dtype(), weight.device())});
}

Tensor TextEncoder::pooled(const Tensor& states, const Segments& segments) const {
  HEED_CHECK(pooler != nullptr, StateError, "TextEncoder: it has no pooler");
  const Tensor first = empty({segments.count()}, {.dtype = DType::i64});
  for (int64_t i = 0; i < segments.count(); ++i) {
    HEED_CHECK(segments.query_length(i) > 0, ShapeError, "TextEncoder: sequence ", i, " is empty");
    first.data<int64_t>()[i] = segments.query_first(i);
  }
  return tanh((*pooler)(index_select(states, first.to(states.device()))));
}

Tensor TextEncoder::embed(const Tokens& tokens, const Tensor& token_types) const {
  const Tensor mean = segment_mean(forward(tokens, token_types), tokens.segments);
  return mean / maximum(norm(mean, {.axes = {-1}, .keep = true}), 1e-12);
}

void TextEncoder::visit(Visitor& v) {
  v("embedding", embedding);
  v("position", position);
  if (token_type) v("token_type", *token_type);
  v("embedding_norm", embedding_norm);
  v.unnamed(layers);
  if (pooler) v("pooler", *pooler);
}

std::string TextEncoder::describe() const {
  return concat("TextEncoder(", config_.d_model, ", heads ", config_.heads, ", ", config_.layers,
                " layers, d_ff ", config_.d_ff, ", ", name(config_.norm), "-norm)");
}

}  // namespace heed::nn
