#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <thread>

#include <heed/core/base/parallel_for.h>
#include <heed/core/io/atomic_file.h>
#include <heed/core/io/directory_lock.h>
#include <heed/nn/summary.h>
#include <heed/nn/weights.h>
#include <heed/optim/adam.h>
#include <heed/optim/sgd.h>
#include <heed/version.h>

#include "apps/common/event_file.h"
#include "apps/common/json_lines.h"
#include "apps/common/progress.h"
#include "apps/common/seq2seq.h"
#include "apps/common/seq2seq_trainer.h"
#include "apps/copy_reverse/commands.h"
#include "apps/copy_reverse/figures.h"
#include "apps/copy_reverse/report.h"

namespace heed::apps {
namespace {

namespace fs = std::filesystem;

std::unique_ptr<optim::Optimizer> make_optimizer(const Settings& s, nn::Module& model) {
  const optim::AdamOptions adam{
      .rate = s.lr, .beta1 = s.beta1, .beta2 = s.beta2, .eps = s.adam_eps, .weight_decay = s.weight_decay};
  switch (s.optimizer) {
    case OptimizerKind::adam:
      return std::make_unique<optim::Adam>(model.parameters(), adam);
    case OptimizerKind::adamw:
      return std::make_unique<optim::AdamW>(model.parameters(), adam);
    case OptimizerKind::sgd:
      break;
  }
  return std::make_unique<optim::Sgd>(
      model.parameters(),
      optim::SgdOptions{.rate = s.lr, .momentum = s.beta1, .weight_decay = s.weight_decay});
}

// The folder is there, ours alone, and holds nothing that would be lost by accident.
void prepare_directory(const Settings& s) {
  fs::create_directories(s.out);
  if (s.resume) return;
  const bool used = fs::exists(s.out / "model.safetensors") || has_checkpoint(s.out);
  HEED_CHECK(!used || s.force, ConfigError, "--out ", s.out.string(),
             " holds a model already; add --force to replace it or --resume to go on");
  remove_checkpoints(s.out);
  remove_event_files(s.out);
  fs::remove(s.out / "report.html");
}

Json to_json(const EpochReport& r) {
  return {{"epoch", r.epoch},
          {"step", r.step},
          {"loss", r.loss},
          {"lr", r.lr},
          {"grad_norm", r.grad_norm},
          {"samples_per_second", r.samples_per_second},
          {"tokens_per_second", r.tokens_per_second}};
}

// Prints to standard output, or to standard error where that is for JSON.
class Console {
 public:
  explicit Console(bool json) : out_(json ? stderr : stdout) {}
  template <class... Parts>
  void line(const Parts&... parts) const {
    std::fprintf(out_, "%s\n", concat(parts...).c_str());
    std::fflush(out_);
  }

 private:
  std::FILE* out_;
};

std::string fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

void print_beginning(const Console& console, const Settings& s, Device device, nn::Transformer& model,
                     const data::PairDataset& pairs) {
  console.line("heed ", HEED_VERSION, ": ", device, ", ", thread_count(),
               thread_count() == 1 ? " thread" : " threads", ", seed ", s.seed, ", task ",
               s.data.empty() ? data::name(s.task) : s.data.string());
  for (int64_t i = 0; i < std::min<int64_t>(3, pairs.size()); ++i) {
    const data::Pair pair = pairs.get(0, i);
    console.line("  ", to_text(pair.source), "  ->  ", to_text(pair.target));
  }
  console.line(nn::component_table(model));
}

// The run's lines of metrics.jsonl, and the same for TensorBoard; resuming drops those of epochs that will be
// trained again.
class Metrics {
 public:
  Metrics(const fs::path& folder, int64_t epochs_done)
      : epochs_(first_lines(folder / "metrics.jsonl", epochs_done)),
        lines_(folder / "metrics.jsonl", JsonLines::Mode::replace),
        events_(folder, std::ssize(epochs_)) {
    for (const Json& epoch : epochs_) lines_.write(epoch);
  }
  void write(const EpochReport& r) {
    epochs_.push_back(to_json(r));
    lines_.write(epochs_.back());
    events_.write(r.step, {{"train/loss", r.loss},
                           {"train/lr", r.lr},
                           {"train/grad_norm", r.grad_norm},
                           {"train/samples_per_second", r.samples_per_second}});
  }
  void write(int64_t step, const Evaluation& e, const Json& line) {
    lines_.write(line);
    events_.write(step, {{"test/loss", e.loss},
                         {"test/token_accuracy", e.token_accuracy},
                         {"test/sequence_accuracy", e.sequence_accuracy}});
  }
  /// All that have been trained, also before a resume.
  const std::vector<Json>& epochs() const { return epochs_; }

 private:
  static std::vector<Json> first_lines(const fs::path& file, int64_t count) {
    std::vector<Json> lines;
    std::ifstream in(file);
    for (std::string line; std::ssize(lines) < count && std::getline(in, line);)
      lines.push_back(Json::parse(line));
    return lines;
  }

