#include "apps/copy_reverse/run_output.h"

#include <algorithm>
#include <chrono>

#include <heed/nn/summary.h>

#include "apps/common/program.h"
#include "apps/common/text.h"
#include "apps/copy_reverse/commands.h"
#include "apps/copy_reverse/figures.h"
#include "apps/copy_reverse/report.h"

namespace heed::apps {
RunOutput::RunOutput(const Settings& settings, const OptionTable& table, nn::Seq2SeqModel& model,
                     const data::PairDataset& pairs, const data::PairDataset& test,
                     const train::TrainingState& done)
    : settings_(settings),
      table_(table),
      model_(model),
      pairs_(pairs),
      test_(test),
      console_(settings.json),
      metrics_(settings.out, done) {}

void RunOutput::begin(Device device) const {
  const Settings& s = settings_;
  const data::Task task = s.task_rule();
  console_.begin(device, s.seed, concat(", task ", s.data.empty() ? s.task : printable(s.data.string())));
  for (int64_t i = 0; i < std::min<int64_t>(3, pairs_.size()); ++i) {
    const data::Pair pair = pairs_.get(0, i);
    console_.line("  ", task.text(pair.source), "  ->  ", task.text(pair.target));
  }
  console_.line(nn::component_table(model_));
}

void RunOutput::step(const train::StepReport& r) {
  metrics_.step(r);
  console_.step(r, pairs_.size(), "pairs");
}

void RunOutput::epoch(const train::EpochReport& r) {
  console_.end_progress();
  const Metrics::Scalars measured = validate();
  metrics_.write(r, measured);
  console_.report(metrics_.epochs().back(), [&] {
    return concat("epoch ", r.epoch, "  step ", r.step, "  loss ", fixed_text(r.loss, 4),
                  measured.empty() ? "" : concat("  valid ", fixed_text(measured[0].second, 4)), "  lr ",
                  fixed_text(r.lr, 6), "  grad norm ", fixed_text(r.grad_norm, 2), "  ",
                  format_count(r.samples_per_second), " pairs/s");
  });
  if (report_is_due()) write_report(nullptr);
}

// On few pairs, to cost little; the test at the end has all.
Metrics::Scalars RunOutput::validate() const {
  constexpr int64_t kPairs = 200;
  if (&test_ == &pairs_) return {};
  const Evaluation result =
      evaluate(model_, test_, {.decode = false, .max_pairs = kPairs, .marks = settings_.marks()});
  return {{"valid/loss", result.loss}, {"valid/token_accuracy", result.token_accuracy}};
}

// A report is written whole. So that its growing does not slow down a long run of short epochs, it is written
// when there is a thirty-second more of them, or ten seconds later; and when the run stops.
bool RunOutput::report_is_due() const {
  constexpr int64_t kPart = 32;
  constexpr std::chrono::seconds kPause(10);
  const int64_t epochs = std::ssize(metrics_.epochs());
  return !stop_requested() &&
         (epochs - reported_ > epochs / kPart || std::chrono::steady_clock::now() - reported_at_ >= kPause);
}

void RunOutput::stopped(int64_t step) {
  console_.end_progress();
  if (reported_ < std::ssize(metrics_.epochs())) write_report(nullptr);
  console_.stopped(step);
}

void RunOutput::end(int64_t step) {
  const Evaluation result =
      evaluate_with_progress(model_, test_, {.marks = settings_.marks(), .keep_failures = 20});
  Json last = to_json(result);
  last["final"] = true;
  metrics_.write_end(step,
                     {{"test/loss", result.loss},
                      {"test/token_accuracy", result.token_accuracy},
                      {"test/sequence_accuracy", result.sequence_accuracy}},
                     last);
  console_.report(last, [&] {
    return concat("test loss ", fixed_text(result.loss, 4), "  tokens ",
                  fixed_text(100 * result.token_accuracy, 2), " %  whole sequences ",
                  fixed_text(100 * result.sequence_accuracy, 2), " % of ", result.pairs);
  });
  const std::vector<Prediction> examples = write_report(&result);
  for (const Prediction& example : examples) print(example);
  if (!settings_.no_figures) draw(examples.front());
  console_.line("  ", printable((settings_.out / "report.html").string()));
}

std::vector<Prediction> RunOutput::write_report(const Evaluation* result) {
  std::vector<data::Pair> pairs;
  for (int64_t i = 0; i < std::min<int64_t>(5, test_.size()); ++i) pairs.push_back(test_.get(0, i));
  std::vector<Prediction> examples =
      predict(model_, pairs, settings_.marks(),
              {.max_length = std::min(test_.longest_target() + 2, model_.max_target())});
  write_run_report(model_, {settings_, table_.dump_json(), metrics_, result, examples});
  reported_ = std::ssize(metrics_.epochs());
  reported_at_ = std::chrono::steady_clock::now();
  return examples;
}

void RunOutput::print(const Prediction& p) const {
  const data::Task task = settings_.task_rule();
  console_.line("  Input   ", task.text(p.pair.source));
  console_.line("  Target  ", task.text(p.pair.target));
  console_.line("  Output  ", task.text(p.output.tokens), p.right ? "  \u2713" : "  \u2717");
}

void RunOutput::draw(const Prediction& example) const {
  const std::filesystem::path& folder = settings_.out;
  std::vector<Figure> figures;
  if (!metrics_.steps().empty()) figures.push_back(save_loss_figure(metrics_, folder));
  const AttentionMaps maps = attention_maps(model_, example.pair.source, example.output.tokens,
                                            settings_.marks(), settings_.task_rule(), MapSize::drawable);
  for (Figure& figure : save_attention_figures(maps, folder)) figures.push_back(std::move(figure));
  if (const auto* transformer = dynamic_cast<const nn::Transformer*>(&model_))
    for (Figure& figure : save_position_figure(*transformer, folder)) figures.push_back(std::move(figure));
  for (const Figure& figure : figures) {
    if (!figure.drawn) console_.line(figure.message);
    for (const auto& file : figure.files)
      if (!figure.drawn || file.extension() == ".png") console_.line("  ", printable(file.string()));
  }
}

}  // namespace heed::apps
