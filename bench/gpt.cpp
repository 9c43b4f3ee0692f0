// One training step of a decoder-only Transformer, by default GPT-2 with 124 million parameters: forward,
// loss, backward, clipping, AdamW. No dropout.
#include <heed/core/base/parallel_for.h>
#include <heed/core/ops.h>
#include <heed/nn/init.h>
#include <heed/nn/transformer.h>
#include <heed/nn/weights.h>
#include <heed/optim/adam.h>

#include "apps/common/command_line.h"
#include "apps/common/program.h"
#include "bench/peer.h"
#include "bench/step_profile.h"
#include "bench/training.h"

namespace {

using namespace heed;

struct Settings {
  int64_t d_model = 768, heads = 12, layers = 12, vocab = 50257, context = 1024;
  int64_t batch = 4, length = 64, threads = 2;
  DType dtype = DType::f32;
  bool profile = false;
  std::string weights;
};

// Pre-norm blocks with GELU by tanh between learned positions and a final norm; the logits' weight is the
// embedding's.
class Gpt : public nn::Module {
 public:
  explicit Gpt(const Settings& s)
      : embedding(s.vocab, s.d_model),
        position(nn::PositionKind::learned, s.d_model, s.context),
        layers(layer(s), s.layers, true) {
    nn::initialize(*this, nn::matrix_rules(nn::Initializer::normal));
  }

  Tensor forward(const nn::Tokens& tokens, const Tensor& position_ids) const {
    const Tensor x = embedding(tokens.ids, {.position = position.weight, .position_ids = position_ids});
    return linear(layers(x, tokens.segments, {.visibility = {Causal::top_left}}), embedding.weight);
  }

  void visit(nn::Visitor& v) override {
    v("embedding", embedding), v("position", position), v("layers", layers);
  }
  std::string describe() const override { return "Gpt"; }

  nn::Embedding embedding;
  nn::PositionTable position;
  nn::Encoder layers;

 private:
  static nn::LayerConfig layer(const Settings& s) {
    nn::LayerConfig config{.d_model = s.d_model, .heads = s.heads, .d_ff = 4 * s.d_model};
    config.norm = nn::NormPlacement::pre;
    config.activation = nn::FeedForwardKind::gelu_tanh;
    config.attention_dropout = config.activation_dropout = config.residual_dropout = 0;
    return config;
  }
};

void run(const Settings& s) {
  set_thread_count(static_cast<int>(s.threads));
  const bench::ResidentMemory memory;
  Gpt model(s);
  const Tensor symbols = bench::ids(s.batch, s.length, s.vocab, 1);
  const nn::Tokens tokens = nn::Tokens::dense(symbols);
  const Tensor position_ids = tokens.row_positions();
  // What follows each symbol, in the order of the rows; the first after the last.
  const Tensor labels =
      cat({symbols.flatten().slice(0, 1, symbols.numel()), symbols.flatten().slice(0, 0, 1)}, 0);
  model.to(s.dtype);
  if (!s.weights.empty()) nn::save_weights(model, s.weights);
  optim::AdamW optimizer(model.parameters(), {.rate = 1e-4});
  const auto loss_of_batch = [&] { return cross_entropy(model.forward(tokens, position_ids), labels); };
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
