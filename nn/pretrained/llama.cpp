// Llama, SmolLM2 among others, in the files of Hugging Face and of llama.cpp.
#include <cmath>

#include <heed/nn/pretrained/detail/families.h>

namespace heed::nn::detail {
namespace {

constexpr NameRule kRules[] = {
    {"embed_tokens.weight", "embedding.weight"},
    {"/lm_head.weight", "embedding.weight"},
    {"/lm_head.weight", "generator.weight"},
    {"layers.*.input_layernorm.weight", "layers.*.norm1.weight"},
    {"layers.*.self_attn.q_proj.weight", "layers.*.self_attn.in_proj_weight", Part::query},
    {"layers.*.self_attn.k_proj.weight", "layers.*.self_attn.in_proj_weight", Part::key},
    {"layers.*.self_attn.v_proj.weight", "layers.*.self_attn.in_proj_weight", Part::value},
    {"layers.*.self_attn.q_proj.bias", "layers.*.self_attn.in_proj_bias", Part::query},
    {"layers.*.self_attn.k_proj.bias", "layers.*.self_attn.in_proj_bias", Part::key},
    {"layers.*.self_attn.v_proj.bias", "layers.*.self_attn.in_proj_bias", Part::value},
    {"layers.*.self_attn.o_proj.weight", "layers.*.self_attn.out_proj.weight"},
    {"layers.*.self_attn.o_proj.bias", "layers.*.self_attn.out_proj.bias"},
    {"layers.*.post_attention_layernorm.weight", "layers.*.norm2.weight"},
    {"layers.*.mlp.up_proj.weight", "layers.*.linear1.weight"},
    {"layers.*.mlp.down_proj.weight", "layers.*.linear2.weight"},
    {"layers.*.mlp.gate_proj.weight", "layers.*.linear_gate.weight"},
    {"norm.weight", "norm.weight"},
};
constexpr const char* kPassedOver[] = {"layers.*.self_attn.rotary_emb.inv_freq"};

constexpr Stored kTurned = Stored::interleaved_halves;
constexpr NameRule kGgufRules[] = {
    {"token_embd.weight", "embedding.weight"},
    {"output.weight", "generator.weight"},
    {"blk.*.attn_norm.weight", "layers.*.norm1.weight"},
    {"blk.*.attn_q.weight", "layers.*.self_attn.in_proj_weight", Part::query, kTurned},
    {"blk.*.attn_k.weight", "layers.*.self_attn.in_proj_weight", Part::key, kTurned},
    {"blk.*.attn_v.weight", "layers.*.self_attn.in_proj_weight", Part::value},
    {"blk.*.attn_output.weight", "layers.*.self_attn.out_proj.weight"},
    {"blk.*.ffn_norm.weight", "layers.*.norm2.weight"},
    {"blk.*.ffn_up.weight", "layers.*.linear1.weight"},
    {"blk.*.ffn_down.weight", "layers.*.linear2.weight"},
    {"blk.*.ffn_gate.weight", "layers.*.linear_gate.weight"},
    {"output_norm.weight", "norm.weight"},
};

// Older files have the settings as rope_theta and rope_scaling, newer ones all in rope_parameters.
RotaryConfig read_rotary(const Settings& s) {
  const Settings all = s.inner("rope_parameters"),
                 scaling = s.has("rope_scaling") ? s.inner("rope_scaling") : all;
  RotaryConfig rotary;
  rotary.base = all.number("rope_theta", s.number("rope_theta", 10000));
  const double part = all.number("partial_rotary_factor", s.number("partial_rotary_factor", 1));
  HEED_CHECK(part == 1, ConfigError, "'", s.file(), "': partial_rotary_factor is ", part, "; heed expects 1");
  const std::string kind = scaling.text("rope_type", scaling.text("type", "default"));
  if (kind == "default") return rotary;
  RotaryScaling& to = rotary.scaling;
  to.factor = scaling.number("factor");
  if (kind == "linear") {
    to.kind = RotaryScalingKind::linear;
  } else if (kind == "llama3") {
    to.kind = RotaryScalingKind::llama3;
    to.low_frequency = scaling.number("low_freq_factor");
    to.high_frequency = scaling.number("high_freq_factor");
    to.original_length = scaling.integer("original_max_position_embeddings", {}, int64_t{1} << 32);
  } else {
    throw ConfigError(concat("'", scaling.file(), "': rope_type is '", kind,
                             "'; heed has 'default', 'linear' and 'llama3'"));
  }
  return rotary;
}

Json rotary_json(const RotaryConfig& rotary) {
  Json json;
  json["rope_theta"] = rotary.base;
  const RotaryScaling& from = rotary.scaling;
  json["rope_type"] = from.kind == RotaryScalingKind::none     ? "default"
                      : from.kind == RotaryScalingKind::linear ? "linear"
                                                               : "llama3";
  if (from.kind == RotaryScalingKind::none) return json;
  json["factor"] = from.factor;
  if (from.kind == RotaryScalingKind::linear) return json;
  json["low_freq_factor"] = from.low_frequency;
  json["high_freq_factor"] = from.high_frequency;
  json["original_max_position_embeddings"] = from.original_length;
  return json;
}

constexpr int64_t kMostSize = 1 << 24;

/// Those that no setting has alone; no product of two sizes then exceeds 64 bits.
void check_sizes(const LanguageModelConfig& c, const std::string& file) {
  c.check();
  HEED_CHECK(c.vocabulary <= kMostSize, ConfigError, "'", file, "': a vocabulary of ", c.vocabulary,
             "; expected at most ", kMostSize);
  HEED_CHECK(c.layout().query_columns() <= kMostSize, ConfigError, "'", file, "': ", c.heads, " heads of ",
             c.layout().width, " columns; expected at most ", kMostSize, " columns together");
}

/// Values of a GGUF file's metadata.
class GgufSettings {
 public:
  explicit GgufSettings(const GgufReader& file) : file_(file) {}

