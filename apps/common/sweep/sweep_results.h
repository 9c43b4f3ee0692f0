// What a sweep found: means and deviations over the seeds, as a table, files, figures and a page.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/common/figures/presentation.h"
#include "apps/common/sweep/sweep.h"

namespace heed::apps {

/// The mean of a measure over the seeds of a setting, and their standard deviation (n - 1).
struct Statistic {
  double mean = 0, deviation = 0;
  int64_t count = 0;  ///< seeds that have it; the mean of none is NaN, the deviation of one too
};

Statistic statistic(const std::vector<double>& values);

/// y ≈ factor · x^exponent, by least squares of the logarithms; r2 is the part of their variance that it
/// explains.
struct PowerLaw {
  double factor, exponent, r2;
};

/// Nothing for fewer than three different x, or where an x or a y is not positive.
std::optional<PowerLaw> fit_power_law(const std::vector<double>& x, const std::vector<double>& y);

/// A number in a sweep's rows that is worth showing.
struct Measure {
  std::string key;     ///< in the rows: "sequence_accuracy"
  std::string name;    ///< on axes and above columns: "Whole sequences, %"
  std::string format;  ///< fmt's: "{:.2f}"
  double scale = 1;    ///< 100 shows a part as percent
};

/// The rows of run_sweep() by settings.
class SweepResults {
 public:
  SweepResults(std::vector<Variation> variations, std::vector<Measure> measures, std::vector<Json> rows);

  /// Of a setting, in the order of combinations().
  Statistic at(size_t setting, const Measure& measure) const;
  /// A line a setting: its values, then "mean ± deviation" of each measure, and how many seeds failed.
  Table table() const;
  /// A line a run, and a line a setting, as CSV with a header.
  std::string runs_csv() const;
  std::string settings_csv() const;
  /// Each measure that differs, over what was varied: with error bars as a line over an option of numbers,
  /// one for each value of a second option, or as bars; over two options as a heatmap too; and the loss over
  /// parameters and pairs, where they vary, with its power law.
  /// Returns the figures' names.
  std::vector<std::string> draw(Presentation& presentation) const;
  /// Power laws of the loss, in words: "loss ≈ 12.3 · parameters^-0.41 (R² 0.98)".
  std::vector<std::string> laws() const;

 private:
  std::vector<double> of(size_t setting, const std::string& key) const;
  std::string setting_name(size_t setting) const;
  bool is_numeric(size_t variation) const;
  std::vector<double> numbers(size_t variation) const;
  std::vector<double> means(const Measure& measure) const;
  std::optional<size_t> x_variation() const;
  LinePlot lines(const Measure& measure, size_t x_axis) const;
  BarChart bars(const Measure& measure) const;
  Heatmap heatmap(const Measure& measure) const;
  std::vector<std::pair<std::string, std::vector<double>>> scales() const;
  LinePlot loss_over(const std::string& what, const std::vector<double>& x) const;

  std::vector<Variation> variations_;
  std::vector<Measure> measures_;
  std::vector<Json> rows_;
  std::vector<std::vector<std::string>> settings_;
  std::vector<std::vector<size_t>> rows_of_;  // of each setting
};

/// A page without network: what was varied, the table, the laws, and the figures, SVG files of which those
/// that are missing are left out. IoError.
void write_sweep_page(const std::filesystem::path& file, const std::string& title, const std::string& varied,
                      const SweepResults& results, const std::vector<std::filesystem::path>& figures);

}  // namespace heed::apps
