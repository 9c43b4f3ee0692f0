// One training step of a sequence-to-sequence Transformer: forward, loss, backward, clipping, Adam.
#include <memory>

#include <heed/core/base/parallel_for.h>
#include <heed/core/ops.h>
#include <heed/nn/transformer.h>
#include <heed/nn/weights.h>
#include <heed/optim/adam.h>
#include <heed/version.h>

#include "apps/common/command_line.h"
#include "apps/common/program.h"
#include "bench/peer.h"

namespace {

using namespace heed;

struct Settings : bench::ModelSettings {
  int64_t batch = 32, source = 12, target = 21;
  DType dtype = DType::f32;
};

class Step {
 public:
  explicit Step(const Settings& s)
      : model_(s.config()),
        source_(nn::Tokens::dense(bench::ids(s.batch, s.source, s.vocab, 1))),
        target_(nn::Tokens::dense(bench::ids(s.batch, s.target, s.vocab, 2))),
        labels_(bench::ids(s.batch, s.target, s.vocab, 3).reshape({s.batch * s.target})) {
    model_.to(s.dtype);
    if (!s.weights.empty()) nn::save_weights(model_, s.weights);
    optimizer_ = std::make_unique<optim::Adam>(model_.parameters(), optim::AdamOptions{.rate = 1e-4});
  }

  double operator()() {
    const Tensor loss = loss_of_batch();
    loss.backward();
    optimizer_->step({.clip = 1.0});
    return loss.item<double>();
  }

  double loss_without_dropout() {
    const NoGrad no_grad;
    model_.train(false);
    const double loss = loss_of_batch().item<double>();
    model_.train(true);
    return loss;
  }

  int64_t parameters() { return model_.parameters().numel(); }

 private:
  Tensor loss_of_batch() { return cross_entropy(model_.forward(source_, target_), labels_, {.ignore = 0}); }

  nn::Transformer model_;
  nn::Tokens source_, target_;
  Tensor labels_;
  std::unique_ptr<optim::Adam> optimizer_;
};

void run(const Settings& settings) {
  set_thread_count(static_cast<int>(settings.threads));
  Step step(settings);
  const double loss = step.loss_without_dropout();
  for (int i = 0; i < 8; ++i) step();
  bench::take_turns({{"name", concat("heed ", HEED_VERSION, " ", settings.dtype)},
                     {"parameters", step.parameters()},
                     {"loss", loss}},
                    [&] { step(); });
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
    line.run(arguments);
  });
}
