#include "apps/common/seq2seq_trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include <heed/core/ops.h>

#include "apps/common/program.h"
#include "apps/common/seq2seq.h"

namespace heed::apps {

Seq2SeqTrainer::Seq2SeqTrainer(nn::Transformer& model, optim::Optimizer& optimizer, data::PairLoader& loader,
                               TrainerOptions options)
    : model_(model), optimizer_(optimizer), loader_(loader), options_(std::move(options)) {
  device_ = model.parameters().device();
  state_.seed = default_generator().seed();
  state_.settings = options_.settings;
  state_.data = options_.data;
}

void Seq2SeqTrainer::resume() {
  state_ = load_checkpoint(options_.directory, model_, optimizer_, options_.settings, options_.data);
  loader_.seek({state_.epoch, state_.position});
  default_generator().reset(state_.seed, state_.offset);
}

double Seq2SeqTrainer::train_batch(const data::PairBatch& packed) {
  const Seq2SeqBatch batch = to_tensors(packed, device_);
  optimizer_.set_rate(options_.schedule.at(state_.step));
  const Tensor logits = model_.forward(batch.source, batch.target);
  const Tensor loss = cross_entropy(logits, batch.labels,
                                    {.ignore = data::kPad, .label_smoothing = options_.label_smoothing});
  const double value = loss.item<double>();
  HEED_CHECK(std::isfinite(value), NumericError, "step ", state_.step + 1, " (epoch ", state_.epoch + 1,
             ", pair ", state_.position, "): the loss is ", value, "; lower --lr or set --clip");
  loss.backward();
  const optim::StepResult step = optimizer_.step({.clip = options_.clip, .measure_norm = true});
  ++state_.step;
  state_.position = loader_.state().position;
  state_.loss_sum += value * static_cast<double>(batch.labels_that_count);
  state_.tokens += batch.labels_that_count;
  state_.norm_sum += step.gradient_norm;
  ++state_.batches;
  epoch_pairs_ += batch.pairs;
  epoch_tokens_ += batch.labels_that_count;
  return value;
}

EpochReport Seq2SeqTrainer::report() const {
  const auto per_second = [&](int64_t count) {
    return epoch_seconds_ > 0 ? static_cast<double>(count) / epoch_seconds_ : 0;
  };
  return {.epoch = state_.epoch + 1,
          .step = state_.step,
          .loss = state_.loss_sum / static_cast<double>(std::max<int64_t>(state_.tokens, 1)),
          .lr = optimizer_.rate(),
          .grad_norm = state_.norm_sum / static_cast<double>(std::max<int64_t>(state_.batches, 1)),
          .samples_per_second = per_second(epoch_pairs_),
          .tokens_per_second = per_second(epoch_tokens_)};
}

void Seq2SeqTrainer::begin_epoch() {
  ++state_.epoch;
  state_.position = 0;
  state_.loss_sum = state_.norm_sum = 0;
  state_.tokens = state_.batches = 0;
  epoch_pairs_ = epoch_tokens_ = 0;
  epoch_seconds_ = 0;
}

void Seq2SeqTrainer::save() {
  if (options_.directory.empty()) return;
  state_.offset = default_generator().offset();
  save_checkpoint(options_.directory, model_, optimizer_, state_);
}

bool Seq2SeqTrainer::run(const std::function<void(const EpochReport&)>& on_epoch,
                         const std::function<void(int64_t, double)>& on_batch) {
  using Clock = std::chrono::steady_clock;
  model_.train();
  while (!done()) {
    const Clock::time_point begin = Clock::now();
    const std::optional<data::PairBatch> batch = loader_.next();
    if (batch) {
      const double loss = train_batch(*batch);
      epoch_seconds_ += std::chrono::duration<double>(Clock::now() - begin).count();
      if (on_batch) on_batch(batch->size(), loss);
    }
    if (!batch) {
      on_epoch(report());
      begin_epoch();
      if (options_.save_every == 0) save();
    } else if (options_.save_every > 0 && state_.step % options_.save_every == 0) {
      save();
    }
    if (stop_requested()) {
      save();
      return false;
    }
  }
  if (state_.batches > 0) on_epoch(report());  // the last step came inside an epoch
  save();
  return true;
}

}  // namespace heed::apps
