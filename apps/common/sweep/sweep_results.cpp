#include "apps/common/sweep/sweep_results.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include <heed/core/base/check.h>

namespace heed::apps {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Values that grow by factors lie on a logarithmic axis.
bool grows_by_factors(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  if (x.size() < 3 || x.front() <= 0) return false;
  return x.back() / x.front() >= 8 && x[1] / x[0] > 1.2 && x[x.size() / 2] < (x.front() + x.back()) / 2.5;
}

std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

std::string csv_line(const std::vector<std::string>& cells) {
  std::string line;
  for (size_t i = 0; i < cells.size(); ++i) line += (i > 0 ? "," : "") + csv_cell(cells[i]);
  return line + "\n";
}

std::string csv_number(double value) { return std::isfinite(value) ? fmt::format("{}", value) : ""; }

std::string stem_of(const std::string& key) {
  std::string stem = key;
  std::replace(stem.begin(), stem.end(), '_', '-');
  return stem;
}

}  // namespace

Statistic statistic(const std::vector<double>& values) {
  Statistic result{kNaN, kNaN, std::ssize(values)};
  if (values.empty()) return result;
  const auto count = static_cast<double>(values.size());
  double sum = 0, squares = 0;
  for (const double value : values) sum += value;
  result.mean = sum / count;
  for (const double value : values) squares += (value - result.mean) * (value - result.mean);
  result.deviation = values.size() > 1 ? std::sqrt(squares / (count - 1)) : kNaN;
  return result;
}

std::optional<PowerLaw> fit_power_law(const std::vector<double>& x, const std::vector<double>& y) {
  HEED_CHECK(x.size() == y.size(), ShapeError, "fit_power_law: ", x.size(), " x and ", y.size(), " y");
  std::vector<double> different = x;
  std::sort(different.begin(), different.end());
  different.erase(std::unique(different.begin(), different.end()), different.end());
  if (different.size() < 3) return std::nullopt;
  double mean_x = 0, mean_y = 0, xx = 0, xy = 0, yy = 0;
  const auto count = static_cast<double>(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    if (!(x[i] > 0 && y[i] > 0 && std::isfinite(x[i]) && std::isfinite(y[i]))) return std::nullopt;
    mean_x += std::log(x[i]) / count;
    mean_y += std::log(y[i]) / count;
  }
  for (size_t i = 0; i < x.size(); ++i) {
    const double dx = std::log(x[i]) - mean_x, dy = std::log(y[i]) - mean_y;
    xx += dx * dx;
    xy += dx * dy;
    yy += dy * dy;
  }
  const double exponent = xy / xx;
  return PowerLaw{std::exp(mean_y - exponent * mean_x), exponent, yy > 0 ? exponent * xy / yy : 1};
}

SweepResults::SweepResults(std::vector<Variation> variations, std::vector<Measure> measures,
                           std::vector<Json> rows)
    : variations_(std::move(variations)),
      measures_(std::move(measures)),
      rows_(std::move(rows)),
      settings_(combinations(variations_)),
      rows_of_(settings_.size()) {
  for (size_t r = 0; r < rows_.size(); ++r) {
    std::vector<std::string> values;
    for (const Variation& variation : variations_)
      values.push_back(rows_[r].at(variation.option).get<std::string>());
    const auto setting = std::find(settings_.begin(), settings_.end(), values);
    HEED_CHECK(setting != settings_.end(), StateError, "a row of the sweep is of none of its settings");
    rows_of_[static_cast<size_t>(setting - settings_.begin())].push_back(r);
  }
}

std::vector<double> SweepResults::of(size_t setting, const std::string& key) const {
  std::vector<double> values;
  for (const size_t row : rows_of_[setting])
    if (rows_[row].contains(key) && rows_[row][key].is_number())
      values.push_back(rows_[row][key].get<double>());
  return values;
}

Statistic SweepResults::at(size_t setting, const Measure& measure) const {
  std::vector<double> values = of(setting, measure.key);
  for (double& value : values) value *= measure.scale;
  return statistic(values);
}

std::string SweepResults::setting_name(size_t setting) const {
  std::string name;
  for (size_t i = 0; i < variations_.size(); ++i)
    name += fmt::format("{}{} {}", i > 0 ? ", " : "", variations_[i].option, settings_[setting][i]);
  return name.empty() ? "default" : name;
}

