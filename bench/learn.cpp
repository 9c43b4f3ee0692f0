// Learns a task by copy_reverse's recipe, from the program's start until enough tokens of held-out pairs are
// right, and tells after every few steps how many are. What it trains on and the first weights can be written
// to a folder instead, so that another framework learns the same.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>

#include <heed/core/base/threads/parallel_for.h>
#include <heed/core/io/atomic_file.h>
#include <heed/core/ops.h>
#include <heed/nn/weights.h>
#include <heed/version.h>

#include "apps/common/json_lines.h"
#include "apps/common/options/command_line.h"
#include "apps/common/program.h"
#include "apps/common/seq2seq.h"
#include "apps/copy_reverse/settings.h"
#include "bench/pair_batches.h"

namespace {

using namespace heed;

struct Settings : apps::Settings {
  int64_t evaluate_every = 50;
  double target_accuracy = 0.99;
  std::filesystem::path write;
};

// Pairs of an evaluation that are computed together.
constexpr int64_t kHeldOutBatch = 128;

class Learning {
 public:
  explicit Learning(const Settings& s)
      : s_(s),
        device_(apps::apply(s)),
        model_(apps::make_model(s, s.model_config(), s.seed)),
        pairs_(s.training_data(), s.loader_options(), s.marks()),
        held_out_(s.validation_data()) {
    HEED_CHECK(held_out_, ConfigError, "learn evaluates on held-out pairs: set --valid-pairs or --valid");
    model_->to(device_);
    optimizer_ = apps::make_optimizer(s, *model_);
    schedule_ = s.rate_schedule(pairs_.count_batches(0));
  }

  /// Prints a line before the first step and after each evaluation; ends at the first with enough tokens
  /// right, or with the recipe.
  void run() {
    apps::JsonLines out;
    out.write({{"name", concat("heed ", HEED_VERSION)},
               {"parameters", model_->parameters().numel()},
               {"loss", evaluate().loss}});
    const int64_t last = last_step();
    for (int64_t step = 0; step < last;) {
      train(step++);
      if (step % s_.evaluate_every != 0 && step != last) continue;
      const double accuracy = evaluate().token_accuracy;
      out.write({{"step", step}, {"token_accuracy", accuracy}});
      if (accuracy >= s_.target_accuracy) break;
    }
  }

  /// first.safetensors, recipe.json, training.jsonl and held_out.jsonl, the latter sorted by length.
  void write(const std::filesystem::path& folder, const apps::OptionTable& table) {
    std::filesystem::create_directories(folder);
    nn::save_weights(*model_, folder / "first.safetensors");
    apps::Json recipe = apps::Json::parse(table.dump_json());
    recipe["threads"] = thread_count();
    recipe["last-step"] = last_step();
    write_whole_file((folder / "recipe.json").string(), apps::json_line(recipe) + "\n");
    bench::write_batches(pairs_, last_step(), folder / "training.jsonl");
    data::LoaderOptions sorted = s_.loader_options();
    sorted.batch_size = std::min(kHeldOutBatch, held_out_->size());
    data::PairLoader held_out(held_out_, sorted, s_.marks());
    bench::write_batches(held_out, held_out.count_batches(0), folder / "held_out.jsonl");
  }

 private:
  int64_t last_step() const { return s_.last_step(pairs_.count_batches(0)); }

  void train(int64_t step) {
    std::optional<data::PairBatch> batch;
    while (!(batch = pairs_.next())) {  // an epoch has ended
    }
    optimizer_->set_lr(schedule_.at(step));
    const train::Seq2SeqBatch tensors = train::to_tensors(*batch, device_);
    const Tensor logits = model_->forward(tensors.source, tensors.target);
    cross_entropy(logits, tensors.labels, {.ignore = data::kPad, .label_smoothing = s_.label_smoothing})
        .backward();
    optimizer_->step({.clip = s_.clip});
  }

  apps::Evaluation evaluate() {
    return apps::evaluate(*model_, *held_out_,
                          {.batch_size = kHeldOutBatch, .decode = false, .marks = s_.marks()});
  }

  const Settings& s_;
  Device device_;
  std::unique_ptr<nn::Transformer> model_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  optim::Schedule schedule_;
  data::PairLoader pairs_;
  std::shared_ptr<const data::PairDataset> held_out_;
};

}  // namespace

int main(int argc, char** argv) {
  return apps::run_program(argc, argv, [](const std::vector<std::string>& arguments) {
    Settings settings;
    apps::CommandLine line("learn", "Learns a task until enough tokens are right.");
    apps::OptionTable& options =
        line.command("", "Learns a task until enough tokens are right.", [&](apps::OptionTable& table) {
          settings.check();
          Learning learning(settings);
          if (settings.write.empty())
            learning.run();
          else
            learning.write(settings.write, table);
        });
    apps::declare_recipe(options, settings);
    options.group("Learning");
    options.integer("evaluate-every", settings.evaluate_every, "Steps between evaluations", {1, 1 << 20});
    options.number("target-accuracy", settings.target_accuracy,
                   "Share of the held-out tokens right, teacher-forced, at which to end",
                   {0, 1, false, false});
    options.path("write", settings.write, "Write weights, recipe and batches to this folder; don't learn")
        .not_saved();
    line.run(arguments);
  });
}
