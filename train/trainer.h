// The training loop, of any model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include <heed/core/runtime/captured_step.h>
#include <heed/nn/module.h>
#include <heed/optim/ema.h>
#include <heed/optim/optimizer.h>
#include <heed/optim/schedule.h>
#include <heed/train/batch.h>
#include <heed/train/checkpoint.h>
#include <heed/train/checkpoint_average.h>

namespace heed::train {

/// The loss of one batch on the model's device, one number: a mean over the batch's tokens.
using LossFunction = std::function<Tensor(const StepInputs& batch)>;

struct TrainerOptions {
  int64_t epochs = INT64_MAX;  // whichever of the two ends first
  int64_t steps = INT64_MAX;
  int64_t accumulate = 1;  // batches a step: the gradient of their tokens' mean loss, as of one batch
  double clip = 0;         // largest norm of all gradients together; 0: no clipping
  optim::Schedule schedule = {};
  int64_t average =
      0;           // the mean of the weights at the last so many checkpoints (CheckpointAverage); 0: none
  double ema = 0;  // the decay of an exponential average of the weights (optim::Ema); 0: none
  int64_t save_every = 0;                // steps; 0: at the end of each epoch
  std::filesystem::path directory = {};  // of the checkpoints; empty: none are written
  std::string settings = {};             // what must agree on resuming: lines of TOML
  std::string data = {};                 // the data set's fingerprint, which must too
  bool capture = true;                   // steps of a CUDA device as graphs; the results are the same without
};

/// What a step came to.
struct StepReport {
  int64_t step = 0;     // from 1
  int64_t epoch = 0;    // from 1
  int64_t samples = 0;  // of its batches
  double loss = 0;      // mean over its tokens
  double lr = 0;
  double grad_norm = 0;  // before clipping
};

/// What an epoch (or the part of one that was trained) came to.
struct EpochReport {
  int64_t epoch = 0;              // from 1
  int64_t step = 0;               // optimizer steps so far
  double loss = 0;                // mean over the epoch's tokens
  double lr = 0;                  // of its last step
  double grad_norm = 0;           // mean before clipping; NaN if not measured
  double samples_per_second = 0;  // NaN if nothing of it was trained since a resume
  double tokens_per_second = 0;
};

/// Called by Trainer::run(); each may be empty.
struct Callbacks {
  std::function<void(const StepReport&)> step = {};           // after each; on a device one step late
  std::function<void(const EpochReport&)> epoch = {};         // after each, before its checkpoint
  std::function<void(const EpochReport&)> measure = {};       // before each checkpoint that is due
  std::function<void(const TrainingState&)> checkpoint = {};  // after one was written
  std::function<bool()> stop = {};  // asked after each step: true saves a checkpoint and ends the run
};

/// Trains a module of any kind: batches from a loader, a loss of them, an optimizer. The weights' dtype and
/// device are the module's; the optimizer keeps f32 copies of bf16 ones. A run that was stopped and resumed
/// gives the bits of one that never was.
///
/// On a CUDA device steps are captured (core/runtime/captured_step.h), and the host reads what a step came to
/// while the device does the next.
///
///   train::Trainer trainer(model, adam, loader, loss, {.epochs = 10, .directory = "run"});
///   if (train::has_checkpoint("run")) trainer.resume();
///   trainer.run({.epoch = [](const train::EpochReport& r) { … }});
class Trainer {
 public:
  /// All but the options must outlive it, and what they refer to. ConfigError for options that cannot be.
  Trainer(nn::Module& model, optim::Optimizer& optimizer, BatchSource batches, LossFunction loss,
          TrainerOptions options);

  /// Continues from the newest checkpoint of options.directory. Errors as load_checkpoint()'s.
  void resume();

  /// Trains to the end, or until it is stopped; true in the first case. A stop saves a checkpoint first.
  /// NumericError where the loss or the gradient is not finite; no checkpoint follows. ShapeError for a loss
  /// that is not one number, ConfigError for batches of a step that differ in how many tensors they have.
  bool run(const Callbacks& callbacks = {});

  /// Makes run() end after the step or epoch it is at, as if that were the last one.
  void finish() { finished_ = true; }

  const TrainingState& state() const { return state_; }
  /// Kinds of steps that have a graph.
  int64_t graphs() const { return step_.graphs(); }

 private:
  friend class AveragedWeights;

  using Batches = PooledVector<Batch>;

  // A step whose numbers the host has not read.
  struct Enqueued {
    StepOutputs outputs;
    int64_t step, position, samples, tokens;
  };

  PooledVector<Tensor> step(const StepInputs& inputs);
  Batches next_batches();
  void train_step(Batches batches);
  void check_loss(double loss, int64_t step, int64_t position) const;
  void settle();
  EpochReport report() const;
  void end_epoch();
  void save();
  /// The averages, by name: views of what lives.
  NamedTensors averages() const;
  bool done() const { return finished_ || state_.step >= options_.steps || state_.epoch >= options_.epochs; }

  nn::Module& model_;
  optim::Optimizer& optimizer_;
  BatchSource batches_;
  LossFunction loss_;
  TrainerOptions options_;
  Callbacks callbacks_;
  TrainingState state_;
  Device device_;
  CapturedStep step_;
  std::optional<optim::Ema> ema_;
  std::optional<CheckpointAverage> average_;
  std::optional<Enqueued> enqueued_;
  int64_t next_position_ = 0;  // once the step's batches have been trained on
  bool epoch_ended_ = false;   // in the middle of a step's batches
  bool finished_ = false;
  double epoch_seconds_ = 0;
  int64_t epoch_samples_ = 0, epoch_tokens_ = 0;  // since the start or the last resume, for the rates
};

/// While one lives the model has its averaged weights, if the trainer's options ask for an average: to judge
/// and to save them, in a callback of an epoch or after the run. Then it has its own again, bit by bit.
class AveragedWeights {
 public:
  /// StateError if another one of this trainer lives.
  [[nodiscard]] explicit AveragedWeights(Trainer& trainer);

 private:
  std::optional<optim::EmaScope> ema_;
  std::optional<optim::WeightScope> mean_;
};

}  // namespace heed::train
