#include <cmath>

#include <heed/nn/init.h>
#include <heed/nn/models/language_model.h>
#include <heed/nn/parameter.h>

namespace heed::nn {
namespace {

const LanguageModelConfig& checked(const LanguageModelConfig& config) {
  config.check();
  return config;
}

std::string sparseness(const LanguageModelConfig& c) {
  std::string text;
  if (c.window > 0) text += concat(", window ", c.window);
  if (c.global_tokens > 0) text += concat(", global tokens ", c.global_tokens);
  if (c.blocks.defined())
    text += concat(", pattern of ", c.blocks.query_blocks(), " by ", c.blocks.key_blocks(), " blocks");
  return text;
}

LanguageModelConfig without_dropout(LanguageModelConfig config) {
  config.attention_dropout = config.activation_dropout = config.residual_dropout = 0;
  config.norm = NormPlacement::pre;
  return config;
}

}  // namespace

LanguageModelConfig LanguageModelConfig::gpt2() {
  LanguageModelConfig c = without_dropout({});
  c.vocabulary = 50257;
  c.d_model = 768;
  c.heads = 12;
  c.d_ff = 3072;
  c.activation = FeedForwardKind::gelu_tanh;
  c.position = PositionKind::learned;
  return c;
}

LanguageModelConfig LanguageModelConfig::llama() {
  LanguageModelConfig c = without_dropout({});
  c.vocabulary = 49152;
  c.layers = 30;
  c.d_model = 576;
  c.heads = 9;
  c.key_heads = 3;
  c.d_ff = 1536;
  c.norm_kind = NormKind::rms;
  c.activation = FeedForwardKind::swiglu;
  c.position = PositionKind::rotary;
  c.qkv_bias = c.out_bias = c.feed_forward_bias = false;
  return c;
}

void LanguageModelConfig::check() const {
  const auto positive = [](int64_t value, const char* what) {
    HEED_CHECK(value > 0, ConfigError, "LanguageModel: ", what, " must be positive, got ", value);
  };
  positive(vocabulary, "vocabulary");
  positive(d_model, "d_model");
  positive(heads, "heads");
  positive(d_ff, "d_ff");
  HEED_CHECK(layers >= 0, ConfigError, "LanguageModel: ", layers, " layers");
  layout();
  constexpr int64_t kMax = int64_t{1} << 30;
  HEED_CHECK(window >= 0 && window <= kMax, ConfigError, "LanguageModel: window is ", window);
  HEED_CHECK(global_tokens >= 0 && global_tokens <= kMax, ConfigError, "LanguageModel: global_tokens is ",
             global_tokens);
  HEED_CHECK(window > 0 || global_tokens == 0, ConfigError, "LanguageModel: ", global_tokens,
             " global_tokens without a window; all tokens are seen by all after them then");
  check_dropout_rate(embedding_dropout, "LanguageModel");
}

LanguageModel::LanguageModel(const LanguageModelConfig& config, Generator& random)
    : embedding(checked(config).vocabulary, config.d_model, random),
      position(
          config.position, config.d_model,
          {.max_length = config.max_length, .rotary = config.rotary, .head_width = config.layout().width},
          random),
      layers(config, config.layers, config.norm == NormPlacement::pre, random),
      config_(config) {
  if (!config.tie_embeddings)
    output = std::make_unique<Linear>(config.d_model, config.vocabulary, false, random);
  for (size_t i = 0; i < layers.layers.size(); ++i)
    layers.layers[i]->self_attn.name = concat("layers.", i, ".self_attn");
  if (parameters_have_values()) initialize(*this, matrix_rules(Initializer::normal), random);
}

Tensor LanguageModel::states(const Tokens& tokens, KeyValueCache* cache) const {
  const Tensor& weight = embedding.weight;
  AttentionCall call{.visibility = {.causal = cache ? Causal::bottom_right : Causal::top_left,
                                    .window_left = static_cast<int32_t>(config_.window - 1),
                                    .global_tokens = static_cast<int32_t>(config_.global_tokens)},
                     .blocks = config_.blocks,
                     .cache = cache};
  Tensor positions = tokens.positions;
  int64_t length = tokens.position_end();
  if (cache) {
    positions = cache->positions(tokens.segments, tokens.ids.numel()).to(weight.device());
    length = cache->max_length_with(tokens.segments);
  } else if (!positions.defined()) {
    positions = tokens.row_positions();
  }
  const Tensor table = position.table(length, weight.dtype(), weight.device());
  const Tensor x = embedding(
      tokens.ids, {.scale = config_.scale_embeddings ? std::sqrt(static_cast<double>(config_.d_model)) : 1,
                   .position = table,
                   .position_ids = table.defined() ? positions : Tensor(),
                   .dropout = training() ? config_.embedding_dropout : 0});
  call.rotation = position.rotation(positions, length, weight.dtype(), weight.device());
  if (cache) cache->extend(tokens.segments);
  return layers(x, tokens.segments, call);
}

Tensor LanguageModel::logits(const Tensor& states) const {
  return linear(states, output ? output->weight : embedding.weight, {}, {.wide = true});
}

Tensor LanguageModel::forward(const Tokens& tokens) const { return logits(states(tokens)); }

Tensor LanguageModel::forward(const Tokens& tokens, KeyValueCache& cache) const {
  return logits(states(tokens, &cache));
}

Tensor LanguageModel::loss(const Tokens& tokens, const Tensor& targets,
                           const CrossEntropyOptions& options) const {
  return linear_cross_entropy(states(tokens), output ? output->weight : embedding.weight, targets, options);
}

KeyValueCache LanguageModel::make_cache(int64_t sequences) const {
  return KeyValueCache(config_.layers, sequences, 2 * config_.layout().key_columns(),
                       embedding.weight.options());
}

void LanguageModel::visit(Visitor& v) {
  v("embedding", embedding);
  v("position", position);
  v.unnamed(layers);
  if (output) v("generator", *output);
}

std::string LanguageModel::describe() const {
  return concat("LanguageModel(", config_.d_model, ", heads ", config_.heads, ", ", config_.layers,
                " layers, d_ff ", config_.d_ff, ", ", name(config_.norm_kind), " norm, ",
                name(config_.position), " positions", sparseness(config_), ")");
}

}  // namespace heed::nn