bool SweepResults::is_numeric(size_t variation) const {
  return std::ranges::all_of(variations_[variation].values,
                             [](const std::string& value) { return parse_number(value).has_value(); });
}

std::vector<double> SweepResults::numbers(size_t variation) const {
  std::vector<double> result;
  for (const std::string& value : variations_[variation].values) result.push_back(*parse_number(value));
  return result;
}

Table SweepResults::table() const {
  Table table;
  for (const Variation& variation : variations_) table.columns.push_back({variation.option});
  for (const Measure& measure : measures_) table.columns.push_back({measure.name});
  table.columns.push_back({"Runs"});
  for (size_t s = 0; s < settings_.size(); ++s) {
    std::vector<Json> row(settings_[s].begin(), settings_[s].end());
    int64_t failed = 0;
    for (const size_t r : rows_of_[s]) failed += rows_[r].contains("failed");
    for (const Measure& measure : measures_) {
      const Statistic found = at(s, measure);
      std::string text = found.count == 0 ? "-" : fmt::format(fmt::runtime(measure.format), found.mean);
      if (found.count > 1 && found.deviation > 0)
        text += " ± " + fmt::format(fmt::runtime(measure.format), found.deviation);
      row.push_back(text);
    }
    const auto runs = std::ssize(rows_of_[s]);
    row.push_back(failed > 0 ? fmt::format("{}, {} failed", runs, failed) : std::to_string(runs));
    table.rows.push_back(std::move(row));
  }
  return table;
}

std::string SweepResults::runs_csv() const {
  std::vector<std::string> keys;
  for (const Json& row : rows_)
    for (const auto& [key, value] : row.items())
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
  std::string text = csv_line(keys);
  for (const Json& row : rows_) {
    std::vector<std::string> cells;
    for (const std::string& key : keys) {
      const Json value = row.value(key, Json());
      cells.push_back(value.is_null() ? "" : value.is_string() ? value.get<std::string>() : value.dump());
    }
    text += csv_line(cells);
  }
  return text;
}

std::string SweepResults::settings_csv() const {
  std::vector<std::string> header;
  for (const Variation& variation : variations_) header.push_back(variation.option);
  header.push_back("runs");
  for (const Measure& measure : measures_)
    for (const char* part : {"_mean", "_deviation"}) header.push_back(measure.key + part);
  std::string text = csv_line(header);
  for (size_t s = 0; s < settings_.size(); ++s) {
    std::vector<std::string> cells = settings_[s];
    cells.push_back(std::to_string(rows_of_[s].size()));
    for (const Measure& measure : measures_) {
      const Statistic found = statistic(of(s, measure.key));
      cells.push_back(csv_number(found.mean));
      cells.push_back(csv_number(found.deviation));
    }
    text += csv_line(cells);
  }
  return text;
}

std::vector<double> SweepResults::means(const Measure& measure) const {
  std::vector<double> result;
  for (size_t s = 0; s < settings_.size(); ++s) result.push_back(at(s, measure).mean);
  return result;
}

// The variation that is the x axis of lines: the first of numbers, where there are at most two.
std::optional<size_t> SweepResults::x_variation() const {
  if (variations_.size() > 2) return std::nullopt;
  for (size_t v = 0; v < variations_.size(); ++v)
    if (variations_[v].values.size() > 1 && is_numeric(v)) return v;
  return std::nullopt;
}

// Over one variation, a line for each value of the other.
LinePlot SweepResults::lines(const Measure& measure, size_t x_axis) const {
  const std::vector<double> x = numbers(x_axis);
  LinePlot plot{measure.name, variations_[x_axis].option, measure.name, {}, grows_by_factors(x), false};
  const size_t other = 1 - x_axis;
  for (const std::string& value :
       other < variations_.size() ? variations_[other].values : std::vector<std::string>{""})
    plot.lines.push_back({value.empty() ? "" : variations_[other].option + " " + value, {}, {}, {}});
  for (size_t s = 0; s < settings_.size(); ++s) {
    const auto index_of = [&](size_t v) {
      const std::vector<std::string>& values = variations_[v].values;
      return static_cast<size_t>(std::find(values.begin(), values.end(), settings_[s][v]) - values.begin());
    };
    Line& line = plot.lines[other < variations_.size() ? index_of(other) : 0];
    const Statistic found = at(s, measure);
    line.x.push_back(x[index_of(x_axis)]);
    line.y.push_back(found.mean);
    line.deviation.push_back(found.deviation);
  }
  return plot;
}

