// The settings of a training that programs have in common, whatever they train.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <heed/core/io/directory_lock.h>
#include <heed/nn/module.h>
#include <heed/optim/optimizer.h>
#include <heed/optim/schedule.h>
#include <heed/train/trainer.h>

#include "apps/common/options/options.h"

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
  std::optional<int64_t> average;  // neither
  std::optional<double> ema;

  /// The rate of each step, for epochs of that many steps.
  optim::Schedule rate_schedule(int64_t steps_per_epoch) const;
  /// Epochs as asked for, or 8 where neither they nor steps are.
  int64_t last_epoch() const { return epochs.value_or(steps ? INT64_MAX : 8); }
  /// Steps until both have ended, for epochs of that many steps; INT64_MAX where there is no end.
  int64_t last_step(int64_t steps_per_epoch) const;
};

/// Where a run leaves its results, and what it does with those that are there.
struct RunSettings {
  DType dtype = DType::f32;
  std::filesystem::path out;
  bool resume = false, force = false;
  int64_t save_every = 0;  // steps; 0: at the end of each epoch

  /// ConfigError for settings that contradict each other, CheckpointError where there is nothing to resume.
  void check() const;
};

/// The group "Training".
void declare_optimization(OptionTable& table, OptimizationSettings& settings);
/// The group "Run".
void declare_run(OptionTable& table, RunSettings& settings);

/// A resumed run takes what the options leave open from its checkpoint.
void take_saved_settings(const RunSettings& settings, OptionTable& table);
/// The settings of the model that a run left in the folder. CheckpointError where there is none.
void read_trained_settings(OptionTable& table, const std::filesystem::path& directory);
/// The lock of the run's folder, rid of what an earlier run left unless that is resumed.
DirectoryLock open_run_folder(const RunSettings& settings);

/// --optimizer for the model's parameters; those of `groups` have rates and decays of their own.
std::unique_ptr<optim::Optimizer> make_optimizer(const OptimizationSettings& settings, nn::Module& model,
                                                 std::vector<optim::Group> groups = {});
/// What the settings, as the table has them, say of a training on epochs of that many batches; `data` is the
/// data set's fingerprint.
train::TrainerOptions trainer_options(const OptimizationSettings& settings, const RunSettings& run,
                                      const OptionTable& table, int64_t batches, std::string data);

}  // namespace heed::apps
