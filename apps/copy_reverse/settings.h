// Everything that can be set about a model, its data and its training, and the presets.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include <heed/data/loader.h>
#include <heed/data/tasks.h>
#include <heed/nn/init.h>
#include <heed/nn/transformer.h>
#include <heed/optim/optimizer.h>
#include <heed/optim/schedule.h>

#include "apps/common/common_settings.h"

namespace heed::apps {

enum class Preset { standard, tutorial, paper_copy };
enum class OptimizerKind { adam, adamw, sgd };

struct Settings : CommonSettings {
  Preset preset = Preset::standard;

  data::Task task = data::Task::copy_reverse;
  int64_t min_length = 3, max_length = 10, pairs = 10'000, valid_pairs = 1'000;
  bool fresh = true, no_source_marks = false, no_end_mark = false;
  std::filesystem::path data, valid;

  std::optional<int64_t> epochs, steps;
  int64_t batch_size = 32;
  std::optional<int64_t> accumulate;  // 1
  bool no_shuffle = false;
  OptimizerKind optimizer = OptimizerKind::adam;
  double beta1 = 0.9, beta2 = 0.98, adam_eps = 1e-9, lr = 2e-3, weight_decay = 0;
  optim::ScheduleKind schedule = optim::ScheduleKind::cosine;
  int64_t warmup = 200, step_epochs = 5;
  double gamma = 0.5, clip = 1;
  double label_smoothing = 0;

  int64_t d_model = 128, heads = 8, layers = 3;
  std::optional<int64_t> encoder_layers, decoder_layers;
  int64_t d_ff = 512, vocab = 20, max_positions = 512;
  nn::NormPlacement norm = nn::NormPlacement::pre;
  nn::FeedForwardKind activation = nn::FeedForwardKind::relu;
  nn::PositionKind position = nn::PositionKind::sinusoidal;
  double dropout = 0;
  std::optional<double> attention_dropout;
  nn::Initializer initializer = nn::Initializer::xavier_uniform;
  std::optional<double> embedding_std;
  bool separate_projections = false;

  DType dtype = DType::f32;
  std::filesystem::path init, out = "runs/copy_reverse";
  bool resume = false, force = false;
  int64_t save_every = 0;  // steps; 0: at the end of each epoch

  nn::TransformerConfig model_config() const;
  data::Marks marks() const { return {.source = !no_source_marks, .end = !no_end_mark}; }
  data::LoaderOptions loader_options() const;
  /// Training pairs: from --data, else generated.
  std::shared_ptr<const data::PairDataset> training_data() const;
  /// Validation pairs: from --valid, else generated, else null (--data without --valid).
  std::shared_ptr<const data::PairDataset> validation_data() const;
  /// The rate of each step, for epochs of that many steps.
  optim::Schedule rate_schedule(int64_t steps_per_epoch) const;
  /// Epochs and steps as asked for, or the preset's.
  int64_t last_epoch() const { return epochs.value_or(steps ? INT64_MAX : 8); }
  /// Steps until both have ended, for epochs of that many steps; INT64_MAX where there is no end.
  int64_t last_step(int64_t steps_per_epoch) const;
  /// ConfigError for settings that contradict each other.
  void check() const;
  /// DataError for sequences longer than a learned table of positions.
  void check_lengths(const data::PairDataset& pairs) const;
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

/// The model as its constructor and --initializer make it, drawn from the seed.
std::unique_ptr<nn::Transformer> make_model(const Settings& settings);
/// --optimizer for the model's parameters.
std::unique_ptr<optim::Optimizer> make_optimizer(const Settings& settings, nn::Module& model);
/// The trained model of DIR, in evaluation mode.
std::unique_ptr<nn::Transformer> load_model(const Settings& settings, const std::filesystem::path& directory,
                                            Device device);

}  // namespace heed::apps
