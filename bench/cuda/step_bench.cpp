// A training step of the tutorial's Transformer (128 wide, 8 heads, 3 + 3 layers, 512, batch 32, 12 source
// and 21 target tokens, dropout 0.1): forward, loss, backward, clipping and Adam, repeated as a CUDA graph.
#include <cmath>

#include <heed/nn/models/transformer.h>

#include "device_bench.h"
#include "training_step.h"

namespace {

using namespace heed;

constexpr int64_t kVocabulary = 20;

struct Sizes {
  int64_t batch, source, target, d_model, heads, d_ff, layers;
};

nn::TransformerConfig config(const Sizes& s) {
  nn::TransformerConfig c;
  c.source_vocabulary = c.target_vocabulary = kVocabulary;
  c.d_model = s.d_model;
  c.heads = s.heads;
  c.d_ff = s.d_ff;
  c.encoder_layers = c.decoder_layers = s.layers;
  return c;
}

void training_step(benchmark::State& state, DType dtype, bool capture) {
  const Sizes s = bench::emulated() ? Sizes{2, 4, 5, 32, 2, 64, 1} : Sizes{32, 12, 21, 128, 8, 512, 3};
  const auto sequences = [&](int64_t length, int64_t seed) {
    return bench::Sequences(s.batch, length, kVocabulary, seed, cuda_device());
  };
  const bench::Sequences source = sequences(s.source, 1), target = sequences(s.target, 2);
  const Tensor labels = sequences(s.target, 3).ids;
  bench::TrainingStep<nn::Transformer> step(config(s), dtype, capture, [&](const nn::Transformer& model) {
    return cross_entropy(model.forward(source.tokens(), target.tokens()), labels, {.ignore = 0});
  });
  if (!(std::abs(step.loss() - 3.5) < 1.5)) return state.SkipWithError("the loss of the first steps is off");
  bench::time_on_device(state, 1, 0, [&](int) { step(); });
}

void add(const char* name, DType dtype, bool capture) {
  bench::add(name, [=](benchmark::State& state) { training_step(state, dtype, capture); });
}

}  // namespace

int main(int argc, char** argv) {
  add("training_step/f32/graph", DType::f32, true);
  add("training_step/bf16/graph", DType::bf16, true);
  add("training_step/bf16/calls", DType::bf16, false);
  return bench::run_benchmarks(argc, argv);
}
