// Everything that can be set about the training of a language model.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <heed/data/loader.h>
#include <heed/data/text/tokenizer.h>
#include <heed/nn/models/language_model.h>

#include "apps/common/options/common_settings.h"
#include "apps/common/options/training_settings.h"

namespace heed::apps {

enum class DocumentUnit { file, paragraph, line };
enum class Split { automatic, hash, tail };
enum class Style { gpt2, llama };

/// Where documents come from, and which are held back.
struct DocumentSettings {
  std::filesystem::path data, valid;
  DocumentUnit unit = DocumentUnit::file;
  Split split = Split::automatic;
  double valid_share = 0.05;
};

/// What a new model looks like.
struct ModelShape {
  Style style = Style::llama;
  int64_t layers = 4, d_model = 256;
  int64_t heads = 0;      // 0: one for 64 columns
  int64_t key_heads = 0;  // 0: as many as heads
  int64_t d_ff = 0;       // 0: 4 d_model, or 8/3 d_model of a gated one
  bool untied = false;
  double dropout = 0;

  nn::LanguageModelConfig config(int64_t vocabulary, int64_t context) const;
};

/// Adapters in place of the whole model; a rank of 0: none.
struct LoraSettings {
  int64_t lora_rank = 0;
  double lora_alpha = 16;
  std::vector<std::string> lora_targets;
};

struct TrainSettings : CommonSettings,
                       DocumentSettings,
                       ModelShape,
                       LoraSettings,
                       OptimizationSettings,
                       RunSettings {
  TrainSettings();

  std::filesystem::path model;  // to go on from; empty: a new one
  data::TokenizerKind tokenizer = data::TokenizerKind::bpe;
  std::filesystem::path tokenizer_file;
  int64_t vocab = 2'000, context = 256;
  int64_t patience = 0, sample_tokens = 0;
  std::string prompt;

  data::LoaderOptions loader_options() const;
  /// ConfigError for settings that contradict each other.
  void check(const OptionTable& table) const;
};

void declare_training(OptionTable& table, TrainSettings& settings);

}  // namespace heed::apps
