// Everything that can be set about a model, its data and its training, and the presets.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include <heed/data/pair_loader.h>
#include <heed/data/tasks.h>
#include <heed/nn/models/seq2seq_rnn.h>
#include <heed/nn/models/transformer.h>
#include <heed/train/seq2seq.h>

#include "apps/common/options/common_settings.h"
#include "apps/common/options/seq2seq_settings.h"
#include "apps/common/options/training_settings.h"

namespace heed::apps {

enum class Preset { standard, tutorial, paper_copy };
enum class SequenceModel { transformer, gru, lstm };

struct Settings : CommonSettings, OptimizationSettings, ArchitectureSettings, RunSettings {
  Settings() { out = "runs/copy_reverse"; }

  Preset preset = Preset::standard;

  std::string task = "copy_reverse";
  int64_t min_length = 3, max_length = 10, pairs = 10'000, valid_pairs = 1'000;
  bool last_digit_first = false, fresh = true, no_source_marks = false, no_end_mark = false;
  std::filesystem::path data, valid;

  SequenceModel model = SequenceModel::transformer;
  int64_t vocab = 20;

  std::filesystem::path init;
  bool no_figures = false;

  nn::TransformerConfig model_config() const { return config(vocab, vocab); }
  /// Of a recurrent model: what the Transformer's settings say of width, layers and dropout.
  nn::Seq2SeqRnnConfig rnn_config() const;
  /// The rule of generated pairs, and how its symbols are written; those of files are numbers.
  data::Task task_rule() const { return data.empty() ? data::Task(task) : data::Task(); }
  data::Marks marks() const { return {.source = !no_source_marks, .end = !no_end_mark}; }
  data::LoaderOptions loader_options() const;
  train::RandomPositions positions_to_train() const {
    return {.range = random_positions, .seed = static_cast<uint64_t>(seed)};
  }
  /// Training pairs: from --data, else generated.
  std::shared_ptr<const data::PairDataset> training_data() const;
  /// Validation pairs: from --valid, else generated, else null (--data without --valid).
  std::shared_ptr<const data::PairDataset> validation_data() const;
  /// ConfigError for settings that contradict each other.
  void check() const;
  /// DataError for sequences longer than a learned table of positions.
  void check_lengths(const data::PairDataset& pairs) const;
  /// The same for training on them, and ConfigError where random positions are too few.
  void check_training_lengths(const data::PairDataset& pairs) const;
  void check_lengths(int64_t longest_source, int64_t longest_target) const;

 private:
  data::TaskOptions task_options() const;
};

/// Data, optimization and model: what is to be learned and how.
void declare_recipe(OptionTable& table, Settings& settings);
/// All of `train`'s: the recipe, and where a run begins and leaves its results.
void declare_training(OptionTable& table, Settings& settings);

/// The settings of a trained model: DIR/config.toml. CheckpointError where there is none, ConfigError.
Settings load_settings(const std::filesystem::path& directory);

/// The model, drawn from the seed; and one whose parameters have no values that matter.
std::unique_ptr<nn::Seq2SeqModel> make_model(const Settings& settings);
std::unique_ptr<nn::Seq2SeqModel> blank_model(const Settings& settings);

/// The trained model of DIR, in evaluation mode.
std::unique_ptr<nn::Seq2SeqModel> load_model(const Settings& settings, const std::filesystem::path& directory,
                                             Device device);

}  // namespace heed::apps
