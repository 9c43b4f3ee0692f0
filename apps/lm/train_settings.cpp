#include "apps/lm/train_settings.h"

#include <algorithm>

#include <heed/core/base/int_math.h>

namespace heed::apps {
namespace {

constexpr IntegerRange kFromZero{0, int64_t{1} << 40};
constexpr IntegerRange kSize{1, int64_t{1} << 20};
constexpr IntegerRange kSizeOrNone{0, int64_t{1} << 20};

using data::TokenizerKind;

void declare_documents(OptionTable& table, DocumentSettings& s) {
  table.group("Text");
  table.path("data", s.data, "A UTF-8 text, or a folder of them").not_saved();
  table.choice(
      "documents", s.unit, "What a document is, across whose ends no token is looked back at",
      {{"file", DocumentUnit::file}, {"paragraph", DocumentUnit::paragraph}, {"line", DocumentUnit::line}});
  table.path("valid", s.valid, "Validation text from a file or folder of its own").not_saved();
  table.number("valid-share", s.valid_share, "Part of the text for validation, without --valid",
               {0, 1, false, true});
  table.choice("split", s.split,
               "Which part: documents by their hash, or the end of the text; auto: by hash of 100 or more",
               {{"auto", Split::automatic}, {"hash", Split::hash}, {"tail", Split::tail}});
}

void declare_tokens(OptionTable& table, TrainSettings& s) {
  table.group("Vocabulary");
  table.choice("tokenizer", s.tokenizer, "What a token is: a character, a byte or a sub-word",
               {{"char", TokenizerKind::characters},
                {"byte", TokenizerKind::bytes},
                {"bpe", TokenizerKind::bpe},
                {"unigram", TokenizerKind::unigram}});
  table.integer("vocab", s.vocab, "Ids of a new vocabulary, at most", {4, int64_t{1} << 24});
  table.path("tokenizer-file", s.tokenizer_file,
             "A tokenizer that is there, in place of a new one: tokenizer.json, or of an earlier training");
}

void declare_model(OptionTable& table, TrainSettings& s) {
  table.group("Model");
  table.path("model", s.model, "Go on from this model: a GGUF file, or a folder with config.json");
  table.choice("style", s.style,
               "A new model: gpt2 (learned positions, layer norms, GELU) or llama (rotary positions, RMS "
               "norms, SwiGLU)",
               {{"gpt2", Style::gpt2}, {"llama", Style::llama}});
  table.integer("context", s.context, "Tokens that are looked back at, at most", kSize);
  table.integer("layers", s.layers, "Layers", {0, 1024});
  table.integer("d-model", s.d_model, "Width", kSize);
  table.integer("heads", s.heads, "Attention heads; 0: one for 64 columns", kSizeOrNone);
  table.integer("key-heads", s.key_heads, "Heads of keys and values that they share; 0: as many",
                kSizeOrNone);
  table.integer("d-ff", s.d_ff, "Width of the feed-forward network; 0: 4 times the width, of llama 8/3",
                kSizeOrNone);
  table.flag("untied", s.untied, "An output layer of its own, not the embeddings");
  table.number("dropout", s.dropout, "Rate of all dropouts", {0, 1, false, true});
}

void declare_lora(OptionTable& table, LoraSettings& s) {
  table.group("Adapters");
  table.integer("lora-rank", s.lora_rank,
                "Train low-rank adapters of --model, which itself stays as it is; 0: all of it", kSizeOrNone);
  table.number("lora-alpha", s.lora_alpha, "They count alpha / rank times", {0, 1e6, true, false});
  table.list("lora-targets", s.lora_targets,
             "Matrices that have one, as the model's family names them; default: q_proj and v_proj, of GPT-2 "
             "c_attn; all: each of a layer");
}

}  // namespace

void declare_training(OptionTable& table, TrainSettings& s) {
  declare_common(table, s);
  declare_documents(table, s);
  declare_tokens(table, s);
  declare_model(table, s);
  declare_lora(table, s);
  declare_optimization(table, s);
  declare_run(table, s);
  table.integer("patience", s.patience, "Measurements without a better one that end the training; 0: none do",
                kFromZero);
  table
      .integer("sample-tokens", s.sample_tokens, "Tokens of a text that each measurement shows; 0: no text",
               {0, 1 << 16})
      .not_saved();
  table.text("prompt", s.prompt, "How that text begins").not_saved();
}

TrainSettings::TrainSettings() {
  out = "runs/lm";
  optimizer = OptimizerKind::adamw;
  weight_decay = 0.1;
  beta2 = 0.95;
  adam_eps = 1e-8;
  batch_size = 16;
  warmup = 100;
}

nn::LanguageModelConfig ModelShape::config(int64_t vocabulary, int64_t context) const {
  const bool llama = style == Style::llama;
  nn::LanguageModelConfig c = llama ? nn::LanguageModelConfig::llama() : nn::LanguageModelConfig::gpt2();
  c.vocabulary = vocabulary;
  c.layers = layers;
  c.d_model = d_model;
  c.heads = heads > 0 ? heads : std::max<int64_t>(1, d_model / 64);
  c.key_heads = key_heads;
  c.d_ff = d_ff > 0 ? d_ff : llama ? ceil_divide(8 * d_model, int64_t{96}) * 32 : 4 * d_model;
  c.max_length = context;
  c.tie_embeddings = !untied;
  c.attention_dropout = c.residual_dropout = c.embedding_dropout = dropout;
  c.activation_dropout = llama ? 0 : dropout;
  c.check();
  return c;
}

// Shorter samples fill a batch up to as many tokens as samples of the whole context have.
data::LoaderOptions TrainSettings::loader_options() const {
  return {.batch_size = 8 * batch_size,
          .max_tokens = batch_size * context,
          .shuffle = !no_shuffle,
          .seed = static_cast<uint64_t>(seed)};
}

void TrainSettings::check(const OptionTable& table) const {
  RunSettings::check();
  HEED_CHECK(!data.empty(), ConfigError, "training needs a text: give a file or a folder with --data");
  HEED_CHECK(
      valid.empty() || split == Split::automatic, ConfigError,
      "--valid and --split contradict each other: one brings a validation text, the other takes it from "
      "--data");
  HEED_CHECK(tokenizer_file.empty() || !table.given("tokenizer"), ConfigError,
             "--tokenizer-file and --tokenizer contradict each other: one is there, the other is made");
  HEED_CHECK(lora_rank == 0 || (!model.empty() && dtype == DType::f32), ConfigError,
             "--lora-rank needs a --model to adapt, and --dtype f32");
  if (model.empty()) return static_cast<void>(config(1, context));
  for (const char* name : {"tokenizer", "tokenizer-file", "vocab", "style", "layers", "d-model", "heads",
                           "key-heads", "d-ff", "untied"})
    HEED_CHECK(!table.given(name) || resume, ConfigError, "--", name,
               " and --model contradict each other: ", "the model has these already");
}

}  // namespace heed::apps
