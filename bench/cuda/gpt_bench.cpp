// A training step of GPT-2 with 124 million parameters, 64 sequences of 1,024 tokens, without dropout:
// forward, loss, backward, clipping and Adam, repeated as a CUDA graph.
#include <cmath>

#include "../gpt_model.h"
#include "device_bench.h"
#include "training_step.h"

namespace {

using namespace heed;

void gpt_step(benchmark::State& state) {
  bench::GptSizes sizes;
  if (bench::emulated()) sizes = {.d_model = 32, .heads = 2, .layers = 1, .vocab = 60, .context = 8};
  const int64_t count = state.range(0), length = state.range(1);
  const bench::Sequences sequences(count, length, sizes.vocab, 1, cuda_device());
  const Tensor labels = bench::Sequences(count, length, sizes.vocab, 2, cuda_device()).ids;
  bench::TrainingStep<nn::LanguageModel> step(
      sizes.config(), DType::bf16, true,
      [&](const nn::LanguageModel& model) { return model.loss(sequences.tokens(), labels); });
  if (!(std::abs(step.loss() - std::log(static_cast<double>(sizes.vocab))) < 1.5))
    return state.SkipWithError("the loss of the first steps is off");
  bench::time_on_device(state, 1, 0, [&](int) { step(); });
  state.counters["tokens_per_second"] =
      benchmark::Counter(static_cast<double>(count * length), benchmark::Counter::kIsIterationInvariantRate);
}

}  // namespace

int main(int argc, char** argv) {
  auto* bench = bench::add("gpt_step/bf16/graph", gpt_step);
  bench::emulated() ? bench->Args({2, 5}) : bench->Args({64, 1024});
  return bench::run_benchmarks(argc, argv);
}
