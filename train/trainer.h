// The training loop of a sequence-to-sequence model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <heed/core/captured_step.h>
#include <heed/data/pair_loader.h>
#include <heed/nn/transformer.h>
#include <heed/optim/optimizer.h>
#include <heed/optim/schedule.h>
#include <heed/train/checkpoint.h>

namespace heed::train {

struct TrainerOptions {
  int64_t epochs = INT64_MAX;  // whichever of the two ends first
  int64_t steps = INT64_MAX;
  int64_t accumulate = 1;  // batches a step: the gradient of their target tokens' mean loss, as of one batch
  double clip = 0;
  double label_smoothing = 0;
  optim::Schedule schedule = {};
  int64_t save_every = 0;                // steps; 0: at the end of each epoch
  std::filesystem::path directory = {};  // of the checkpoints; empty: none are written
  std::string settings = {};             // what must agree on resuming
  std::string data = {};
  std::function<bool()> stop = {};  // asked after each step
  bool capture = true;              // steps of a CUDA device as graphs; the results are the same without
};

/// What an epoch (or the part of one that was trained) came to.
struct EpochReport {
  int64_t epoch = 0;              // from 1
  int64_t step = 0;               // optimizer steps so far
  double loss = 0;                // mean over the epoch's target tokens
  double lr = 0;                  // of its last step
  double grad_norm = 0;           // mean before clipping; NaN if not measured
  double samples_per_second = 0;  // NaN if nothing of it was trained since a resume
  double tokens_per_second = 0;   // target tokens
};

/// On a CUDA device steps are captured (core/captured_step.h), and the host reads what a step came to while
/// the device does the next.
class Seq2SeqTrainer {
 public:
  Seq2SeqTrainer(nn::Transformer& model, optim::Optimizer& optimizer, data::PairLoader& loader,
                 TrainerOptions options);

  using OnBatch = std::function<void(int64_t pairs, double loss)>;

  /// Continues from the newest checkpoint of options.directory.
  void resume();

  /// Trains to the end, or until options.stop; true in the first case. `on_epoch` is called after each
  /// epoch, `on_batch(pairs, loss)` after each step. A stop saves a checkpoint first. NumericError where the
  /// loss or the gradient is not finite; no checkpoint follows.
  bool run(const std::function<void(const EpochReport&)>& on_epoch, OnBatch on_batch = {});

  /// Makes run() end after the step or epoch it is at, as if that were the last one.
  void finish() { finished_ = true; }

  const TrainingState& state() const { return state_; }
  /// Kinds of steps that have a graph.
  int64_t graphs() const { return step_.graphs(); }

 private:
  // A step whose numbers the host has not read.
  struct Enqueued {
    StepOutputs outputs;
    int64_t step, position, pairs, tokens;
  };

  using Batches = PooledVector<data::PairBatch>;

  PooledVector<Tensor> step(const StepInputs& inputs);
  Batches next_batches();
  void train_step(const Batches& batches);
  void check_loss(double loss, int64_t step, int64_t position) const;
  void settle();
  EpochReport report() const;
  void begin_epoch();
  void save();
  bool done() const { return finished_ || state_.step >= options_.steps || state_.epoch >= options_.epochs; }

  nn::Transformer& model_;
  optim::Optimizer& optimizer_;
  data::PairLoader& loader_;
  TrainerOptions options_;
  TrainingState state_;
  Device device_;
  CapturedStep step_;
  std::optional<Enqueued> enqueued_;
  bool epoch_ended_ = false;  // in the middle of a step's batches
  bool finished_ = false;
  OnBatch on_batch_;
  double epoch_seconds_ = 0;
  int64_t epoch_pairs_ = 0, epoch_tokens_ = 0;  // since the start or the last resume, for the rates
};

}  // namespace heed::train