BarChart SweepResults::bars(const Measure& measure) const {
  BarChart chart{measure.name, measure.name, {}, {}, false, {}};
  for (size_t s = 0; s < settings_.size(); ++s) {
    const Statistic found = at(s, measure);
    chart.names.push_back(variations_.size() == 1 ? settings_[s][0] : setting_name(s));
    chart.values.push_back(found.mean);
    chart.deviations.push_back(found.deviation);
  }
  return chart;
}

Heatmap SweepResults::heatmap(const Measure& measure) const {
  Heatmap map;
  map.title = measure.name;
  map.values = {std::ssize(variations_[0].values), std::ssize(variations_[1].values), {}};
  for (const double mean : means(measure)) map.values.values.push_back(static_cast<float>(mean));
  map.row_labels = variations_[0].values;
  map.column_labels = variations_[1].values;
  map.row_axis = variations_[0].option;
  map.column_axis = variations_[1].option;
  map.color_label = measure.name;
  map.colors = ColorMap::viridis;
  constexpr float kLargest = 1000;  // with two decimals in a cell
  if (*std::ranges::max_element(map.values.values) < kLargest) map.decimals = 2;
  return map;
}

// The mean loss of each setting as points, and the power law through them.
LinePlot SweepResults::loss_over(const std::string& what, const std::vector<double>& x) const {
  const std::vector<double> loss = means({"loss", "Loss", "{:.4g}"});
  std::vector<std::pair<double, double>> points;
  for (size_t i = 0; i < x.size(); ++i) points.emplace_back(x[i], loss[i]);
  std::sort(points.begin(), points.end());
  Line measured{"measured", {}, {}, {}}, fitted{"power law", {}, {}, {}};
  const std::optional<PowerLaw> law = fit_power_law(x, loss);
  for (const auto& [at, value] : points) {
    measured.x.push_back(at);
    measured.y.push_back(value);
    if (!law) continue;
    fitted.x.push_back(at);
    fitted.y.push_back(law->factor * std::pow(at, law->exponent));
  }
  LinePlot plot{"Loss over " + what, what, "Loss", {measured}, true, true};
  if (law) plot.lines.push_back(fitted);
  return plot;
}

std::vector<std::string> SweepResults::draw(Presentation& presentation) const {
  std::vector<std::string> names;
  const auto draw = [&](const auto& plot, const std::string& name) {
    presentation.figure(plot, name);
    names.push_back(name);
  };
  for (const Measure& measure : measures_) {
    const std::vector<double> values = means(measure);
    const auto differs = [&](double value) { return std::isfinite(value) && value != values[0]; };
    if (std::ranges::none_of(values, differs)) continue;
    const std::string stem = stem_of(measure.key);
    if (const std::optional<size_t> x = x_variation())
      draw(lines(measure, *x), stem);
    else
      draw(bars(measure), stem);
    if (variations_.size() == 2) draw(heatmap(measure), stem + "-map");
  }
  for (const auto& [what, x] : scales()) draw(loss_over(what, x), "loss-over-" + what);
  return names;
}

// What the loss may follow a power law of: parameters and pairs of data, where three of them differ.
std::vector<std::pair<std::string, std::vector<double>>> SweepResults::scales() const {
  std::vector<std::pair<std::string, std::vector<double>>> result;
  const auto add = [&](const std::string& what, const std::vector<double>& x) {
    if (fit_power_law(x, means({"loss", "Loss", ""}))) result.emplace_back(what, x);
  };
  add("parameters", means({"parameters", "Parameters", ""}));
  for (size_t v = 0; v < variations_.size(); ++v) {
    if (variations_[v].option != "pairs") continue;
    std::vector<double> x;
    for (const auto& values : settings_) x.push_back(*parse_number(values[v]));
    add("pairs", x);
  }
  return result;
}

std::vector<std::string> SweepResults::laws() const {
  std::vector<std::string> result;
  for (const auto& [what, x] : scales()) {
    const PowerLaw law = *fit_power_law(x, means({"loss", "Loss", ""}));
    result.push_back(
        fmt::format("loss ≈ {:.3g} · {}^{:.3f} (R² {:.3f})", law.factor, what, law.exponent, law.r2));
  }
  return result;
}

}  // namespace heed::apps
