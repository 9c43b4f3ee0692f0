// One training step of a decoder-only Transformer, by default GPT-2 with 124 million parameters: forward,
// loss, backward, clipping, AdamW. No dropout.
#include <heed/core/base/threads/parallel_for.h>
#include <heed/core/ops.h>
#include <heed/nn/weights.h>
#include <heed/optim/adam.h>

#include "apps/common/options/command_line.h"
#include "apps/common/program.h"
#include "bench/gpt_model.h"
#include "bench/peer.h"
#include "bench/step_profile.h"
#include "bench/training.h"

namespace {

using namespace heed;

struct Settings : bench::GptSizes {
  int64_t batch = 4, length = 64, threads = 2;
  DType dtype = DType::f32;
  bool profile = false;
  std::string weights;
};

void run(const Settings& s) {
  set_thread_count(static_cast<int>(s.threads));
  const bench::ResidentMemory memory;
  nn::LanguageModel model(s.config());
  const Tensor symbols = bench::ids(s.batch, s.length, s.vocab, 1);
  nn::Tokens tokens = nn::Tokens::dense(symbols);
  tokens.positions = tokens.row_positions();
  // What follows each symbol, in the order of the rows; the first after the last.
  const Tensor labels =
      cat({symbols.flatten().slice(0, 1, symbols.numel()), symbols.flatten().slice(0, 0, 1)}, 0);
  model.to(s.dtype);
  if (!s.weights.empty()) nn::save_weights(model, s.weights);
  optim::AdamW optimizer(model.parameters(), {.lr = 1e-4});
  const auto loss_of_batch = [&] { return cross_entropy(model.forward(tokens), labels); };
  bench::time_training(model, optimizer, loss_of_batch, {.warm_up = 3, .profile = s.profile}, memory);
}

}  // namespace

int main(int argc, char** argv) {
  return apps::run_program(argc, argv, [](const std::vector<std::string>& arguments) {
    Settings settings;
    apps::CommandLine line("gpt", "Times a training step of a decoder-only Transformer.");
    apps::OptionTable& options = line.command("", "", [&] { run(settings); });
    const apps::IntegerRange positive{1, 1 << 20};
    options.integer("d-model", settings.d_model, "Width of the model", positive);
    options.integer("heads", settings.heads, "Attention heads", positive);
    options.integer("layers", settings.layers, "Layers", positive);
    options.integer("vocab", settings.vocab, "Symbols", {4, 1 << 20});
    options.integer("context", settings.context, "Positions that the model knows", positive);
    options.integer("batch", settings.batch, "Sequences in a batch", positive);
    options.integer("length", settings.length, "Tokens of each sequence", positive);
    options.integer("threads", settings.threads, "Threads", {1, 1024});
    options.choice("dtype", settings.dtype, "Element type", {{"f32", DType::f32}, {"bf16", DType::bf16}});
    options.text("weights", settings.weights, "Write the first weights to this file");
    bench::declare_profile(options, settings.profile);
    line.run(arguments);
  });
}
