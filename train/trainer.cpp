#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include <heed/core/ops.h>
#include <heed/train/seq2seq.h>
#include <heed/train/trainer.h>

namespace heed::train {

Seq2SeqTrainer::Seq2SeqTrainer(nn::Transformer& model, optim::Optimizer& optimizer, data::PairLoader& loader,
                               TrainerOptions options)
    : model_(model),
      optimizer_(optimizer),
      loader_(loader),
      options_(std::move(options)),
      device_(model.parameters().device()),
      step_(device_, [this](const StepInputs& inputs) { return step(inputs); },
            {.capture = options_.capture}) {
  state_.seed = default_generator().seed();
  state_.settings = options_.settings;
  state_.data = options_.data;
}

void Seq2SeqTrainer::resume() {
  state_ = load_checkpoint(options_.directory, model_, optimizer_, options_.settings, options_.data);
  loader_.seek({state_.epoch, state_.position});
  default_generator().reset(state_.seed, state_.offset);
}

void Seq2SeqTrainer::check_loss(double loss, int64_t step, int64_t position) const {
  HEED_CHECK(std::isfinite(loss), NumericError, "step ", step, " (epoch ", state_.epoch + 1, ", pair ",
             position, "): the loss is ", loss, "; lower --lr or set --clip");
}

// What a device repeats: it reads the inputs and what optimizer and generator keep in the device's memory.
PooledVector<Tensor> Seq2SeqTrainer::step(const StepInputs& inputs) {
  Tensor total;
  for (size_t i = 0; i < batch_count(inputs); ++i) {
    const Seq2SeqBatch batch = batch_of(inputs, i);
    const Tensor logits = model_.forward(batch.source, batch.target);
    Tensor loss = cross_entropy(logits, batch.labels,
                                {.ignore = data::kPad, .label_smoothing = options_.label_smoothing});
    if (batch_count(inputs) > 1) loss = loss * token_share(inputs, i);
    // Where looking at numbers takes no waiting, what is wrong stops the step; else the device leaves it out.
    if (device_.is_cpu()) check_loss(loss.item<double>(), state_.step + 1, state_.position);
    loss.backward();
    total = i == 0 ? loss.detach() : total + loss.detach();
  }
  const optim::NonFinite non_finite = device_.is_cpu() ? optim::NonFinite::raise : optim::NonFinite::skip;
  const optim::StepResult result =
      optimizer_.step({.clip = options_.clip, .non_finite = non_finite, .measure_norm = true});
  return {total, result.norm};
}

// Those of the next step, at the end of an epoch fewer; none where it has ended.
Seq2SeqTrainer::Batches Seq2SeqTrainer::next_batches() {
  Batches batches;
  while (!epoch_ended_ && std::ssize(batches) < options_.accumulate) {
    if (std::optional<data::PairBatch> batch = loader_.next())
      batches.push_back(std::move(*batch));
    else
      epoch_ended_ = true;
  }
  if (batches.empty()) epoch_ended_ = false;
  return batches;
}

void Seq2SeqTrainer::train_step(const Batches& batches) {
  optimizer_.set_rate(options_.schedule.at(state_.step));
  StepOutputs outputs = step_(step_inputs(batches, device_));
  settle();  // the step before, while the device does this one
  ++state_.step;
  int64_t pairs = 0, tokens = 0;
  for (const data::PairBatch& batch : batches) {
    pairs += batch.size();
    tokens += batch.target_tokens();
  }
  enqueued_ = Enqueued{std::move(outputs), state_.step, state_.position, pairs, tokens};
  state_.position += pairs;
  if (device_.is_cpu()) settle();
}

// Takes the numbers of the step that was enqueued last.
void Seq2SeqTrainer::settle() {
  if (!enqueued_) return;
  const Enqueued done = *std::exchange(enqueued_, std::nullopt);
  const PooledVector<Tensor> outputs = done.outputs.get();
  const double loss = outputs[0].item<double>();
  const double norm = optim::StepResult{.norm = outputs[1]}.gradient_norm();
  check_loss(loss, done.step, done.position);
  HEED_CHECK(std::isfinite(norm), NumericError, "step ", done.step, ": the gradient norm is ", norm,
             "; lower --lr or set --clip");
  state_.loss_sum += loss * static_cast<double>(done.tokens);
  state_.tokens += done.tokens;
  state_.norm_sum += norm;
  ++state_.batches;
  epoch_pairs_ += done.pairs;
  epoch_tokens_ += done.tokens;
  if (on_batch_) on_batch_(done.pairs, loss);
}

EpochReport Seq2SeqTrainer::report() const {
  const auto per_second = [&](int64_t count) {
    return epoch_pairs_ > 0 ? static_cast<double>(count) / epoch_seconds_ : std::nan("");
  };
  return {.epoch = state_.epoch + 1,
          .step = state_.step,
          .loss = state_.loss_sum / static_cast<double>(std::max<int64_t>(state_.tokens, 1)),
          .lr = options_.schedule.at(std::max<int64_t>(state_.step - 1, 0)),
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
  settle();
  if (options_.directory.empty()) return;
  state_.offset = default_generator().offset();
  save_checkpoint(options_.directory, model_, optimizer_, state_);
}

bool Seq2SeqTrainer::run(const std::function<void(const EpochReport&)>& on_epoch, OnBatch on_batch) {
  using Clock = std::chrono::steady_clock;
  on_batch_ = std::move(on_batch);
  model_.train();
  while (!done()) {
    const Clock::time_point begin = Clock::now();
    const Batches batches = next_batches();
    if (batches.empty())
      settle();
    else
      train_step(batches);
    epoch_seconds_ += std::chrono::duration<double>(Clock::now() - begin).count();
    if (batches.empty()) {
      on_epoch(report());
      begin_epoch();
      if (options_.save_every == 0) save();
    } else if (options_.save_every > 0 && state_.step % options_.save_every == 0) {
      save();
    }
    if (options_.stop && options_.stop()) {
      save();
      return false;
    }
  }
  settle();
  if (state_.batches > 0) on_epoch(report());  // the last step came inside an epoch
  save();
  return true;
}

}  // namespace heed::train
