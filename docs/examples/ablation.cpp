// What a Transformer loses without self-attention. Tokens that see only themselves still have all their
// weights, but learn nothing of the others but by cross-attention.
//
//   ablation_example [STEPS] [SEEDS]   fails unless the whole model learns more than to guess
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <heed/heed.h>

using namespace heed;

constexpr Visibility kItself{.causal = Causal::top_left, .window_left = 0};

struct Ablation {
  const char* name;
  nn::TransformerCalls calls;
};

// Sequences of which all tokens are right, and tokens that are, in per cent. A sequence that is right token
// by token, given the right ones before each, is what greedy search writes.
struct Accuracy {
  double sequences = 0, tokens = 0;
};

Accuracy evaluate(const nn::Transformer& model, const nn::TransformerCalls& calls,
                  const data::TaskOptions& task) {
  const int64_t pairs = task.valid_pairs;
  data::PairLoader loader(std::make_shared<data::TaskDataset>(task, data::Split::valid),
                          {.batch_size = pairs, .shuffle = false});
  const train::Seq2SeqBatch batch = train::to_tensors(*loader.next(), kCpu);
  const NoGrad no_grad;
  const Tensor found = argmax(model.forward(batch.source, batch.target, calls), 1);
  const Tensor right = equal(found, batch.labels).to(DType::f32);
  const Tensor wrong = segment_mean(1 - right, batch.target.segments);
  return {100 * mean(equal(wrong, 0).to(DType::f32)).item<double>(), 100 * mean(right).item<double>()};
}

Accuracy learn(const nn::TransformerCalls& calls, int64_t steps, uint64_t seed) {
  manual_seed(seed);
  nn::TransformerConfig config;  // the small model of docs/experiments
  config.source_vocabulary = config.target_vocabulary = 20;
  config.d_model = 64;
  config.heads = 4;
  config.d_ff = 256;
  config.encoder_layers = config.decoder_layers = 2;
  config.norm = nn::NormPlacement::pre;
  config.set_dropout(0);
  nn::Transformer model(config);
  nn::initialize(model, nn::matrix_rules(nn::Initializer::xavier_uniform));

  const data::TaskOptions task{.fresh = true, .seed = seed};  // copy and reverse, 3 to 10 symbols
  data::PairLoader loader(std::make_shared<data::TaskDataset>(task, data::Split::train), {.seed = seed});
  const auto loss = [&](const StepInputs& inputs) {
    const train::Seq2SeqBatch batch = train::batch_of(inputs);
    return cross_entropy(model.forward(batch.source, batch.target, calls), batch.labels);
  };
  const optim::Schedule schedule{.kind = optim::ScheduleKind::cosine,
                                 .lr = 2e-3,
                                 .warmup = std::min<int64_t>(200, steps / 2),
                                 .total = steps};
  optim::Adam adam(model.parameters(), {.beta2 = 0.98, .eps = 1e-9});
  train::Trainer(model, adam, train::seq2seq_batches(loader, kCpu), loss,
                 {.steps = steps, .clip = 1, .schedule = schedule})
      .run();
  model.eval();
  return evaluate(model, calls, task);
}

int main(int argc, char** argv) {
  const int64_t steps = argc > 1 ? std::atoll(argv[1]) : 120;
  const int seeds = argc > 2 ? std::atoi(argv[2]) : 1;
  const Ablation rows[] = {
      {"nothing taken away", {}},
      {"decoder: each token sees itself", {.target = {.visibility = kItself}}},
      {"encoder: each token sees itself", {.source = {.visibility = kItself}}},
      {"both", {.source = {.visibility = kItself}, .target = {.visibility = kItself}}},
  };
  double whole = 0;
  std::printf("%-33s  sequences right, %%  (seeds)\n", "");
  for (const auto& [name, calls] : rows) {
    Accuracy sum;
    std::string each;
    for (int seed = 42; seed < 42 + seeds; ++seed) {
      const Accuracy found = learn(calls, steps, static_cast<uint64_t>(seed));
      sum.sequences += found.sequences / seeds;
      sum.tokens += found.tokens / seeds;
      each += concat("  ", found.sequences);
    }
    std::printf("%-33s  %6.1f  tokens %6.2f %% %s\n", name, sum.sequences, sum.tokens, each.c_str());
    std::fflush(stdout);
    if (&name == &rows[0].name) whole = sum.tokens;
  }
  return whole > 12 ? 0 : 1;  // the tokens of a guess: one in 18
}
