// The commands of lm. Each throws on error; run_program turns that into an exit code.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <heed/nn/text/text_generator.h>
#include <heed/train/language_model.h>

#include "apps/common/options/common_settings.h"
#include "apps/lm/train_settings.h"

namespace heed::apps {

/// What --dtype says of the weights.
enum class WeightKind : uint8_t { f32, bf16, int8 };

/// What all commands share.
struct ModelSettings : CommonSettings {
  std::filesystem::path model;
  WeightKind weights = WeightKind::f32;
};

/// How texts are drawn.
struct SamplingSettings : ModelSettings {
  int64_t max_tokens = 256;
  double temperature = 0.8, top_p = 0.95, min_p = 0, repetition_penalty = 1;
  int64_t top_k = 0;
  std::vector<std::string> stop;
};

struct GenerateSettings : SamplingSettings {
  std::vector<std::string> prompts;
};

struct ChatSettings : SamplingSettings {
  std::string system;
  std::vector<std::string> messages;
};

/// A text that a model is measured on.
struct MeasuredText {
  std::filesystem::path data;
  DocumentUnit unit = DocumentUnit::file;
  int64_t window = 1024;
};

struct EvalSettings : ModelSettings, MeasuredText {};

struct AttentionSettings : ModelSettings {
  int64_t layer = 0;
  std::optional<int64_t> head;  // all
  std::filesystem::path out;
  std::vector<std::string> texts;
};

struct HeadsSettings : ModelSettings, MeasuredText {
  HeadsSettings() { window = 128; }
  std::filesystem::path out;
  int64_t period = 50, sequences = 16;  // of random tokens that come again
};

struct MergeSettings : CommonSettings {
  std::filesystem::path model, base, out;
};

void generate(const GenerateSettings& settings);
void chat(const ChatSettings& settings);
void evaluate(const EvalSettings& settings);
void attention(const AttentionSettings& settings);
void heads(const HeadsSettings& settings);
void info(const ModelSettings& settings);
void train(TrainSettings& settings, OptionTable& table);
void merge(const MergeSettings& settings);

nn::TextGenerator open_generator(const ModelSettings& settings);
/// Positions that a model knows: of learned ones a number, of others more than any text has.
int64_t count_positions(const nn::LanguageModel& model);
/// How well documents are predicted, each behind the token that begins texts. `window` tokens are looked back
/// at, at most, and no more than the model has positions.
train::Prediction predict(const nn::TextGenerator& generator, const std::vector<std::string>& documents,
                          int64_t window);
/// A model with the adapters of a folder as part of its weights; it is that of `base`, or, where that is
/// empty, the one that the folder names.
nn::TextGenerator load_merged(const std::filesystem::path& adapters, const std::filesystem::path& base);
/// To standard output as it comes, safe for a terminal; a signal ends it.
nn::TextGenerateOptions streaming(const SamplingSettings& settings, bool quiet);

}  // namespace heed::apps
