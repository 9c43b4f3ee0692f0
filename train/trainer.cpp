#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include <heed/core/creation.h>
#include <heed/core/ops.h>
#include <heed/core/runtime/backend.h>
#include <heed/train/trainer.h>

namespace heed::train {
namespace {

// The batches of a step follow one another; then, of several, what part of the step's tokens each has, and at
// the end of the constants how many they are.
template <class Batches>
StepInputs joined(Batches& batches) {
  StepInputs all = std::move(batches.front().inputs);
  const size_t tensors = all.tensors.size(), constants = all.constants.size();
  const auto count = std::ssize(batches);
  int64_t tokens = 0;
  for (const Batch& batch : batches) tokens += batch.tokens;
  for (size_t i = 1; i < batches.size(); ++i) {
    const StepInputs& next = batches[i].inputs;
    HEED_CHECK(next.tensors.size() == tensors && next.constants.size() == constants, ConfigError,
               "the batches of a step have ", tensors, " and ", next.tensors.size(), " tensors, ", constants,
               " and ", next.constants.size(), " constants; expected as many in each");
    all.tensors.insert(all.tensors.end(), next.tensors.begin(), next.tensors.end());
    all.constants.insert(all.constants.end(), next.constants.begin(), next.constants.end());
  }
  if (count > 1) {
    const Tensor shares = empty({count});
    for (int64_t i = 0; i < count; ++i)
      shares.data<float>()[i] =
          static_cast<float>(static_cast<double>(batches[static_cast<size_t>(i)].tokens) /
                             static_cast<double>(std::max<int64_t>(tokens, 1)));
    all.tensors.push_back(shares);
  }
  all.constants.push_back(count);
  return all;
}

// Batch i of joined ones.
StepInputs part(const StepInputs& all, int64_t i) {
  const int64_t count = all.constants.back();
  const int64_t tensors = (std::ssize(all.tensors) - (count > 1)) / count;
  const int64_t constants = (std::ssize(all.constants) - 1) / count;
  const auto first_tensor = all.tensors.begin() + i * tensors;
  const auto first_constant = all.constants.begin() + i * constants;
  return {{first_tensor, first_tensor + tensors}, {first_constant, first_constant + constants}};
}

template <class F, class... Arguments>
void call(const F& callback, const Arguments&... arguments) {
  if (callback) callback(arguments...);
}

}  // namespace

Trainer::Trainer(nn::Module& model, optim::Optimizer& optimizer, BatchSource batches, LossFunction loss,
                 TrainerOptions options)
    : model_(model),
      optimizer_(optimizer),
      batches_(std::move(batches)),
      loss_(std::move(loss)),
      options_(std::move(options)),
      device_(model.parameters().device()),
      step_(device_, [this](const StepInputs& inputs) { return step(inputs); },
            {.capture = options_.capture}) {
  HEED_CHECK(options_.accumulate >= 1, ConfigError, "accumulate is ", options_.accumulate,
             "; expected at least 1");
  HEED_CHECK(options_.average == 0 || options_.ema == 0, ConfigError,
             "a mean of checkpoints and an exponential average contradict each other: ask for one");
  options_.schedule.check();
  if (options_.ema != 0) ema_.emplace(model.parameters(), options_.ema);
  if (options_.average != 0) average_.emplace(model.parameters(), options_.average);
  state_.seed = default_generator().seed();
  state_.settings = options_.settings;
  state_.data = options_.data;
}

void Trainer::resume() {
  state_ =
      load_checkpoint(options_.directory, model_, optimizer_, options_.settings, options_.data, averages());
  batches_.seek({state_.epoch, state_.position});
  default_generator().reset(state_.seed, state_.offset);
}

void Trainer::check_loss(double loss, int64_t step, int64_t position) const {
  HEED_CHECK(std::isfinite(loss), NumericError, "step ", step, " (epoch ", state_.epoch + 1, ", sample ",
             position, "): the loss is ", loss, "; lower the learning rate or clip the gradients");
}

// What a device repeats: it reads the inputs and what optimizer and generator keep in the device's memory.
PooledVector<Tensor> Trainer::step(const StepInputs& inputs) {
  const int64_t count = inputs.constants.back();
  Tensor total;
  for (int64_t i = 0; i < count; ++i) {
    Tensor loss = loss_(part(inputs, i));
    HEED_CHECK(loss.numel() == 1, ShapeError, "the loss of a batch is ", loss.shape(),
               "; expected one number");
    if (count > 1) loss = loss * inputs.tensors.back().select(0, i);
    // Where looking at numbers takes no waiting, what is wrong stops the step; else the device leaves it out.
    if (backend(device_).host_memory) check_loss(loss.item<double>(), state_.step + 1, state_.position);
    loss.backward();
    total = i == 0 ? loss.detach() : total + loss.detach();
  }
  const optim::NonFinite non_finite =
      backend(device_).host_memory ? optim::NonFinite::raise : optim::NonFinite::skip;
  const optim::StepResult result =
      optimizer_.step({.clip = options_.clip, .non_finite = non_finite, .measure_norm = true});
  if (ema_) ema_->update();
  return {total, result.norm};
}

// Those of the next step, at the end of an epoch fewer; none where it has ended.
Trainer::Batches Trainer::next_batches() {
  Batches batches;
  while (!epoch_ended_ && std::ssize(batches) < options_.accumulate) {
    if (std::optional<Batch> batch = batches_.next()) {
      batches.push_back(std::move(*batch));
      next_position_ = batches_.state().position;
    } else {
      epoch_ended_ = true;
    }
  }
  if (batches.empty()) epoch_ended_ = false;
  return batches;
}

void Trainer::train_step(Batches batches) {
  optimizer_.set_lr(options_.schedule.at(state_.step));
  int64_t samples = 0, tokens = 0;
  for (const Batch& batch : batches) {
    samples += batch.samples;
    tokens += batch.tokens;
  }
  StepOutputs outputs = step_(joined(batches));
  settle();  // the step before, while the device does this one
  ++state_.step;
  enqueued_ = Enqueued{std::move(outputs), state_.step, state_.position, samples, tokens};
  state_.position = next_position_;
  if (backend(device_).host_memory) settle();
}

// Takes the numbers of the step that was enqueued last.
void Trainer::settle() {
  if (!enqueued_) return;
  const Enqueued done = *std::exchange(enqueued_, std::nullopt);
  const PooledVector<Tensor> outputs = done.outputs.get();
  const double loss = outputs[0].item<double>();
  const double norm = optim::StepResult{.norm = outputs[1]}.gradient_norm();
  check_loss(loss, done.step, done.position);
  HEED_CHECK(std::isfinite(norm), NumericError, "step ", done.step, ": the gradient norm is ", norm,
             "; lower the learning rate or clip the gradients");
  state_.loss_sum += loss * static_cast<double>(done.tokens);
  state_.tokens += done.tokens;
  state_.norm_sum += norm;
  ++state_.batches;
  epoch_samples_ += done.samples;
  epoch_tokens_ += done.tokens;
  call(callbacks_.step, StepReport{.step = done.step,
                                   .epoch = state_.epoch + 1,
                                   .samples = done.samples,
                                   .loss = loss,
                                   .lr = options_.schedule.at(done.step - 1),
                                   .grad_norm = norm});
}

EpochReport Trainer::report() const {
  const auto per_second = [&](int64_t count) {
    return epoch_samples_ > 0 ? static_cast<double>(count) / epoch_seconds_ : std::nan("");
  };
  return {.epoch = state_.epoch + 1,
          .step = state_.step,
          .loss = state_.loss_sum / static_cast<double>(std::max<int64_t>(state_.tokens, 1)),
          .lr = options_.schedule.at(std::max<int64_t>(state_.step - 1, 0)),
          .grad_norm = state_.norm_sum / static_cast<double>(std::max<int64_t>(state_.batches, 1)),
          .samples_per_second = per_second(epoch_samples_),
          .tokens_per_second = per_second(epoch_tokens_)};
}

void Trainer::end_epoch() {
  settle();
  call(callbacks_.epoch, report());
  ++state_.epoch;
  state_.position = 0;
  state_.loss_sum = state_.norm_sum = 0;
  state_.tokens = state_.batches = 0;
  epoch_samples_ = epoch_tokens_ = 0;
  epoch_seconds_ = 0;
}

void Trainer::save() {
  settle();
  if (options_.directory.empty()) return;
  state_.offset = default_generator().offset();
  save_checkpoint(options_.directory, model_, optimizer_, state_, averages());
  call(callbacks_.checkpoint, state_);
}

NamedTensors Trainer::averages() const {
  NamedTensors tensors;
  if (ema_)
    for (const auto& entry : ema_->state()) tensors.emplace_back("ema." + entry.first, entry.second);
  if (average_)
    for (const auto& entry : average_->state()) tensors.emplace_back("average." + entry.first, entry.second);
  return tensors;
}

bool Trainer::run(const Callbacks& callbacks) {
  using Clock = std::chrono::steady_clock;
  callbacks_ = callbacks;
  model_.train();
  while (!done()) {
    const Clock::time_point begin = Clock::now();
    Batches batches = next_batches();
    const bool epoch_ended = batches.empty();
    if (epoch_ended)
      settle();
    else
      train_step(std::move(batches));
    epoch_seconds_ += std::chrono::duration<double>(Clock::now() - begin).count();
    const bool due =
        options_.save_every == 0 ? epoch_ended : !epoch_ended && state_.step % options_.save_every == 0;
    if (due && average_) average_->add(state_.step);
    if (due) {
      settle();
      call(callbacks_.measure, report());
    }
    if (epoch_ended) end_epoch();
    if (due) save();
    if (callbacks_.stop && callbacks_.stop()) {
      save();
      return false;
    }
  }
  settle();
  if (state_.batches > 0) call(callbacks_.epoch, report());  // the last step came inside an epoch
  save();
  return true;
}

AveragedWeights::AveragedWeights(Trainer& trainer) {
  if (trainer.ema_) ema_.emplace(*trainer.ema_);
  if (trainer.average_)
    mean_.emplace(trainer.model_.parameters(), trainer.average_->mean(trainer.state_.step));
}

}  // namespace heed::train
