#include "apps/lm/train_output.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <heed/nn/summary.h>

#include "apps/common/program.h"
#include "apps/common/text.h"

namespace heed::apps {

TrainOutput::TrainOutput(const Work& work, const train::TrainingState& done, int64_t last_step)
    : work_(work),
      settings_(work.settings),
      steps_done_(done.step),
      last_step_(last_step),
      console_(settings_.json),
      metrics_(settings_.out, done, MetricsUnit::step),
      best_(settings_.patience) {
  int64_t number = 0;
  for (const Json& measurement : metrics_.epochs()) best_.update(++number, selected(measurement));
}

void TrainOutput::begin(Device device) {
  const Documents& d = work_.documents;
  console_.begin(device, settings_.seed);
  console_.line(grouped(std::ssize(d.train)), " documents of ", grouped(work_.train.characters()),
                " characters for training, ", grouped(std::ssize(d.valid)), " of ",
                grouped(work_.valid.characters()), " for validation");
  if (d.passed_over > 0)
    console_.line(grouped(d.passed_over), " files that are no UTF-8 texts are passed over");
  console_.line(grouped(work_.train.tokens()), " tokens of a vocabulary of ",
                grouped(work_.generator.tokenizer().vocab()), ", in ", grouped(work_.train.size()),
                " sequences");
  console_.line(nn::component_table(work_.generator.model()));
  if (&work_.trained != &work_.generator.model())
    console_.line(work_.trained.describe(), ": of these ", grouped(work_.trained.parameters().numel()),
                  " numbers are trained");
}

void TrainOutput::step(const train::StepReport& r) {
  metrics_.step(r);
  Progress& progress = console_.progress("training", last_step_ - steps_done_, "steps");
  progress.note(concat("step ", r.step, "  loss ", fixed_text(r.loss, 4)));
  progress.advance();
}

Metrics::Scalars TrainOutput::predict() const {
  if (work_.valid.size() == 0) return {};
  const train::Prediction p = train::predict(work_.generator.model(), work_.valid,
                                             settings_.batch_size * settings_.context, throw_if_stopped);
  return {{"valid/loss", p.mean()},
          {"valid/perplexity", p.perplexity()},
          {"valid/bits_per_character", p.bits_per_character(work_.valid.characters())}};
}

// What the best measurement has the least of; without a validation text the last is the best.
double TrainOutput::selected(const Json& measurement) const {
  return work_.valid.size() == 0 ? -measurement.at("step").get<double>()
                                 : number_or_nan(measurement, "valid_loss");
}

// Drawn by numbers of its own: those of the training stay as they are.
void TrainOutput::show_sample(int64_t step) const {
  if (settings_.sample_tokens == 0 || settings_.json) return;
  Generator random(static_cast<uint64_t>(settings_.seed), static_cast<uint64_t>(step) << 24);
  nn::TextGenerateOptions options{.max_tokens = settings_.sample_tokens};
  options.sample.generator = &random;
  options.on_text = [](std::string_view) { throw_if_stopped(); };
  console_.line("\n", printable_lines(settings_.prompt),
                printable_lines(work_.generator.generate(settings_.prompt, options)), "\n");
}

bool TrainOutput::measure(const train::EpochReport& r) {
  console_.end_progress();
  steps_done_ = r.step;
  const Metrics::Scalars measured = predict();
  metrics_.write(r, measured);
  const Json& numbers = metrics_.epochs().back();
  const bool best = best_.update(std::ssize(metrics_.epochs()), selected(numbers));
  if (best) work_.save();
  console_.report(numbers, [&] {
    std::string text;
    if (!measured.empty())
      text =
          concat("  valid loss ", fixed_text(measured[0].second, 4), "  perplexity ",
                 fixed_text(measured[1].second, 2), "  bits a character ", fixed_text(measured[2].second, 4));
    return concat("step ", r.step, "  epoch ", r.epoch, "  loss ", fixed_text(r.loss, 4), "  lr ",
                  fixed_text(r.lr, 6), text, "  ", format_count(r.tokens_per_second), " tokens/s",
                  best ? "  best" : "");
  });
  show_sample(r.step);
  return !best_.exhausted();
}

void TrainOutput::save_losses() const {
  if (metrics_.steps().empty()) return;
  const Figure figure = save_loss_figure(metrics_, settings_.out);
  if (!figure.drawn) console_.line(figure.message);
}

void TrainOutput::end(const train::EpochReport& report) {
  const bool measured =
      !metrics_.epochs().empty() && metrics_.epochs().back().at("step").get<int64_t>() == report.step;
  if (report.step > 0 && !measured) measure(report);
  console_.end_progress();
  if (best_.epoch() == 0) work_.save();  // nothing was trained or measured
  save_losses();
  Json last = Json::object();
  if (best_.epoch() > 0) {
    last = metrics_.epochs()[static_cast<size_t>(best_.epoch() - 1)];
    last["best_step"] = last["step"];
    console_.line("the best is of step ", last["step"].get<int64_t>(), "; it is in ", settings_.out.string());
  }
  last["step"] = report.step;
  last["final"] = true;
  metrics_.write_end(report.step, {}, last);
  console_.write(last);
}

}  // namespace heed::apps
