#include <algorithm>
#include <cmath>

#include <heed/nn/detail/evaluation.h>
#include <heed/nn/init.h>
#include <heed/nn/language_model.h>
#include <heed/nn/parameter.h>

namespace heed::nn {
namespace {

const LanguageModelConfig& checked(const LanguageModelConfig& config) {
  config.check();
  return config;
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
    generator = std::make_unique<Linear>(config.d_model, config.vocabulary, false, random);
  for (size_t i = 0; i < layers.layers.size(); ++i)
    layers.layers[i]->self_attn.name = concat("layers.", i, ".self_attn");
  if (!ShapesOnly::active()) initialize(*this, matrix_rules(Initializer::normal), random);
}

Tensor LanguageModel::states(const Tokens& tokens, KeyValueCache* cache) const {
  const Tensor& weight = embedding.weight;
  AttentionCall call{.visibility = {cache ? Causal::bottom_right : Causal::top_left}, .cache = cache};
  Tensor positions = tokens.positions;
  int64_t length = tokens.segments.max_query();
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
  return generator ? (*generator)(states) : linear(states, embedding.weight, {}, {.keep_packed = true});
}

Tensor LanguageModel::forward(const Tokens& tokens) const { return logits(states(tokens)); }

Tensor LanguageModel::forward(const Tokens& tokens, KeyValueCache& cache) const {
  return logits(states(tokens, &cache));
}

KeyValueCache LanguageModel::make_cache(int64_t sequences) const {
  return KeyValueCache(config_.layers, sequences, 2 * config_.layout().key_columns(),
                       embedding.weight.options());
}

void LanguageModel::visit(Visitor& v) {
  v("embedding", embedding);
  v("position", position);
  v.unnamed(layers);
  if (generator) v("generator", *generator);
}

std::string LanguageModel::describe() const {
  return concat("LanguageModel(", config_.d_model, ", heads ", config_.heads, ", ", config_.layers,
                " layers, d_ff ", config_.d_ff, ", ", name(config_.norm_kind), " norm, ",
                name(config_.position), " positions)");
}

// ---- generating
// ---------------------------------------------------------------------------------------------

namespace {

class Generation {
 public:
  Generation(const LanguageModel& model, size_t prompts, const GenerateOptions& options)
      : model_(model),
        options_(options),
        device_(model.embedding.weight.device()),
        cache_(model.make_cache(static_cast<int64_t>(prompts))),
        results_(prompts) {
    for (size_t i = 0; i < prompts; ++i) going_on_.push_back(static_cast<int64_t>(i));
  }

  std::vector<std::vector<int64_t>> run(const std::vector<std::vector<int64_t>>& prompts) {
    Tokens tokens = Tokens::packed(prompts, device_);
    std::vector<int64_t> last;  // row of each prompt
    for (int64_t i = 0; i < tokens.segments.count(); ++i)
      last.push_back(tokens.segments.query_first(i) + tokens.segments.query_length(i) - 1);
    Tensor states = model_.states(tokens, &cache_);
    states = index_select(states, tensor(last, {static_cast<int64_t>(last.size())}, device_));
    for (int64_t made = 1; take(states) && made < options_.max_tokens; ++made) {
      const auto rows = static_cast<int64_t>(newest_.size());
      states = model_.states({tensor(newest_, {rows}, device_), Segments::dense(rows, 1), /*positions=*/{}},
                             &cache_);
    }
    return std::move(results_);
  }

 private:
  // Takes a token for each text that goes on. Returns whether any still does.
  bool take(const Tensor& states) {
    const Tensor logits = model_.logits(states).to(DType::f32);
    HEED_CHECK(!any(is_nan(logits)).item<bool>(), NumericError,
               "generate: the logits are NaN; is a weight of the model?");
    const Tensor chosen =
        options_.sample.temperature == 0 ? argmax(logits, -1) : sample(logits, options_.sample);
    const std::vector<int64_t> tokens = chosen.to_vector<int64_t>();
    std::vector<int64_t> kept, prompts;
    newest_.clear();
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i] == options_.end) continue;
      const int64_t prompt = going_on_[i];
      results_[static_cast<size_t>(prompt)].push_back(tokens[i]);
      if (options_.on_token) options_.on_token(prompt, tokens[i]);
      kept.push_back(static_cast<int64_t>(i));
      prompts.push_back(prompt);
      newest_.push_back(tokens[i]);
    }
    going_on_ = std::move(prompts);
    if (!going_on_.empty()) cache_.select(kept);
    return !going_on_.empty();
  }

  const LanguageModel& model_;
  const GenerateOptions& options_;
  Device device_;
  KeyValueCache cache_;
  std::vector<int64_t> going_on_;  // the prompt of each sequence of the cache
  std::vector<int64_t> newest_;    // their newest tokens
  std::vector<std::vector<int64_t>> results_;
};

}  // namespace

std::vector<std::vector<int64_t>> generate(LanguageModel& model,
                                           const std::vector<std::vector<int64_t>>& prompts,
                                           const GenerateOptions& options) {
  HEED_CHECK(options.max_tokens > 0, ConfigError, "generate: max_tokens must be positive, got ",
             options.max_tokens);
  HEED_CHECK(std::none_of(prompts.begin(), prompts.end(), [](const auto& prompt) { return prompt.empty(); }),
             ConfigError, "generate: a prompt is empty; begin it with a token that starts texts");
  if (prompts.empty()) return {};
  const Evaluation evaluation(model);
  return Generation(model, prompts.size(), options).run(prompts);
}

}  // namespace heed::nn
