#include "apps/common/report/run_metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace heed::apps {
namespace {

Json to_json(const train::EpochReport& r) {
  return {{"epoch", r.epoch},
          {"step", r.step},
          {"loss", r.loss},
          {"lr", r.lr},
          {"grad_norm", r.grad_norm},
          {"samples_per_second", r.samples_per_second},
          {"tokens_per_second", r.tokens_per_second}};
}

// Those of the first `count` epochs or steps that the file has, in order; the rest is dropped.
std::vector<Json> lines_of(const std::filesystem::path& file, int64_t count, MetricsUnit unit) {
  const Json form = to_json(train::EpochReport());
  int64_t last = 0;
  return repair_json_lines(file, [&](const Json& line) {
    for (const auto& [key, value] : form.items())
      if (!line.contains(key) || !line[key].is_number()) return false;
    if (!line["epoch"].is_number_integer() || !line["step"].is_number_integer()) return false;
    const auto number = line[unit == MetricsUnit::epoch ? "epoch" : "step"].get<int64_t>();
    if (number <= last || number > count) return false;
    last = number;
    return true;
  });
}

int64_t count(const train::TrainingState& done, MetricsUnit unit) {
  return unit == MetricsUnit::epoch ? done.epoch : done.step;
}

}  // namespace

Metrics::Metrics(const std::filesystem::path& folder, const train::TrainingState& done, MetricsUnit unit)
    : epochs_(lines_of(folder / "metrics.jsonl", count(done, unit), unit)),
      lines_(folder / "metrics.jsonl"),
      events_(folder, unit == MetricsUnit::epoch ? done.epoch : std::ssize(epochs_)),
      curve_(folder, done.step) {}

void Metrics::write(const train::EpochReport& r, const Scalars& measured) {
  Json line = to_json(r);
  Scalars scalars{{"train/loss", r.loss},
                  {"train/lr", r.lr},
                  {"train/grad_norm", r.grad_norm},
                  {"train/samples_per_second", r.samples_per_second}};
  for (const auto& [name, value] : measured) {
    std::string key = name;
    std::replace(key.begin(), key.end(), '/', '_');
    line[key] = value;
    scalars.emplace_back(name, value);
  }
  epochs_.push_back(std::move(line));
  lines_.write(epochs_.back());
  events_.write(r.step, scalars);
}

void Metrics::write_end(int64_t step, const Scalars& measured, const Json& line) {
  lines_.write(line);
  events_.write(step, measured);
}

double number_or_nan(const Json& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_number() ? found->get<double>()
                                                   : std::numeric_limits<double>::quiet_NaN();
}

Figure save_loss_figure(const Metrics& metrics, const std::filesystem::path& directory,
                        const std::string& training) {
  LinePlot plot{"Loss", "Step", "Cross-entropy", {{training, {}, {}}}};
  for (const StepPoint& p : metrics.steps()) {
    plot.lines[0].x.push_back(static_cast<double>(p.step));
    plot.lines[0].y.push_back(p.loss);
  }
  Line validation{"validation", {}, {}};
  for (const Json& epoch : metrics.epochs())
    if (const double loss = number_or_nan(epoch, "valid_loss"); std::isfinite(loss)) {
      validation.x.push_back(epoch.at("step").get<double>());
      validation.y.push_back(loss);
    }
  if (!validation.x.empty()) plot.lines.push_back(std::move(validation));
  return save_figure(plot, directory / "loss");
}

}  // namespace heed::apps
