// One training step of a sequence-to-sequence Transformer: forward, loss, backward, clipping, Adam.
// Prints a JSON object with the loss before the first step and without dropout, then the milliseconds of each
// step asked for on standard input ("run N" lines), so that a driver can check that other programs do the
// same work, and interleave it with them (bench/peers).
#include <chrono>
#include <iostream>
#include <sstream>

#include <heed/core/base/parallel_for.h>
#include <heed/core/ops.h>
#include <heed/nn/transformer.h>
#include <heed/nn/weights.h>
#include <heed/optim/adam.h>
#include <heed/version.h>

#include "apps/common/command_line.h"
#include "apps/common/json_lines.h"
#include "apps/common/program.h"

namespace {

using namespace heed;

struct Settings {
  int64_t d_model = 128, heads = 8, encoder_layers = 3, decoder_layers = 3, d_ff = 512, vocab = 20;
  int64_t batch = 32, source = 12, target = 21, threads = 2;
  double dropout = 0.1;
  DType dtype = DType::f32;
  std::string weights;  // a file to write the first weights to; none if empty
};

// The same tokens as the peers': a fixed rule instead of a generator.
Tensor ids(int64_t rows, int64_t length, int64_t vocabulary, int64_t seed) {
  const Tensor result = empty({rows, length}, {.dtype = DType::i64});
  for (int64_t i = 0; i < rows * length; ++i)
    result.data<int64_t>()[i] = 3 + (i * i * 7 + i * 11 + seed) % (vocabulary - 3);
  return result;
}

class Step {
 public:
  explicit Step(const Settings& s)
      : model_(config_of(s)),
        source_(nn::Tokens::dense(ids(s.batch, s.source, s.vocab, 1))),
        target_(nn::Tokens::dense(ids(s.batch, s.target, s.vocab, 2))),
        labels_(ids(s.batch, s.target, s.vocab, 3).reshape({s.batch * s.target})) {
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

  static nn::TransformerConfig config_of(const Settings& s) {
    nn::TransformerConfig config;
    config.source_vocabulary = config.target_vocabulary = s.vocab;
    config.d_model = s.d_model;
    config.heads = s.heads;
    config.d_ff = s.d_ff;
    config.encoder_layers = s.encoder_layers;
    config.decoder_layers = s.decoder_layers;
    config.set_dropout(s.dropout);
    return config;
  }

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
  apps::JsonLines out;
  out.write({{"name", concat("heed ", HEED_VERSION, " ", settings.dtype)},
             {"parameters", step.parameters()},
             {"loss", loss}});
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string word;
    int count = 0;
    if (!(words >> word >> count) || word != "run") break;
    std::vector<double> milliseconds;
    for (int i = 0; i < count; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      step();
      const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - begin;
      milliseconds.push_back(taken.count());
    }
    out.write({{"milliseconds", milliseconds}});
  }
}

}  // namespace

int main(int argc, char** argv) {
  return apps::run_program(argc, argv, [](const std::vector<std::string>& arguments) {
    Settings settings;
    apps::CommandLine line("step", "Times a training step of a sequence-to-sequence Transformer.");
    apps::OptionTable& options = line.command("", "", [&] { run(settings); });
    const apps::IntegerRange positive{1, 1 << 20};
    options.integer("d-model", settings.d_model, "Width of the model", positive);
    options.integer("heads", settings.heads, "Attention heads", positive);
    options.integer("encoder-layers", settings.encoder_layers, "Encoder layers", positive);
    options.integer("decoder-layers", settings.decoder_layers, "Decoder layers", positive);
    options.integer("d-ff", settings.d_ff, "Width of the feed-forward network", positive);
    options.integer("vocab", settings.vocab, "Symbols", {4, 1 << 20});
    options.integer("batch", settings.batch, "Sequences in a batch", positive);
    options.integer("source", settings.source, "Tokens of each source", positive);
    options.integer("target", settings.target, "Tokens of each target", positive);
    options.integer("threads", settings.threads, "Threads", {1, 1024});
    options.number("dropout", settings.dropout, "Rate of all dropouts", {0, 1, false, true});
    options.choice("dtype", settings.dtype, "Element type", {{"f32", DType::f32}, {"bf16", DType::bf16}});
    options.text("weights", settings.weights, "Write the first weights to this file");
    line.run(arguments);
  });
}
