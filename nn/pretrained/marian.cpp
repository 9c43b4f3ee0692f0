// Marian: the translation models of OPUS-MT.
#include <heed/nn/pretrained/detail/families.h>

namespace heed::nn::detail {
namespace {

constexpr NameRule kRules[] = {
    {"shared.weight", "src_embedding.weight"},
    {"shared.weight", "tgt_embedding.weight"},
    {"encoder.embed_tokens.weight", "src_embedding.weight"},
    {"decoder.embed_tokens.weight", "tgt_embedding.weight"},
    {"/lm_head.weight", "generator.weight"},
    {"/final_logits_bias", "generator.bias", Part::whole, Stored::row},

    {"encoder.layers.*.self_attn.q_proj.weight", "encoder.layers.*.self_attn.in_proj_weight", Part::query},
    {"encoder.layers.*.self_attn.k_proj.weight", "encoder.layers.*.self_attn.in_proj_weight", Part::key},
    {"encoder.layers.*.self_attn.v_proj.weight", "encoder.layers.*.self_attn.in_proj_weight", Part::value},
    {"encoder.layers.*.self_attn.q_proj.bias", "encoder.layers.*.self_attn.in_proj_bias", Part::query},
    {"encoder.layers.*.self_attn.k_proj.bias", "encoder.layers.*.self_attn.in_proj_bias", Part::key},
    {"encoder.layers.*.self_attn.v_proj.bias", "encoder.layers.*.self_attn.in_proj_bias", Part::value},
    {"encoder.layers.*.self_attn.out_proj.weight", "encoder.layers.*.self_attn.out_proj.weight"},
    {"encoder.layers.*.self_attn.out_proj.bias", "encoder.layers.*.self_attn.out_proj.bias"},
    {"encoder.layers.*.self_attn_layer_norm.weight", "encoder.layers.*.norm1.weight"},
    {"encoder.layers.*.self_attn_layer_norm.bias", "encoder.layers.*.norm1.bias"},
    {"encoder.layers.*.fc1.weight", "encoder.layers.*.linear1.weight"},
    {"encoder.layers.*.fc1.bias", "encoder.layers.*.linear1.bias"},
    {"encoder.layers.*.fc2.weight", "encoder.layers.*.linear2.weight"},
    {"encoder.layers.*.fc2.bias", "encoder.layers.*.linear2.bias"},
    {"encoder.layers.*.final_layer_norm.weight", "encoder.layers.*.norm2.weight"},
    {"encoder.layers.*.final_layer_norm.bias", "encoder.layers.*.norm2.bias"},

    {"decoder.layers.*.self_attn.q_proj.weight", "decoder.layers.*.self_attn.in_proj_weight", Part::query},
    {"decoder.layers.*.self_attn.k_proj.weight", "decoder.layers.*.self_attn.in_proj_weight", Part::key},
    {"decoder.layers.*.self_attn.v_proj.weight", "decoder.layers.*.self_attn.in_proj_weight", Part::value},
    {"decoder.layers.*.self_attn.q_proj.bias", "decoder.layers.*.self_attn.in_proj_bias", Part::query},
    {"decoder.layers.*.self_attn.k_proj.bias", "decoder.layers.*.self_attn.in_proj_bias", Part::key},
    {"decoder.layers.*.self_attn.v_proj.bias", "decoder.layers.*.self_attn.in_proj_bias", Part::value},
    {"decoder.layers.*.self_attn.out_proj.weight", "decoder.layers.*.self_attn.out_proj.weight"},
    {"decoder.layers.*.self_attn.out_proj.bias", "decoder.layers.*.self_attn.out_proj.bias"},
    {"decoder.layers.*.self_attn_layer_norm.weight", "decoder.layers.*.norm1.weight"},
    {"decoder.layers.*.self_attn_layer_norm.bias", "decoder.layers.*.norm1.bias"},
    {"decoder.layers.*.encoder_attn.q_proj.weight", "decoder.layers.*.multihead_attn.in_proj_weight",
     Part::query},
    {"decoder.layers.*.encoder_attn.k_proj.weight", "decoder.layers.*.multihead_attn.in_proj_weight",
     Part::key},
    {"decoder.layers.*.encoder_attn.v_proj.weight", "decoder.layers.*.multihead_attn.in_proj_weight",
     Part::value},
    {"decoder.layers.*.encoder_attn.q_proj.bias", "decoder.layers.*.multihead_attn.in_proj_bias",
     Part::query},
    {"decoder.layers.*.encoder_attn.k_proj.bias", "decoder.layers.*.multihead_attn.in_proj_bias", Part::key},
    {"decoder.layers.*.encoder_attn.v_proj.bias", "decoder.layers.*.multihead_attn.in_proj_bias",
     Part::value},
    {"decoder.layers.*.encoder_attn.out_proj.weight", "decoder.layers.*.multihead_attn.out_proj.weight"},
    {"decoder.layers.*.encoder_attn.out_proj.bias", "decoder.layers.*.multihead_attn.out_proj.bias"},
    {"decoder.layers.*.encoder_attn_layer_norm.weight", "decoder.layers.*.norm2.weight"},
    {"decoder.layers.*.encoder_attn_layer_norm.bias", "decoder.layers.*.norm2.bias"},
    {"decoder.layers.*.fc1.weight", "decoder.layers.*.linear1.weight"},
    {"decoder.layers.*.fc1.bias", "decoder.layers.*.linear1.bias"},
    {"decoder.layers.*.fc2.weight", "decoder.layers.*.linear2.weight"},
    {"decoder.layers.*.fc2.bias", "decoder.layers.*.linear2.bias"},
    {"decoder.layers.*.final_layer_norm.weight", "decoder.layers.*.norm3.weight"},
    {"decoder.layers.*.final_layer_norm.bias", "decoder.layers.*.norm3.bias"},
};

// Sines, which are computed.
constexpr const char* kPassedOver[] = {"encoder.embed_positions.weight", "decoder.embed_positions.weight"};

}  // namespace

const NameTable kMarianNames{"model.", kRules, kPassedOver};

TransformerConfig read_marian(const Settings& s) {
  TransformerConfig c;
  c.source_vocabulary = c.target_vocabulary = s.integer("vocab_size");
  c.d_model = s.integer("d_model");
  c.heads = s.integer("encoder_attention_heads");
  c.d_ff = s.integer("encoder_ffn_dim");
  c.encoder_layers = s.integer("encoder_layers", {}, kMaxLayers);
  c.decoder_layers = s.integer("decoder_layers", {}, kMaxLayers);
  HEED_CHECK(s.integer("decoder_attention_heads", c.heads) == c.heads &&
                 s.integer("decoder_ffn_dim", c.d_ff) == c.d_ff &&
                 s.integer("decoder_vocab_size", c.target_vocabulary) == c.target_vocabulary,
             ConfigError, "'", s.file(), "': encoder and decoder must have equal sizes");
  c.activation = read_activation(s, "activation_function", "gelu");
  c.sinusoids = SinusoidColumns::halves;
  c.max_length = s.integer("max_position_embeddings", 1024);
  c.residual_dropout = c.embedding_dropout = s.number("dropout", 0.1);
  c.attention_dropout = s.number("attention_dropout", 0);
  c.activation_dropout = s.number("activation_dropout", 0);
  c.scale_embeddings = s.flag("scale_embedding", false);
  c.share_embeddings = c.tie_generator = true;
  for (const char* const key :
       {"share_encoder_decoder_embeddings", "tie_word_embeddings", "static_position_embeddings"})
    s.expect_flag(key, true);
  for (const char* const key : {"normalize_before", "normalize_embedding", "add_final_layer_norm"})
    s.expect_flag(key, false);
  c.check();
  return c;
}

Json write_marian(const TransformerConfig& c) {
  constexpr const char* kFamily = "Marian";
  expect_setting(
      c.norm == NormPlacement::post && c.norm_kind == NormKind::layer && !c.has_final_norm() && c.eps == 1e-5,
      kFamily, "norms");
  expect_setting(c.position == PositionKind::sinusoidal && c.sinusoids == SinusoidColumns::halves, kFamily,
                 "positions");
  expect_setting(c.head_layout().of(c.d_model).key_heads == c.heads &&
                     c.head_layout().of(c.d_model).width * c.heads == c.d_model,
                 kFamily, "heads");
  expect_setting(c.qkv_bias && c.out_bias && c.feed_forward_bias, kFamily, "biases");
  expect_setting(c.share_embeddings && c.tie_generator, kFamily, "embeddings");
  expect_setting(c.residual_dropout == c.embedding_dropout, kFamily, "dropout");
  Json json;
  json["architectures"] = {"MarianMTModel"};
  json["model_type"] = "marian";
  json["vocab_size"] = json["decoder_vocab_size"] = c.source_vocabulary;
  json["d_model"] = c.d_model;
  json["encoder_layers"] = c.encoder_layers;
  json["decoder_layers"] = c.decoder_layers;
  json["encoder_attention_heads"] = json["decoder_attention_heads"] = c.heads;
  json["encoder_ffn_dim"] = json["decoder_ffn_dim"] = c.d_ff;
  json["activation_function"] = activation_text(c.activation);
  json["dropout"] = c.residual_dropout;
  json["attention_dropout"] = c.attention_dropout;
  json["activation_dropout"] = c.activation_dropout;
  json["max_position_embeddings"] = c.max_length;
  json["scale_embedding"] = c.scale_embeddings;
  json["share_encoder_decoder_embeddings"] = true;
  json["tie_word_embeddings"] = true;
  json["is_encoder_decoder"] = true;
  json["pad_token_id"] = json["decoder_start_token_id"] = c.source_vocabulary - 1;
  json["eos_token_id"] = 0;
  return json;
}

}  // namespace heed::nn::detail
