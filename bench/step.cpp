// One training step of a sequence-to-sequence Transformer: forward, loss, backward, clipping, Adam.
#include <heed/core/base/threads/parallel_for.h>
#include <heed/core/ops.h>
#include <heed/nn/models/transformer.h>
#include <heed/nn/weights.h>
#include <heed/optim/adam.h>

#include "apps/common/options/command_line.h"
#include "apps/common/program.h"
#include "bench/peer.h"
#include "bench/step_profile.h"
#include "bench/training.h"

namespace {

using namespace heed;

struct Settings : bench::ModelSettings {
  int64_t batch = 32, source = 12, target = 21;
  DType dtype = DType::f32;
  bool profile = false;
};

void run(const Settings& s) {
  set_thread_count(static_cast<int>(s.threads));
  const bench::ResidentMemory memory;
  nn::Transformer model(s.config());
  const nn::Tokens source = nn::Tokens::dense(bench::ids(s.batch, s.source, s.vocab, 1)),
                   target = nn::Tokens::dense(bench::ids(s.batch, s.target, s.vocab, 2));
  const Tensor labels = bench::ids(s.batch, s.target, s.vocab, 3).flatten();
  model.to(s.dtype);
  if (!s.weights.empty()) nn::save_weights(model, s.weights);
  optim::Adam optimizer(model.parameters(), {.lr = 1e-4});
  const auto loss_of_batch = [&] {
    return cross_entropy(model.forward(source, target), labels, {.ignore = 0});
  };
  bench::time_training(model, optimizer, loss_of_batch, {.warm_up = 8, .profile = s.profile}, memory);
}

}  // namespace

int main(int argc, char** argv) {
  return apps::run_program(argc, argv, [](const std::vector<std::string>& arguments) {
    Settings settings;
    apps::CommandLine line("step", "Times a training step of a sequence-to-sequence Transformer.");
    apps::OptionTable& options = line.command("", "", [&] { run(settings); });
    bench::declare_model(options, settings);
    const apps::IntegerRange positive{1, 1 << 20};
    options.integer("batch", settings.batch, "Sequences in a batch", positive);
    options.integer("source", settings.source, "Tokens of each source", positive);
    options.integer("target", settings.target, "Tokens of each target", positive);
    options.choice("dtype", settings.dtype, "Element type", {{"f32", DType::f32}, {"bf16", DType::bf16}});
    bench::declare_profile(options, settings.profile);
    line.run(arguments);
  });
}
