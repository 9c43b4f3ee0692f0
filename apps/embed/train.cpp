// Fine-tuning an encoder: with a head for labels, or on pairs of texts.
#include <cstdlib>

#include <heed/core/io/atomic_file.h>
#include <heed/core/io/file.h>

#include "apps/common/program.h"
#include "apps/common/report/run_metrics.h"
#include "apps/common/text.h"
#include "apps/common/training_console.h"
#include "apps/embed/commands.h"

namespace heed::apps {
namespace {

namespace fs = std::filesystem;

// "encoder" stands for all that it holds, as "encoder.*" does.
std::string pattern_of(const std::string& name) {
  const bool whole = name.find('*') != std::string::npos || name.ends_with(".weight") ||
                     name.ends_with(".bias") || name.ends_with("_weight") || name.ends_with("_bias");
  return whole ? name : name + ".*";
}

std::vector<std::string> patterns_of(const std::vector<std::string>& names) {
  std::vector<std::string> patterns;
  for (const std::string& name : names) patterns.push_back(pattern_of(name));
  return patterns;
}

// "head=1e-3": a rate of its own.
std::vector<optim::Group> groups_of(const TrainSettings& s) {
  std::vector<optim::Group> groups;
  for (const std::string& text : s.rates) {
    const size_t equals = text.rfind('=');
    char* end = nullptr;
    const double rate = equals == std::string::npos ? -1 : std::strtod(text.c_str() + equals + 1, &end);
    HEED_CHECK(rate >= 0 && rate <= 1e6 && *end == '\0' && end != text.c_str() + equals + 1, ConfigError,
               "--rates takes NAME=RATE, such as head=1e-3; got '", text, "'");
    groups.push_back({.patterns = {pattern_of(text.substr(0, equals))},
                      .lr_factor = rate / s.lr,
                      .weight_decay = s.weight_decay});
  }
  return groups;
}

std::unique_ptr<FineTuning> make_fine_tuning(const TrainSettings& s, Device device,
                                             const data::TextPairs& pairs) {
  nn::SentenceEncoder encoder = nn::load_sentence_encoder(s.model.string(), device, s.dtype);
  const data::LoaderOptions options{
      .batch_size = s.batch_size, .shuffle = !s.no_shuffle, .seed = static_cast<uint64_t>(s.seed)};
  const std::vector<std::string> frozen = patterns_of(s.freeze);
  if (s.task == FineTuningTask::labels)
    return fine_tune_labels(std::move(encoder), pairs, s.label, s.label_smoothing, frozen, options);
  return fine_tune_pairs(std::move(encoder), pairs, s.scale, frozen, options);
}

// What transformers finds beside a model, and heed has no use for.
void copy_tokenizer_settings(const fs::path& from, const fs::path& to) {
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json", "vocab.txt"}) {
    std::error_code ignored;
    if (!fs::equivalent(from, to, ignored) && fs::is_regular_file(from / name, ignored))
      write_whole_file(to / name, read_whole_file(from / name, 1 << 24));
  }
}

class Output {
 public:
  Output(const TrainSettings& s, const FineTuning& training, const train::TrainingState& done)
      : training_(training), console_(s.json), metrics_(s.out, done) {
    if (!s.test.empty()) test_ = data::read_text_pairs(s.test.string());
  }

  void step(const train::StepReport& r) {
    metrics_.step(r);
    console_.step(r, training_.samples(), "samples");
  }

  void epoch(const train::EpochReport& r) {
    console_.end_progress();
    Metrics::Scalars measured;
    if (test_.size() > 0) measured.emplace_back("test/accuracy", training_.accuracy(test_));
    metrics_.write(r, measured);
    console_.report(metrics_.epochs().back(), [&] {
      const std::string test =
          measured.empty() ? "" : concat("  test ", fixed_text(100 * measured[0].second, 2), " % right");
      return concat("epoch ", r.epoch, "  step ", r.step, "  loss ", fixed_text(r.loss, 4), test, "  ",
                    format_count(r.samples_per_second), " samples/s");
    });
  }

  void stopped(int64_t step) { console_.stopped(step); }

  void end(const fs::path& folder) const { console_.line("the model is in ", printable(folder.string())); }

 private:
  const FineTuning& training_;
  data::TextPairs test_;
  TrainingConsole console_;
  Metrics metrics_;
};

}  // namespace

TrainSettings::TrainSettings() {
  out = "runs/embed";
  epochs = 1;
  optimizer = OptimizerKind::adamw;
  beta2 = 0.999;
  adam_eps = 1e-8;
  lr = 3e-5;
  weight_decay = 0.01;
  schedule = optim::ScheduleKind::constant;
  warmup = 0;
}

void declare_training(OptionTable& table, TrainSettings& s) {
  declare_common(table, s);
  table.group("Model");
  table.path("model", s.model, "Folder of the encoder, in the layout of sentence-transformers");
  table.choice("task", s.task, "What the texts teach: labels a classifier, pairs the encoder",
               {{"labels", FineTuningTask::labels}, {"pairs", FineTuningTask::pairs}});
  table.list("freeze", s.freeze, "Parts that do not learn: encoder, encoder.layers.0, encoder.embedding*");
  table.list("rates", s.rates, "Learning rates of parts, as PART=RATE: head=1e-3");
  table.number("scale", s.scale, "Pairs: what cosines are multiplied by", {0, 1e6, true, false});
  table.group("Texts");
  table.path("data", s.data, "File of lines LABEL<TAB>TEXT, TEXT<TAB>LABEL or TEXT<TAB>TEXT");
  table.path("test", s.test, "Such a file to judge each epoch on").not_saved();
  table.choice(
      "label-column", s.label, "Which column has the labels",
      {{"detect", LabelColumn::detect}, {"first", LabelColumn::first}, {"second", LabelColumn::second}});
  declare_optimization(table, s);
  declare_run(table, s);
}

void train(TrainSettings& s, OptionTable& table) {
  take_saved_settings(s, table);
  s.check();
  HEED_CHECK(!s.data.empty(), ConfigError, "train needs texts: --data FILE");
  HEED_CHECK(s.label_smoothing == 0 || s.task == FineTuningTask::labels, ConfigError,
             "--label-smoothing is for --task labels");
  const Device device = apply(s);
  check_model(s.model);
  const data::TextPairs pairs = data::read_text_pairs(s.data.string());
  const std::unique_ptr<FineTuning> training = make_fine_tuning(s, device, pairs);
  const DirectoryLock lock = open_run_folder(s);
  const auto optimizer = make_optimizer(s, training->module(), groups_of(s));
  train::TrainerOptions options =
      trainer_options(s, s, table, training->batches_per_epoch(), training->fingerprint());
  options.capture = false;  // pooling asks the host where sequences begin
  train::Trainer trainer(training->module(), *optimizer, training->batches(), training->loss(), options);
  if (s.resume) trainer.resume();
  write_whole_file(s.out / "config.toml", table.dump_toml());
  Output output(s, *training, trainer.state());
  const bool ended = trainer.run({.step = [&](const train::StepReport& report) { output.step(report); },
                                  .epoch =
                                      [&](const train::EpochReport& report) {
                                        const train::AveragedWeights averaged(trainer);
                                        output.epoch(report);
                                      },
                                  .stop = stop_requested});
  if (!ended) return output.stopped(trainer.state().step);
  const train::AveragedWeights averaged(trainer);
  training->save(s.out.string());
  copy_tokenizer_settings(s.model, s.out);
  output.end(s.out);
}

}  // namespace heed::apps