  int64_t integer(const char* key, std::optional<int64_t> standard = {}, int64_t most = kMostSize) const {
    const int64_t* const value = find<int64_t>(key, !standard);
    if (!value) return *standard;
    HEED_CHECK(*value >= 0 && *value <= most, ConfigError, "'", file_.path(), "': ", key, " is ", *value,
               "; expected 0 to ", most);
    return *value;
  }
  double number(const char* key, std::optional<double> standard = {}) const {
    const double* const value = find<double>(key, !standard);
    if (!value) return *standard;
    HEED_CHECK(std::isfinite(*value) && *value > 0, ConfigError, "'", file_.path(), "': ", key, " is ",
               *value, "; it must be positive");
    return *value;
  }

 private:
  template <class T>
  const T* find(const char* key, bool required) const {
    const bool there = file_.metadata().contains(key);
    HEED_CHECK(there || !required, ConfigError, "'", file_.path(), "': ", key, " is missing");
    const T* const value = file_.value<T>(key);
    HEED_CHECK(value || !there, ConfigError, "'", file_.path(), "': ", key,
               " has another type than expected");
    return value;
  }
  const GgufReader& file_;
};

}  // namespace

const NameTable kLlamaNames{"model.", kRules, kPassedOver};
const NameTable kLlamaGgufNames{"", kGgufRules, {}};

LanguageModelConfig read_llama(const Settings& s) {
  LanguageModelConfig c = LanguageModelConfig::llama();
  c.vocabulary = s.integer("vocab_size");
  c.d_model = s.integer("hidden_size");
  c.layers = s.integer("num_hidden_layers", {}, kMaxLayers);
  c.heads = s.integer("num_attention_heads");
  c.key_heads = s.integer("num_key_value_heads", c.heads);
  c.head_width = s.integer("head_dim", 0);
  c.d_ff = s.integer("intermediate_size");
  c.max_length = s.integer("max_position_embeddings", 2048);
  c.eps = s.number("rms_norm_eps", 1e-6);
  c.attention_dropout = s.number("attention_dropout", 0);
  c.qkv_bias = c.out_bias = s.flag("attention_bias", false);
  c.tie_embeddings = s.flag("tie_word_embeddings", false);
  c.rotary = read_rotary(s);
  const FeedForwardKind gate = read_activation(s, "hidden_act", "silu");
  HEED_CHECK(gate == FeedForwardKind::silu, ConfigError, "'", s.file(), "': hidden_act must be silu");
  s.expect_flag("mlp_bias", false);
  check_sizes(c, s.file());
  return c;
}

LanguageModelConfig read_llama(const GgufReader& file) {
  const std::string* const family = file.value<std::string>("general.architecture");
  HEED_CHECK(family, ConfigError, "'", file.path(), "' has no general.architecture");
  HEED_CHECK(*family == "llama", ConfigError, "'", file.path(), "': general.architecture is '", *family,
             "'; heed reads 'llama'");
  const GgufSettings s(file);
  LanguageModelConfig c = LanguageModelConfig::llama();
  const GgufTensor* const embedding = file.find("token_embd.weight");
  HEED_CHECK(embedding && embedding->shape.size() == 2, CheckpointError, "'", file.path(),
             "' has no matrix 'token_embd.weight'");
  c.vocabulary = embedding->shape[0];
  c.d_model = s.integer("llama.embedding_length");
  c.layers = s.integer("llama.block_count", {}, kMaxLayers);
  c.heads = s.integer("llama.attention.head_count");
  c.key_heads = s.integer("llama.attention.head_count_kv", c.heads);
  c.head_width = s.integer("llama.attention.key_length", 0);
  c.d_ff = s.integer("llama.feed_forward_length");
  c.max_length = s.integer("llama.context_length", 2048);
  c.eps = s.number("llama.attention.layer_norm_rms_epsilon");
  c.rotary.base = s.number("llama.rope.freq_base", 10000);
  c.tie_embeddings = file.find("output.weight") == nullptr;
  check_sizes(c, file.path());
  const int64_t turned = s.integer("llama.rope.dimension_count", c.layout().width);
  HEED_CHECK(turned == c.layout().width, ConfigError, "'", file.path(), "': llama.rope.dimension_count is ",
             turned, "; heed expects the width of a head, ", c.layout().width);
  const std::string* const scaling = file.value<std::string>("llama.rope.scaling.type");
  HEED_CHECK(!scaling || *scaling == "none" || *scaling == "linear", ConfigError, "'", file.path(),
             "': llama.rope.scaling.type is '", *scaling, "'; heed has 'none' and 'linear'");
  if (scaling && *scaling == "linear")
    c.rotary.scaling = {.kind = RotaryScalingKind::linear, .factor = s.number("llama.rope.scaling.factor")};
  return c;
}

Json write_llama(const LanguageModelConfig& c) {
  constexpr const char* kFamily = "Llama";
  expect_setting(c.norm == NormPlacement::pre && c.norm_kind == NormKind::rms, kFamily, "norms");
  expect_setting(c.position == PositionKind::rotary && c.rotary.pairing == RotaryPairing::half &&
                     c.rotary.rotated(c.layout().width) == c.layout().width &&
                     c.rotary.scaling.kind != RotaryScalingKind::ntk,
                 kFamily, "positions");
  expect_setting(c.activation == FeedForwardKind::swiglu, kFamily, "activation");
  expect_setting(c.qkv_bias == c.out_bias && !c.feed_forward_bias, kFamily, "biases");
  expect_setting(!c.scale_embeddings, kFamily, "scaled embeddings");
  expect_setting(c.window == 0 && !c.blocks.defined(), kFamily, "sparse attention");
  Json json;
  json["architectures"] = {"LlamaForCausalLM"};
  json["model_type"] = "llama";
  json["vocab_size"] = c.vocabulary;
  json["hidden_size"] = c.d_model;
  json["num_hidden_layers"] = c.layers;
  json["num_attention_heads"] = c.heads;
  json["num_key_value_heads"] = c.layout().key_heads;
  json["head_dim"] = c.layout().width;
  json["intermediate_size"] = c.d_ff;
  json["hidden_act"] = "silu";
  json["max_position_embeddings"] = c.max_length;
  json["rms_norm_eps"] = c.eps;
  json["attention_dropout"] = c.attention_dropout;
  json["attention_bias"] = c.qkv_bias;
  json["mlp_bias"] = false;
  json["tie_word_embeddings"] = c.tie_embeddings;
  json["rope_theta"] = c.rotary.base;
  json["rope_parameters"] = rotary_json(c.rotary);
  if (c.rotary.scaling.kind != RotaryScalingKind::none) json["rope_scaling"] = rotary_json(c.rotary);
  return json;
}

}  // namespace heed::nn::detail
