// A training step of the tutorial's Transformer (128 wide, 8 heads, 3 + 3 layers, 512, batch 32, 12 source
// and 21 target tokens, dropout 0.1): forward, loss, backward, clipping and Adam, repeated as a CUDA graph.
#include <cmath>
#include <memory>

#include <heed/core/captured_step.h>
#include <heed/core/ops.h>
#include <heed/nn/transformer.h>
#include <heed/optim/adam.h>

#include "../symbols.h"
#include "device_bench.h"

namespace {

using namespace heed;

constexpr int64_t kVocabulary = 20;

struct Sizes {
  int64_t batch, source, target, d_model, heads, d_ff, layers;
};
Sizes sizes() { return bench::emulated() ? Sizes{2, 4, 5, 32, 2, 64, 1} : Sizes{32, 12, 21, 128, 8, 512, 3}; }

/// Sequences of one length, in memory of the device that a repeated step may read.
struct Side {
  Tensor ids, positions, first, length;
  int64_t longest;

  Side(const Sizes& s, int64_t each, int64_t seed, Device device) : longest(each) {
    ids = bench::ids(s.batch, each, kVocabulary, seed).view({s.batch * each}).to(device);
    positions = arange(0, static_cast<double>(each)).expand({s.batch, each}).reshape({-1}).to(device);
    first = arange(0, static_cast<double>(s.batch * each), static_cast<double>(each)).to(device);
    length = full({s.batch}, static_cast<double>(each), {.dtype = DType::i32}).to(device);
  }
  nn::Tokens tokens() const {
    return {ids, Segments::on_device(first, length, ids.numel(), static_cast<int32_t>(longest)), positions};
  }
};

class Step {
 public:
  Step(DType dtype, bool capture)
      : device_(cuda_device()),
        model_(config(sizes_)),
        source_(sizes_, sizes_.source, 1, device_),
        target_(sizes_, sizes_.target, 2, device_),
        labels_(Side(sizes_, sizes_.target, 3, device_).ids),
        step_(device_, [this](const StepInputs&) { return train(); }, {.capture = capture}) {
    model_.to(dtype);
    model_.to(device_);
    adam_ = std::make_unique<optim::Adam>(model_.parameters(), optim::AdamOptions{.rate = 1e-4});
    for (int i = 0; i < 3; ++i) outputs_ = step_({});
    loss_ = outputs_.get()[0].item<double>();
  }

  void operator()() { outputs_ = step_({}); }
  /// Of one of the first steps: near log(kVocabulary).
  double loss() const { return loss_; }

 private:
  static nn::TransformerConfig config(const Sizes& s) {
    nn::TransformerConfig c;
    c.source_vocabulary = c.target_vocabulary = kVocabulary;
    c.d_model = s.d_model;
    c.heads = s.heads;
    c.d_ff = s.d_ff;
    c.encoder_layers = c.decoder_layers = s.layers;
    return c;
  }
  PooledVector<Tensor> train() {
    const Tensor loss =
        cross_entropy(model_.forward(source_.tokens(), target_.tokens()), labels_, {.ignore = 0});
    loss.backward();
    adam_->step({.clip = 1.0, .non_finite = optim::NonFinite::skip});
    return {loss};
  }

  Device device_;
  Sizes sizes_ = sizes();
  nn::Transformer model_;
  Side source_, target_;
  Tensor labels_;
  std::unique_ptr<optim::Adam> adam_;
  CapturedStep step_;
  StepOutputs outputs_;
  double loss_ = 0;
};

void training_step(benchmark::State& state, DType dtype, bool capture) {
  Step step(dtype, capture);
  if (!(std::abs(step.loss() - 3.5) < 1.5)) return state.SkipWithError("the loss of the first steps is off");
  bench::time_on_device(state, 1, 0, [&](int) { step(); });
}

void add(const char* name, DType dtype, bool capture) {
  benchmark::RegisterBenchmark(name, [=](benchmark::State& state) { training_step(state, dtype, capture); })
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond);
}

}  // namespace

int main(int argc, char** argv) {
  add("training_step/f32/graph", DType::f32, true);
  add("training_step/bf16/graph", DType::bf16, true);
  add("training_step/bf16/calls", DType::bf16, false);
  return bench::run_benchmarks(argc, argv);
}