  std::vector<Json> epochs_;
  JsonLines lines_;
  EventFile events_;
};

std::vector<Prediction> first_predictions(nn::Transformer& model, const data::PairDataset& dataset,
                                          data::Marks marks) {
  std::vector<data::Pair> pairs;
  for (int64_t i = 0; i < std::min<int64_t>(5, dataset.size()); ++i) pairs.push_back(dataset.get(0, i));
  return predict(model, pairs, marks, {.max_length = dataset.longest_target() + 2});
}

void print_predictions(const Console& console, const std::vector<Prediction>& predictions) {
  for (const Prediction& p : predictions) {
    console.line("  Input   ", to_text(p.pair.source));
    console.line("  Target  ", to_text(p.pair.target));
    console.line("  Output  ", to_text(p.output.tokens), p.right ? "  \u2713" : "  \u2717");
  }
}

void report_figures(const Console& console, const std::vector<Figure>& figures) {
  for (const Figure& figure : figures) {
    if (!figure.drawn) console.line(figure.message);
    for (const fs::path& file : figure.files)
      if (!figure.drawn || file.extension() == ".png") console.line("  ", file.string());
  }
}

void save_model(const Settings& s, const OptionTable& table, nn::Transformer& model) {
  nn::save_weights(model, s.out / "model.safetensors");
  AtomicFile file(s.out / "config.toml");
  const std::string text = table.dump_toml();
  file.write(text.data(), text.size());
  file.commit();
}

std::vector<Figure> draw(const Settings& s, nn::Transformer& model, const std::vector<Json>& epochs,
                         const Prediction& example) {
  std::vector<Figure> figures;
  if (!epochs.empty()) figures.push_back(save_loss_figure(epochs, s.out));
  const AttentionMaps maps = attention_maps(model, example.pair.source, example.output.tokens, s.marks());
  for (Figure& figure : save_attention_figures(maps, model.config(), s.out))
    figures.push_back(std::move(figure));
  for (Figure& figure : save_position_figure(model, s.out)) figures.push_back(std::move(figure));
  return figures;
}

}  // namespace

void train(Settings& s, OptionTable& table) {
  if (s.resume) table.read_toml(saved_settings(s.out), "the settings of the checkpoint");
  s.check();
  const Device device = apply(s);
  const Console console(s.json);
  const auto pairs = s.training_data();
  const auto valid = s.validation_data();
  prepare_directory(s);
  const DirectoryLock lock(s.out);

  const std::unique_ptr<nn::Transformer> model = make_model(s);
  if (!s.init.empty()) nn::load_weights(*model, s.init);
  model->to(s.dtype);
  model->to(device);
  const auto optimizer = make_optimizer(s, *model);
  data::PairLoader loader(pairs, s.loader_options());
  const int64_t per_epoch = loader.count_batches(0);
  const int64_t total =
      std::min(s.steps.value_or(INT64_MAX),
               s.last_epoch() < (int64_t{1} << 40) ? s.last_epoch() * per_epoch : INT64_MAX);
  Seq2SeqTrainer trainer(*model, *optimizer, loader,
                         {.epochs = s.last_epoch(),
                          .steps = s.steps.value_or(INT64_MAX),
                          .clip = s.clip,
                          .label_smoothing = s.label_smoothing,
                          .schedule = s.rate_schedule(per_epoch, total),
                          .save_every = s.save_every,
                          .directory = s.out,
                          .settings = table.dump_toml(),
                          .data = pairs->fingerprint()});
  if (s.resume) trainer.resume();
  print_beginning(console, s, device, *model, *pairs);

  JsonLines out;
  Metrics metrics(s.out, trainer.state().epoch);
  std::unique_ptr<Progress> progress;
  const data::PairDataset& test = valid ? *valid : *pairs;
  const auto report_run = [&](const Evaluation* result) {  // after each epoch: a run may be killed
    std::vector<Prediction> examples = first_predictions(*model, test, s.marks());
    write_run_report(*model, {s, table.dump_json(), metrics.epochs(), result, examples});
    return examples;
  };
  const auto on_epoch = [&](const EpochReport& report) {
    progress.reset();
    metrics.write(report);
    if (s.json)
      out.write(to_json(report));
    else
      console.line("epoch ", report.epoch, "  step ", report.step, "  loss ", fixed(report.loss, 4), "  lr ",
                   fixed(report.lr, 6), "  grad norm ", fixed(report.grad_norm, 2), "  ",
                   format_count(report.samples_per_second), " pairs/s");
    report_run(nullptr);
  };
  const auto on_batch = [&](int64_t count, double loss) {
    if (!progress)
      progress =
          std::make_unique<Progress>(concat("epoch ", trainer.state().epoch + 1), pairs->size(), "pairs");
    progress->note(concat("loss ", fixed(loss, 4)));
    progress->advance(count);
  };
  if (!trainer.run(on_epoch, on_batch)) {
    progress.reset();
    console.line("stopped at step ", trainer.state().step, "; go on with --resume");
    return;
  }
  save_model(s, table, *model);

  const Evaluation result = evaluate_with_progress(*model, test, {.marks = s.marks(), .keep_failures = 20});
  Json last = to_json(result);
  last["final"] = true;
  metrics.write(trainer.state().step, result, last);
  if (s.json)
    out.write(last);
  else
    console.line("test loss ", fixed(result.loss, 4), "  tokens ", fixed(100 * result.token_accuracy, 2),
                 " %  whole sequences ", fixed(100 * result.sequence_accuracy, 2), " % of ", result.pairs);
  const std::vector<Prediction> examples = report_run(&result);
  print_predictions(console, examples);
  report_figures(console, draw(s, *model, metrics.epochs(), examples.front()));
  console.line("  ", (s.out / "report.html").string());
}

}  // namespace heed::apps
