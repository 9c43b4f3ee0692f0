// BERT and RoBERTa.
#include <algorithm>

#include <heed/nn/pretrained/detail/families.h>

namespace heed::nn::detail {
namespace {

constexpr NameRule kRules[] = {
    {"embeddings.word_embeddings.weight", "embedding.weight"},
    {"embeddings.position_embeddings.weight", "position.weight"},
    {"embeddings.token_type_embeddings.weight", "token_type.weight"},
    {"embeddings.LayerNorm.weight", "embedding_norm.weight"},
    {"embeddings.LayerNorm.bias", "embedding_norm.bias"},
    {"encoder.layer.*.attention.self.query.weight", "layers.*.self_attn.in_proj_weight", Part::query},
    {"encoder.layer.*.attention.self.key.weight", "layers.*.self_attn.in_proj_weight", Part::key},
    {"encoder.layer.*.attention.self.value.weight", "layers.*.self_attn.in_proj_weight", Part::value},
    {"encoder.layer.*.attention.self.query.bias", "layers.*.self_attn.in_proj_bias", Part::query},
    {"encoder.layer.*.attention.self.key.bias", "layers.*.self_attn.in_proj_bias", Part::key},
    {"encoder.layer.*.attention.self.value.bias", "layers.*.self_attn.in_proj_bias", Part::value},
    {"encoder.layer.*.attention.output.dense.weight", "layers.*.self_attn.out_proj.weight"},
    {"encoder.layer.*.attention.output.dense.bias", "layers.*.self_attn.out_proj.bias"},
    {"encoder.layer.*.attention.output.LayerNorm.weight", "layers.*.norm1.weight"},
    {"encoder.layer.*.attention.output.LayerNorm.bias", "layers.*.norm1.bias"},
    {"encoder.layer.*.intermediate.dense.weight", "layers.*.linear1.weight"},
    {"encoder.layer.*.intermediate.dense.bias", "layers.*.linear1.bias"},
    {"encoder.layer.*.output.dense.weight", "layers.*.linear2.weight"},
    {"encoder.layer.*.output.dense.bias", "layers.*.linear2.bias"},
    {"encoder.layer.*.output.LayerNorm.weight", "layers.*.norm2.weight"},
    {"encoder.layer.*.output.LayerNorm.bias", "layers.*.norm2.bias"},
    {"pooler.dense.weight", "pooler.weight"},
    {"pooler.dense.bias", "pooler.bias"},
};

// A constant, and the heads that stand on the encoder.
constexpr const char* kPassedOver[] = {"embeddings.position_ids", "/cls.*", "/lm_head.*", "/classifier.*",
                                       "/qa_outputs.*"};

TextEncoderConfig read(const Settings& s, int64_t first_position) {
  TextEncoderConfig c;
  c.vocabulary = s.integer("vocab_size");
  c.d_model = s.integer("hidden_size");
  c.layers = s.integer("num_hidden_layers", {}, kMaxLayers);
  c.heads = s.integer("num_attention_heads");
  c.d_ff = s.integer("intermediate_size");
  c.activation = read_activation(s, "hidden_act", "gelu");
  c.token_types = s.integer("type_vocab_size", 2);
  c.first_position = first_position;
  c.max_length = std::max<int64_t>(s.integer("max_position_embeddings", 512) - first_position, 0);
  c.eps = s.number("layer_norm_eps", 1e-12);
  c.attention_dropout = s.number("attention_probs_dropout_prob", 0.1);
  c.residual_dropout = c.embedding_dropout = s.number("hidden_dropout_prob", 0.1);
  c.activation_dropout = 0;
  const std::string positions = s.text("position_embedding_type", "absolute");
  HEED_CHECK(positions == "absolute", ConfigError, "'", s.file(), "': position_embedding_type is '",
             positions, "'; heed has 'absolute'");
  s.expect_flag("is_decoder", false);
  s.expect_flag("add_cross_attention", false);
  c.check();
  return c;
}

}  // namespace

const NameTable kBertNames{"bert.", kRules, kPassedOver};
const NameTable kRobertaNames{"roberta.", kRules, kPassedOver};

TextEncoderConfig read_bert(const Settings& settings) { return read(settings, 0); }

// The padding's id, and the positions up to it, are never a token's.
TextEncoderConfig read_roberta(const Settings& settings) {
  return read(settings, settings.integer("pad_token_id", 1) + 1);
}

Json write_bert(const TextEncoderConfig& c) {
  const bool roberta = c.first_position > 0;
  const char* const family = roberta ? "RoBERTa" : "BERT";
  expect_setting(c.norm == NormPlacement::post && c.norm_kind == NormKind::layer, family, "norms");
  expect_setting(c.position == PositionKind::learned, family, "positions");
  expect_setting(c.layout().key_heads == c.heads && c.layout().width * c.heads == c.d_model, family, "heads");
  expect_setting(c.qkv_bias && c.out_bias && c.feed_forward_bias, family, "biases");
  expect_setting(c.token_types > 0, family, "token types");
  Json json;
  json["architectures"] = {roberta ? "RobertaModel" : "BertModel"};
  json["model_type"] = roberta ? "roberta" : "bert";
  json["vocab_size"] = c.vocabulary;
  json["hidden_size"] = c.d_model;
  json["num_hidden_layers"] = c.layers;
  json["num_attention_heads"] = c.heads;
  json["intermediate_size"] = c.d_ff;
  json["hidden_act"] = activation_text(c.activation);
  json["hidden_dropout_prob"] = c.residual_dropout;
  json["attention_probs_dropout_prob"] = c.attention_dropout;
  json["max_position_embeddings"] = c.max_length + c.first_position;
  json["type_vocab_size"] = c.token_types;
  json["layer_norm_eps"] = c.eps;
  json["pad_token_id"] = roberta ? c.first_position - 1 : 0;
  return json;
}

}  // namespace heed::nn::detail
