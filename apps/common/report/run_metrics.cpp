#include "apps/common/report/run_metrics.h"

#include <algorithm>

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

}  // namespace

Metrics::Metrics(const std::filesystem::path& folder, int64_t done, MetricsUnit unit)
    : epochs_(lines_of(folder / "metrics.jsonl", done, unit)),
      lines_(folder / "metrics.jsonl"),
      events_(folder, unit == MetricsUnit::epoch ? done : std::ssize(epochs_)) {}

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

Figure save_loss_figure(const std::vector<Json>& epochs, const std::filesystem::path& directory) {
  Line line{"training loss", {}, {}};
  for (const Json& epoch : epochs) {
    line.x.push_back(epoch.at("epoch").get<double>());
    line.y.push_back(epoch.at("loss").get<double>());
  }
  return save_figure(LinePlot{"Training loss", "Epoch", "Cross-entropy", {line}}, directory / "loss");
}

}  // namespace heed::apps
