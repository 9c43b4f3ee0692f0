// Everything that can be set about a model from text to text, its data and its training, and the presets.
#pragma once

#include <filesystem>
#include <memory>

#include <heed/data/pair_loader.h>
#include <heed/data/text/text_pairs.h>
#include <heed/data/text/tokenizer.h>

#include "apps/common/options/common_settings.h"
#include "apps/common/options/seq2seq_settings.h"
#include "apps/common/options/training_settings.h"

namespace heed::apps {

enum class Preset { standard, translate, pronounce };
enum class PairFormat { tsv, cmudict };
enum class Tie { none, output, all };
enum class Selection { loss, edits };

/// Where pairs of texts come from, and which are taken.
struct DataSettings {
  std::vector<std::string> data;  // files
  double mix_temperature = 1;     // of several
  std::filesystem::path source_lines, target_lines, valid, test;
  PairFormat format = PairFormat::tsv;
  bool quoted = false, stress = false;
  double valid_share = 0.02, test_share = 0.02;
  bool keep_duplicates = false, drop_equal = false;
  int64_t max_length = 0;
  double max_ratio = 0;
  bool stream = false;
};

/// How texts become tokens.
struct VocabularySettings {
  data::TokenizerKind source_tokenizer = data::TokenizerKind::unigram;
  data::TokenizerKind target_tokenizer = data::TokenizerKind::unigram;
  bool separate_vocabularies = false;
  int64_t vocab = 8'000, min_count = 1;
  data::Normalization normalization = data::Normalization::nfc;
  bool lowercase = false;

  data::TokenizerOptions source_options() const;
  data::TokenizerOptions target_options() const;
};

struct Settings : CommonSettings,
                  DataSettings,
                  VocabularySettings,
                  OptimizationSettings,
                  ArchitectureSettings,
                  RunSettings {
  Settings();

  Preset preset = Preset::standard;
  int64_t batch_tokens = 4096, max_tokens = 256;
  Tie tie = Tie::all;
  Selection select = Selection::loss;
  int64_t patience = 0, valid_texts = 2'000, beam = 5;
  double length_penalty = 0;

  nn::TransformerConfig model_config(int64_t source_vocabulary, int64_t target_vocabulary) const;
  data::LoaderOptions loader_options() const;
  /// ConfigError for settings that contradict each other.
  void check() const;
};

/// The group "Texts": where pairs come from.
void declare_data(OptionTable& table, DataSettings& settings);
/// All of `train`'s.
void declare_training(OptionTable& table, Settings& settings);

/// The settings of a trained model: DIR/config.toml. CheckpointError where there is none, ConfigError.
Settings load_settings(const std::filesystem::path& directory);

/// The model as --initializer and --embedding-std make it, drawn from the seed; by default embeddings begin
/// with a deviation of 1 / √d_model, so that tied ones give logits of about 1.
std::unique_ptr<nn::Transformer> make_model(const Settings& settings, const nn::TransformerConfig& config);

}  // namespace heed::apps
