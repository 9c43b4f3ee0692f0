#include "apps/translate/train_output.h"

#include <algorithm>
#include <cmath>

#include <heed/nn/summary.h>

#include "apps/common/program.h"
#include "apps/common/seq2seq.h"
#include "apps/common/text.h"
#include "apps/translate/commands.h"

namespace heed::apps {

Json to_json(const TextScores& s) {
  return {{"edit_rate", s.edit_rate},
          {"text_error", s.text_error},
          {"bleu", s.bleu},
          {"chrf", s.chrf},
          {"texts", s.texts}};
}

Json to_json(const TextEvaluation& evaluation) {
  Json json = to_json(evaluation.scores);
  if (evaluation.outputs.empty()) return json;
  const TextIntervals intervals = intervals_of(evaluation.outputs, evaluation.references);
  const auto put = [&](const char* name, const data::Interval& i) { json[name] = {i.low, i.high}; };
  put("edit_rate_interval", intervals.edit_rate);
  put("text_error_interval", intervals.text_error);
  put("bleu_interval", intervals.bleu);
  put("chrf_interval", intervals.chrf);
  return json;
}

std::string describe(const TextEvaluation& evaluation, PairFormat format) {
  if (evaluation.outputs.empty()) return "no texts";
  const TextIntervals intervals = intervals_of(evaluation.outputs, evaluation.references);
  const auto number = [](const data::Interval& i) {
    return concat(fixed_text(i.score, 2), " (", fixed_text(i.low, 2), " to ", fixed_text(i.high, 2), ")");
  };
  const auto percent = [](const data::Interval& i) {
    return concat(fixed_text(100 * i.score, 2), " % (", fixed_text(100 * i.low, 2), " to ",
                  fixed_text(100 * i.high, 2), ")");
  };
  const std::string count = grouped(evaluation.scores.texts);
  if (format == PairFormat::cmudict)
    return concat("phoneme error ", percent(intervals.edit_rate), ", word error ",
                  percent(intervals.text_error), " of ", count);
  return concat("BLEU ", number(intervals.bleu), ", chrF ", number(intervals.chrf), ", edit rate ",
                percent(intervals.edit_rate), ", wrong ", percent(intervals.text_error), " of ", count);
}

TrainOutput::TrainOutput(const Settings& settings, const Corpus& corpus, const nn::TextModel& model,
                         const TrainingPairs& train, const data::TextDataset& valid,
                         const train::TrainingState& done)
    : settings_(settings),
      corpus_(corpus),
      model_(model),
      train_(train),
      valid_(valid),
      judged_(group_by_source(corpus.splits.valid)),
      console_(settings.json),
      metrics_(settings.out, done),
      best_(settings.patience) {
  if (std::ssize(judged_) > settings.valid_texts) judged_.resize(static_cast<size_t>(settings.valid_texts));
  for (const Json& epoch : metrics_.epochs()) best_.update(epoch.at("epoch").get<int64_t>(), selected(epoch));
}

void TrainOutput::begin(Device device) const {
  console_.begin(device, settings_.seed);
  console_.line(describe(corpus_));
  if (train_.too_long > 0)
    console_.line(grouped(train_.too_long), " pairs of more than ", settings_.max_tokens,
                  " tokens are left out");
  console_.line("vocabulary: ", model_.source().vocab(), " ", data::name(model_.source().options().kind),
                ", ", model_.target().vocab(), " ", data::name(model_.target().options().kind));
  for (size_t i = 0; i < corpus_.first.sources.size(); ++i)
    console_.line("  ", shorten(corpus_.first.sources[i], 50), "  ->  ",
                  shorten(corpus_.first.targets[i], 50));
  console_.line(nn::component_table(model_.model()));
}

void TrainOutput::step(const train::StepReport& r) {
  metrics_.step(r);
  console_.step(r, train_.pairs->size(), "pairs");
}

Metrics::Scalars TrainOutput::measure() const {
  Metrics::Scalars measured;
  if (valid_.size() == 0) return measured;
  const int64_t rows = valid_.longest_source() + valid_.longest_target() + 3;
  const Evaluation loss =
      evaluate(model_.model(), valid_,
               {.batch_size = std::max<int64_t>(1, settings_.batch_tokens / rows), .decode = false});
  measured.emplace_back("valid/loss", loss.loss);
  measured.emplace_back("valid/token_accuracy", loss.token_accuracy);
  if (judged_.empty()) return measured;
  const TextScores scores = evaluate_texts(model_, judged_, {.on_step = throw_if_stopped}).scores;
  measured.emplace_back("valid/edit_rate", scores.edit_rate);
  measured.emplace_back("valid/text_error", scores.text_error);
  measured.emplace_back("valid/bleu", scores.bleu);
  measured.emplace_back("valid/chrf", scores.chrf);
  return measured;
}

// What the best epoch has the least of; without validation texts the last is the best.
double TrainOutput::selected(const Json& epoch) const {
  const char* const key = settings_.select == Selection::loss ? "valid_loss" : "valid_edit_rate";
  const double value = number_or_nan(epoch, key);
  return std::isnan(value) && valid_.size() == 0 ? -epoch.at("epoch").get<double>() : value;
}

bool TrainOutput::epoch(const train::EpochReport& r) {
  console_.end_progress();
  const Metrics::Scalars measured = measure();
  metrics_.write(r, measured);
  const Json& numbers = metrics_.epochs().back();
  const bool best = best_.update(r.epoch, selected(numbers));
  if (best) model_.save(settings_.out.string());
  console_.report(numbers, [&] {
    std::string text;
    for (const auto& [name, value] : measured) {
      if (name == "valid/loss") text += concat("  valid loss ", fixed_text(value, 4));
      if (name == "valid/edit_rate") text += concat("  edits ", fixed_text(100 * value, 2), " %");
      if (name == "valid/text_error") text += concat("  wrong ", fixed_text(100 * value, 2), " %");
      if (name == "valid/bleu" && settings_.format == PairFormat::tsv)
        text += concat("  BLEU ", fixed_text(value, 2));
    }
    return concat("epoch ", r.epoch, "  step ", r.step, "  loss ", fixed_text(r.loss, 4), "  lr ",
                  fixed_text(r.lr, 6), text, "  ", format_count(r.samples_per_second), " pairs/s",
                  best ? "  best" : "");
  });
  return !best_.exhausted();
}

// The two losses are not of the same quantity: what training adds has to be said.
std::string TrainOutput::training_loss_name() const {
  std::string with;
  if (settings_.label_smoothing > 0) with = "label smoothing";
  if (settings_.dropout > 0) with += with.empty() ? "dropout" : " and dropout";
  return with.empty() ? "training" : concat("training, with ", with);
}

void TrainOutput::save_losses() const {
  if (metrics_.steps().empty()) return;
  const Figure figure = save_loss_figure(metrics_, settings_.out, training_loss_name());
  if (!figure.drawn) console_.line(figure.message);
}

void TrainOutput::end(int64_t step) {
  if (best_.epoch() == 0) model_.save(settings_.out.string());  // nothing was trained or measured
  if (best_.exhausted())
    console_.line("no better epoch in ", settings_.patience, ": the best was ", best_.epoch());
  const std::vector<Example> examples = group_by_source(corpus_.splits.test);
  if (examples.empty()) return console_.line("there are no test texts");
  const nn::TextModel best =
      nn::load_text_model(settings_.out.string(), model_.model().parameters().device());
  const TextEvaluation result = evaluate_with_progress(
      best, examples, {.beam = settings_.beam, .length_penalty = settings_.length_penalty}, 5);
  save_losses();
  Json last = to_json(result);
  last["best_epoch"] = best_.epoch();
  last["final"] = true;
  metrics_.write_end(step,
                     {{"test/edit_rate", result.scores.edit_rate},
                      {"test/text_error", result.scores.text_error},
                      {"test/bleu", result.scores.bleu},
                      {"test/chrf", result.scores.chrf}},
                     last);
  console_.report(last, [&] {
    return concat("test, epoch ", best_.epoch(), ", beam ", settings_.beam, ": ",
                  describe(result, settings_.format));
  });
  for (const Judged& f : result.failures)
    console_.line("  ", shorten(f.example.source, 40), "  ->  ", shorten(f.output, 60), "   should be  ",
                  shorten(f.example.references.front(), 60));
}

}  // namespace heed::apps
