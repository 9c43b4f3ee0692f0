// An epoch of training on pairs of the lengths that a task has, packed: data, forward, loss, backward,
// clipping, Adam. The batches can be written to a file, so that another framework trains on the same.
#include <memory>
#include <vector>

#include <heed/core/base/threads/parallel_for.h>
#include <heed/core/ops.h>
#include <heed/data/pair_loader.h>
#include <heed/data/tasks.h>
#include <heed/nn/weights.h>
#include <heed/optim/adam.h>
#include <heed/version.h>

#include "apps/common/options/command_line.h"
#include "apps/common/program.h"
#include "apps/common/seq2seq.h"
#include "bench/pair_batches.h"
#include "bench/peer.h"
#include "bench/step_profile.h"

namespace {

using namespace heed;

struct Settings : bench::ModelSettings {
  int64_t pairs = 5000, batch = 32, min_length = 3, max_length = 10;
  bool profile = false;
};

class Training {
 public:
  explicit Training(const Settings& s)
      : loader_(dataset(s), {.batch_size = s.batch}),
        model_(s.config()),
        adam_(model_.parameters(), {.lr = 1e-4}) {
    if (s.weights.empty()) return;
    nn::save_weights(model_, s.weights);
    bench::write_batches(loader_, loader_.count_batches(0), s.weights + ".batches");
  }

  /// Always the first epoch's batches.
  void epoch() {
    loader_.seek({0, 0});
    while (const std::optional<data::PairBatch> batch = loader_.next()) {
      const Tensor loss = loss_of(*batch);
      loss.backward();
      adam_.step({.clip = 1});
      loss.item<double>();
    }
  }

  /// Mean over the batches of an epoch, with the weights as they are.
  double loss_without_dropout() {
    const NoGrad no_grad;
    model_.eval();
    loader_.seek({0, 0});
    double sum = 0;
    int64_t count = 0;
    for (; const std::optional<data::PairBatch> batch = loader_.next(); ++count)
      sum += loss_of(*batch).item<double>();
    model_.train();
    return sum / static_cast<double>(count);
  }

  int64_t parameters() { return model_.parameters().numel(); }

 private:
  static std::shared_ptr<data::TaskDataset> dataset(const Settings& s) {
    data::TaskOptions task;
    task.pairs = s.pairs;
    task.vocab = s.vocab;
    task.min_length = s.min_length;
    task.max_length = s.max_length;
    return std::make_shared<data::TaskDataset>(task, data::Split::train);
  }

  Tensor loss_of(const data::PairBatch& batch) {
    const train::Seq2SeqBatch tensors = train::to_tensors(batch, kCpu);
    return cross_entropy(model_.forward(tensors.source, tensors.target), tensors.labels,
                         {.ignore = data::kPad});
  }

  data::PairLoader loader_;
  nn::Transformer model_;
  optim::Adam adam_;
};

void run(const Settings& settings) {
  set_thread_count(static_cast<int>(settings.threads));
  Training training(settings);
  const apps::Json about{{"name", concat("heed ", HEED_VERSION)},
                         {"parameters", training.parameters()},
                         {"loss", training.loss_without_dropout()}};
  training.epoch();
  if (settings.profile) return bench::print_profile([&] { training.epoch(); }, DType::f32);
  bench::take_turns(about, [&] { training.epoch(); });
}

}  // namespace

int main(int argc, char** argv) {
  return apps::run_program(argc, argv, [](const std::vector<std::string>& arguments) {
    Settings settings;
    apps::CommandLine line("epoch", "Times an epoch of copy and reverse, packed.");
    apps::OptionTable& options = line.command("", "", [&] { run(settings); });
    bench::declare_model(options, settings);
    const apps::IntegerRange positive{1, 1 << 20};
    options.integer("pairs", settings.pairs, "Pairs of the epoch", positive);
    options.integer("batch", settings.batch, "Pairs in a batch", positive);
    options.integer("min-length", settings.min_length, "Symbols of the shortest source", positive);
    options.integer("max-length", settings.max_length, "Symbols of the longest source", positive);
    bench::declare_profile(options, settings.profile);
    line.run(arguments);
  });
}
