// The settings of a sequence-to-sequence model and of its training that programs have in common.
#pragma once

#include <memory>
#include <optional>

#include <heed/nn/init.h>
#include <heed/nn/transformer.h>
#include <heed/optim/optimizer.h>
#include <heed/optim/schedule.h>

#include "apps/common/options.h"

namespace heed::apps {

enum class OptimizerKind { adam, adamw, sgd };

/// How a model is trained.
struct OptimizationSettings {
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

  /// The rate of each step, for epochs of that many steps.
  optim::Schedule rate_schedule(int64_t steps_per_epoch) const;
  /// Epochs as asked for, or 8 where neither they nor steps are.
  int64_t last_epoch() const { return epochs.value_or(steps ? INT64_MAX : 8); }
  /// Steps until both have ended, for epochs of that many steps; INT64_MAX where there is no end.
  int64_t last_step(int64_t steps_per_epoch) const;
};

/// What a model looks like, and its first values.
struct ArchitectureSettings {
  int64_t d_model = 128, heads = 8, layers = 3;
  std::optional<int64_t> encoder_layers, decoder_layers;
  int64_t d_ff = 512, max_positions = 512;
  nn::NormPlacement norm = nn::NormPlacement::pre;
  nn::FeedForwardKind activation = nn::FeedForwardKind::relu;
  nn::PositionKind position = nn::PositionKind::sinusoidal;
  double dropout = 0;
  std::optional<double> attention_dropout;
  nn::Initializer initializer = nn::Initializer::xavier_uniform;
  std::optional<double> embedding_std;
  bool separate_projections = false;

  nn::TransformerConfig config(int64_t source_vocabulary, int64_t target_vocabulary) const;
};

/// The group "Training".
void declare_optimization(OptionTable& table, OptimizationSettings& settings);
/// The group "Model".
void declare_architecture(OptionTable& table, ArchitectureSettings& settings);

/// The model as its constructor and --initializer make it, drawn from the seed.
std::unique_ptr<nn::Transformer> make_model(const ArchitectureSettings& settings,
                                            const nn::TransformerConfig& config, int64_t seed);
/// --optimizer for the model's parameters.
std::unique_ptr<optim::Optimizer> make_optimizer(const OptimizationSettings& settings, nn::Module& model);

}  // namespace heed::apps
