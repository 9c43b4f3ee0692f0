// A training step on the device: of a model whose sequences are all of one length, with Adam and clipping.
#pragma once

#include <functional>
#include <memory>

#include <heed/core/ops.h>
#include <heed/core/runtime/captured_step.h>
#include <heed/nn/decoding/tokens.h>
#include <heed/optim/adam.h>

#include "../symbols.h"

namespace heed::bench {

/// `count` sequences of `each` symbols, in memory of the device that a repeated step may read.
struct Sequences {
  Tensor ids, positions, first, length;
  int64_t longest;

  Sequences(int64_t count, int64_t each, int64_t vocabulary, int64_t seed, Device device) : longest(each) {
    ids = bench::ids(count, each, vocabulary, seed).view({count * each}).to(device);
    positions = arange(0, each).expand({count, each}).reshape({-1}).to(device);
    first = arange(0, count * each, each).to(device);
    length = full({count}, static_cast<double>(each), {.dtype = DType::i32}).to(device);
  }
  nn::Tokens tokens() const {
    return {ids, Segments::on_device(first, length, ids.numel(), static_cast<int32_t>(longest)), positions};
  }
};

/// The training step of a model that is made anew for it, repeated as a CUDA graph if `capture`.
template <class Model>
class TrainingStep {
 public:
  using Loss = std::function<Tensor(const Model&)>;

  template <class Config>
  TrainingStep(const Config& config, DType dtype, bool capture, Loss loss)
      : model_(config),
        loss_of_(std::move(loss)),
        step_(cuda_device(), [this](const StepInputs&) { return train(); }, {.capture = capture}) {
    model_.to(dtype);
    model_.to(cuda_device());
    adam_ = std::make_unique<optim::Adam>(model_.parameters(), optim::AdamOptions{.lr = 1e-4});
    for (int i = 0; i < 3; ++i) outputs_ = step_({});
    loss_ = outputs_.get()[0].template item<double>();
  }

  void operator()() { outputs_ = step_({}); }
  /// Of one of the first steps: near the logarithm of the vocabulary.
  double loss() const { return loss_; }

 private:
  PooledVector<Tensor> train() {
    const Tensor loss = loss_of_(model_);
    loss.backward();
    adam_->step({.clip = 1.0, .non_finite = optim::NonFinite::skip});
    return {loss};
  }

  Model model_;
  Loss loss_of_;
  std::unique_ptr<optim::Adam> adam_;
  CapturedStep step_;
  StepOutputs outputs_;
  double loss_ = 0;
};

}  // namespace heed::bench
