// GPT-2, whose matrices stand as [in, out] in its files.
#include <heed/nn/pretrained/detail/families.h>

namespace heed::nn::detail {
namespace {

constexpr NameRule kRules[] = {
    {"wte.weight", "embedding.weight"},
    {"/lm_head.weight", "embedding.weight"},
    {"/lm_head.weight", "generator.weight"},
    {"wpe.weight", "position.weight"},
    {"h.*.ln_1.weight", "layers.*.norm1.weight"},
    {"h.*.ln_1.bias", "layers.*.norm1.bias"},
    {"h.*.attn.c_attn.weight", "layers.*.self_attn.in_proj_weight", Part::whole, Stored::transposed},
    {"h.*.attn.c_attn.bias", "layers.*.self_attn.in_proj_bias"},
    {"h.*.attn.c_proj.weight", "layers.*.self_attn.out_proj.weight", Part::whole, Stored::transposed},
    {"h.*.attn.c_proj.bias", "layers.*.self_attn.out_proj.bias"},
    {"h.*.ln_2.weight", "layers.*.norm2.weight"},
    {"h.*.ln_2.bias", "layers.*.norm2.bias"},
    {"h.*.mlp.c_fc.weight", "layers.*.linear1.weight", Part::whole, Stored::transposed},
    {"h.*.mlp.c_fc.bias", "layers.*.linear1.bias"},
    {"h.*.mlp.c_proj.weight", "layers.*.linear2.weight", Part::whole, Stored::transposed},
    {"h.*.mlp.c_proj.bias", "layers.*.linear2.bias"},
    {"ln_f.weight", "norm.weight"},
    {"ln_f.bias", "norm.bias"},
};

// The causal mask and what it hides scores by.
constexpr const char* kPassedOver[] = {"h.*.attn.bias", "h.*.attn.masked_bias"};

}  // namespace

const NameTable kGpt2Names{"transformer.", kRules, kPassedOver};

LanguageModelConfig read_gpt2(const Settings& s) {
  LanguageModelConfig c = LanguageModelConfig::gpt2();
  c.vocabulary = s.integer("vocab_size");
  c.d_model = s.integer("n_embd");
  c.layers = s.integer("n_layer", {}, kMaxLayers);
  c.heads = s.integer("n_head");
  c.d_ff = s.integer("n_inner", 4 * c.d_model);
  c.max_length = s.integer("n_positions", s.integer("n_ctx", 1024));
  c.activation = read_activation(s, "activation_function", "gelu_new");
  c.eps = s.number("layer_norm_epsilon", 1e-5);
  c.attention_dropout = s.number("attn_pdrop", 0.1);
  c.residual_dropout = s.number("resid_pdrop", 0.1);
  c.embedding_dropout = s.number("embd_pdrop", 0.1);
  c.tie_embeddings = s.flag("tie_word_embeddings", true);
  s.expect_flag("scale_attn_weights", true);
  s.expect_flag("scale_attn_by_inverse_layer_idx", false);
  s.expect_flag("add_cross_attention", false);
  c.check();
  return c;
}

Json write_gpt2(const LanguageModelConfig& c) {
  constexpr const char* kFamily = "GPT-2";
  expect_setting(c.norm == NormPlacement::pre && c.norm_kind == NormKind::layer, kFamily, "norms");
  expect_setting(c.position == PositionKind::learned, kFamily, "positions");
  expect_setting(c.layout().key_heads == c.heads && c.layout().width * c.heads == c.d_model, kFamily,
                 "heads");
  expect_setting(c.qkv_bias && c.out_bias && c.feed_forward_bias, kFamily, "biases");
  expect_setting(!c.scale_embeddings, kFamily, "scaled embeddings");
  expect_setting(c.window == 0 && !c.blocks.defined(), kFamily, "sparse attention");
  Json json;
  json["architectures"] = {"GPT2LMHeadModel"};
  json["model_type"] = "gpt2";
  json["vocab_size"] = c.vocabulary;
  json["n_embd"] = c.d_model;
  json["n_layer"] = c.layers;
  json["n_head"] = c.heads;
  json["n_inner"] = c.d_ff;
  json["n_positions"] = c.max_length;
  json["activation_function"] = activation_text(c.activation);
  json["layer_norm_epsilon"] = c.eps;
  json["attn_pdrop"] = c.attention_dropout;
  json["resid_pdrop"] = c.residual_dropout;
  json["embd_pdrop"] = c.embedding_dropout;
  json["tie_word_embeddings"] = c.tie_embeddings;
  json["bos_token_id"] = json["eos_token_id"] = nullptr;  // heed knows no meanings of ids
  return json;
}

}  // namespace heed::nn::detail
