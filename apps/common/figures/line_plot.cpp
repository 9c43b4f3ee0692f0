// Line plots and bar charts.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include <fmt/format.h>

#include <heed/core/base/check.h>

#include "apps/common/figures/gnuplot.h"
#include "apps/common/text.h"

namespace heed::apps {

namespace {

constexpr double kText = GnuplotFigure::kText, kTitle = GnuplotFigure::kTitle;

// Eight colours that stay apart for colour-blind eyes (Okabe and Ito, 2008), the yellow and the black
// softened.
constexpr const char* kLineColors[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                       "#e69f00", "#56b4e9", "#505050", "#b8a900"};

void add_axes(GnuplotFigure& figure) {
  figure.add("set border 3 linecolor rgb '#808080'");
  figure.add("set tics nomirror out scale 0.6 textcolor rgb '#404040'");
  figure.add("set grid back linetype 1 linecolor rgb '#e0e0e0' linewidth 0.7");
}

void add_title(GnuplotFigure& figure, const std::string& title, double width, double center) {
  figure.add_label(shorten(title, static_cast<int>(width / (kTitle * 0.68))), center, 22, "center", kTitle);
}

constexpr int kLongestName = 56;

// Beside the plot while its names are short, so that the figure fits a page; else below it, in columns.
struct Legend {
  static constexpr double kMaxBeside = 170, kRow = 27;

  double width = 0;  // of a column
  int columns = 1, rows = 0;

  Legend(const LinePlot& plot, double room) {
    int names = 0;
    for (const Line& line : plot.lines) {
      if (line.name.empty()) continue;
      width = std::max(width, text_width(shorten(line.name, kLongestName), kText) + 50);
      ++names;
    }
    if (width <= kMaxBeside) return;
    columns = std::max(1, static_cast<int>(room / width));
    rows = (names + columns - 1) / columns;
  }
  bool beside() const { return rows == 0; }
  double height_below() const { return kRow * rows; }
};

bool is_shown(const LinePlot& plot, double x, double y) {
  return std::isfinite(x) && std::isfinite(y) && (!plot.log_x || x > 0) && (!plot.log_y || y > 0);
}

// Of so many points that a pixel has several, the lowest and the highest of each pixel, in their order.
Line thinned(const Line& line) {
  constexpr size_t kPixels = 2048, kMax = 4 * kPixels;
  const size_t count = line.x.size();
  if (count <= kMax) return line;
  Line result{line.name, {}, {}, {}};
  for (size_t pixel = 0; pixel < kPixels; ++pixel) {
    const auto first = line.y.begin() + static_cast<std::ptrdiff_t>(pixel * count / kPixels);
    const auto last = line.y.begin() + static_cast<std::ptrdiff_t>((pixel + 1) * count / kPixels);
    const auto less = [](double a, double b) { return std::isnan(b) ? !std::isnan(a) : a < b; };  // NaN last
    const auto more = [](double a, double b) { return std::isnan(b) ? !std::isnan(a) : a > b; };
    auto low = std::min_element(first, last, less), high = std::min_element(first, last, more);
    if (high < low) std::swap(low, high);
    for (const auto at : {low, high}) {
      result.x.push_back(line.x[static_cast<size_t>(at - line.y.begin())]);
      result.y.push_back(*at);
    }
  }
  return result;
}

// The points of a line as a block of data; where some are not shown the line has a gap.
std::string points_of(const LinePlot& plot, const Line& line, size_t& count) {
  std::string out;
  count = 0;
  bool gap = false;
  for (size_t i = 0; i < line.x.size(); ++i) {
    if (!is_shown(plot, line.x[i], line.y[i])) {
      gap = count > 0;
      continue;
    }
    // One blank line interrupts a line; two would end the block.
    out += fmt::format("{}{} {}\n", gap ? "\n" : "", line.x[i], line.y[i]);
    gap = false;
    ++count;
  }
  return out;
}

// The ends of a point's error bar; nothing where it has none.
std::optional<std::pair<double, double>> error_bar(bool logarithmic, double value,
                                                   const std::vector<double>& deviations, size_t i) {
  if (i >= deviations.size() || !std::isfinite(value) || !(deviations[i] > 0)) return std::nullopt;
  constexpr double kShortest = 0.1;  // of the value, where a logarithmic axis has no 0
  const double low = value - deviations[i];
  return std::pair(logarithmic ? std::max(low, kShortest * value) : low, value + deviations[i]);
}

// x, y and the ends of each error bar of a line as a block of data; empty where there are none.
std::string error_bars_of(const LinePlot& plot, const Line& line) {
  std::string out;
  for (size_t i = 0; i < line.x.size(); ++i) {
    const auto ends = error_bar(plot.log_y, line.y[i], line.deviation, i);
    if (ends && is_shown(plot, line.x[i], line.y[i]))
      out += fmt::format("{} {} {} {}\n", line.x[i], line.y[i], ends->first, ends->second);
  }
  return out;
}

// Ticks for a logarithmic axis that is too short for gnuplot's, which stand at powers of ten alone.
void add_log_ticks(GnuplotFigure& figure, char axis, double low, double high) {
  constexpr double kLongEnough = 100, kRounding = 1e-9;
  if (!(high / low < kLongEnough)) return;
  const std::vector<double> factors =
      high / low > 8 ? std::vector<double>{1, 2, 5} : std::vector<double>{1, 1.2, 1.5, 2, 3, 4, 5, 6, 8};
  std::string ticks;
  for (double power = std::pow(10, std::floor(std::log10(low))); power <= high; power *= 10) {
    for (const double factor : factors) {
      const double at = power * factor;
      if (at < low * (1 - kRounding) || at > high * (1 + kRounding)) continue;
      // A tick on the very end of the axis is lost to rounding.
      const double inside = std::clamp(at, low * (1 + kRounding), high * (1 - kRounding));
      ticks += fmt::format("{}'{:.3g}' {}", ticks.empty() ? "" : ", ", at, inside);
    }
  }
  if (!ticks.empty()) figure.add(fmt::format("set {}tics ({})", axis, ticks));
}

// Epochs and the like have no halves, which gnuplot would mark on a short axis.
void add_whole_ticks(GnuplotFigure& figure, const LinePlot& plot, double low, double high) {
  constexpr double kLongEnough = 6;
  const auto is_whole = [](double x) { return x == std::round(x); };
  if (high - low < kLongEnough && std::ranges::all_of(plot.lines, [&](const Line& line) {
        return std::ranges::all_of(line.x, is_whole);
      }))
    figure.add("set xtics 1");
}

// From the first to the last x; the y with a little room above and below, but not across 0.
void add_ranges(GnuplotFigure& figure, const LinePlot& plot) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity(), kRoom = 0.04;
  double x_low = kInfinity, x_high = -kInfinity, y_low = kInfinity, y_high = -kInfinity;
  for (const Line& line : plot.lines) {
    for (size_t i = 0; i < line.x.size(); ++i) {
      if (!is_shown(plot, line.x[i], line.y[i])) continue;
      x_low = std::min(x_low, line.x[i]);
      x_high = std::max(x_high, line.x[i]);
      const auto bar = error_bar(plot.log_y, line.y[i], line.deviation, i);
      y_low = std::min(y_low, bar ? bar->first : line.y[i]);
      y_high = std::max(y_high, bar ? bar->second : line.y[i]);
    }
  }
  const auto widen = [](double low, double high, bool logarithmic, double part) {
    if (logarithmic) {
      const double factor = low < high ? std::pow(high / low, part) : 2;
      return std::pair(low / factor, high * factor);
    }
    const double room = low < high ? part * (high - low) : 1;
    return std::pair(low >= 0 ? std::max(low - room, 0.0) : low - room,
                     high <= 0 && low < high ? std::min(high + room, 0.0) : high + room);
  };
  // The first and the last error bar would lie on the frame.
  const bool with_bars =
      std::ranges::any_of(plot.lines, [](const Line& line) { return !line.deviation.empty(); });
  const std::pair<double, double> x = widen(x_low, x_high, plot.log_x, with_bars ? kRoom : 0),
                                  y = widen(y_low, y_high, plot.log_y, kRoom);
  figure.add(fmt::format("set xrange [{}:{}]; set yrange [{}:{}]", x.first, x.second, y.first, y.second));
  if (plot.log_x)
    add_log_ticks(figure, 'x', x.first, x.second);
  else
    add_whole_ticks(figure, plot, x.first, x.second);
  if (plot.log_y) add_log_ticks(figure, 'y', y.first, y.second);
}

std::string plot_command(GnuplotFigure& figure, const LinePlot& plot) {
  constexpr size_t kMarkedPoints = 30;
  std::string command;
  for (size_t i = 0; i < plot.lines.size(); ++i) {
    const Line line = thinned(plot.lines[i]);
    size_t count = 0;
    const std::string points = points_of(plot, line, count);
    if (count == 0) continue;
    const bool marked = count <= kMarkedPoints;
    command += fmt::format("{} {} index {} using 1:2 with {} linecolor rgb '{}' linewidth 2 {} {}",
                           command.empty() ? "plot" : ",", GnuplotFigure::kData, figure.add_data(points),
                           marked ? "linespoints" : "lines", kLineColors[i % std::size(kLineColors)],
                           marked ? "pointtype 7 pointsize 0.45" : "",
                           line.name.empty()
                               ? "notitle"
                               : "title " + gnuplot_string(shorten(line.name, kLongestName)) + " noenhanced");
    if (const std::string bars = error_bars_of(plot, line); !bars.empty())
      command += fmt::format(
          ", {} index {} using 1:2:3:4 with yerrorbars linecolor rgb '{}' pointtype 7 pointsize 0.45 notitle",
          GnuplotFigure::kData, figure.add_data(bars), kLineColors[i % std::size(kLineColors)]);
  }
  return command;
}

// 1304552 → "1,304,552", 0.0123456 → "0.01235"
std::string bar_text(double value) {
  if (value != std::round(value) || std::abs(value) >= 1e15) return fmt::format("{:.4g}", value);
  return grouped(static_cast<int64_t>(value));
}

// Ticks of a linear axis up to large numbers, as whole numbers instead of powers of ten.
std::string large_ticks(double high) {
  const double power = std::pow(10, std::floor(std::log10(high)));
  const double step = high / power > 5 ? 2 * power : high / power > 2 ? power : power / 2;
  std::string ticks;
  for (double at = 0; at <= high; at += step)
    ticks += fmt::format("{}'{}' {}", ticks.empty() ? "" : ", ", bar_text(at), at);
  return fmt::format("set xtics ({})", ticks);
}

// The ends of the value axis and where on it a value lies, from 0 to 1.
struct BarScale {
  bool logarithmic;
  double low, high;

  explicit BarScale(const BarChart& chart) : logarithmic(chart.log_scale) {
    low = std::numeric_limits<double>::infinity();
    high = -low;
    for (size_t i = 0; i < chart.values.size(); ++i) {
      const double value = chart.values[i];
      if (!shows(value)) continue;
      const auto bar = error_bar(logarithmic, value, chart.deviations, i);
      low = std::min(low, bar ? bar->first : value);
      high = std::max(high, bar ? bar->second : value);
    }
    if (low > high) low = high = logarithmic ? 1 : 0;
    if (logarithmic) {
      low = std::pow(10, std::floor(std::log10(low) - 0.05));
      high *= 1.2;
      return;
    }
    low = std::min(low, 0.0);
    high = std::max(high, 0.0);
    const double margin = high > low ? 0.02 * (high - low) : 1;
    high += margin;
    if (low < 0) low -= margin;
  }

  bool shows(double value) const { return std::isfinite(value) && (!logarithmic || value > 0); }
  double start() const { return logarithmic ? low : 0; }
  double part(double value) const {
    const auto place = [&](double v) { return logarithmic ? std::log10(v) : v; };
    return (place(value) - place(low)) / (place(high) - place(low));
  }
};

}  // namespace

Figure save_figure(const LinePlot& plot, const std::filesystem::path& stem) {
  constexpr double kWidth = 600, kHeight = 320, kLeft = 84, kTop = 46,
                   kBottom = 64;  // of the area of the plot
  for (const Line& line : plot.lines) {
    HEED_CHECK(line.x.size() == line.y.size(), ShapeError, "line plot: the line '", printable(line.name),
               "' has ", line.x.size(), " x and ", line.y.size(), " y values");
  }
  const Legend legend(plot, kWidth);
  const double width = kLeft + kWidth + std::max(legend.beside() ? legend.width + 12 : 0, 26.0);
  GnuplotFigure figure(static_cast<int>(width),
                       static_cast<int>(kTop + kHeight + kBottom + legend.height_below()));
  add_axes(figure);
  add_title(figure, plot.title, width, kLeft + kWidth / 2);
  figure.set_margins(kLeft, kTop, kWidth, kHeight);
  figure.add_label(plot.x_axis, kLeft + kWidth / 2, kTop + kHeight + kBottom - 18, "center");
  figure.add_label(plot.y_axis, 18, kTop + kHeight / 2, "center rotate by 90");
  figure.add(fmt::format(
      "set key at {}, {} left top Left reverse samplen 2 spacing 1.4 noenhanced textcolor rgb '#262626'{}",
      figure.x(legend.beside() ? kLeft + kWidth + 6 : kLeft - 12),
      figure.y(legend.beside() ? kTop - 4 : kTop + kHeight + kBottom - 6),
      legend.beside() ? "" : fmt::format(" horizontal maxcols {}", legend.columns)));
  const std::string command = plot_command(figure, plot);
  if (command.empty()) {
    figure.add("set xrange [0:1]; set yrange [0:1]\nplot NaN notitle");
    return figure.save(stem);
  }
  add_ranges(figure, plot);
  if (plot.log_x) figure.add("set logscale x; set format x '%g'");
  if (plot.log_y) figure.add("set logscale y; set format y '%g'");
  figure.add(command);
  return figure.save(stem);
}

Figure save_figure(const BarChart& chart, const std::filesystem::path& stem) {
  constexpr double kWidth = 460, kRow = 24, kTop = 46, kBottom = 62, kRight = 84;
  HEED_CHECK(!chart.names.empty() && chart.names.size() == chart.values.size(), ShapeError,
             "bar chart: ", chart.names.size(), " names for ", chart.values.size(),
             " values; expected as many, at least one");
  double names = 0;
  for (const std::string& name : chart.names) {
    names = std::max(names, text_width(shorten(name, kLongestName), kText));
  }
  const BarScale scale(chart);
  const double left = names + 24, rows = static_cast<double>(chart.names.size()), height = kRow * rows;
  GnuplotFigure figure(static_cast<int>(left + kWidth + kRight), static_cast<int>(kTop + height + kBottom));
  add_axes(figure);
  add_title(figure, chart.title, left + kWidth + kRight, left + kWidth / 2);
  figure.set_margins(left, kTop, kWidth, height);
  figure.add("unset key; unset ytics; set grid noytics");
  if (chart.log_scale) figure.add("set logscale x; set format x '%g'");
  if (chart.log_scale) add_log_ticks(figure, 'x', scale.low, scale.high);
  constexpr double kLarge = 1e5;
  if (!chart.log_scale && scale.high >= kLarge && scale.low == 0) figure.add(large_ticks(scale.high));
  figure.add(fmt::format("set xrange [{}:{}]; set yrange [{}:-0.5]", scale.low, scale.high, rows - 0.5));
  figure.add_label(chart.value_axis, left + kWidth / 2, kTop + height + kBottom - 17, "center");
  std::string bars, errors;
  for (size_t i = 0; i < chart.names.size(); ++i) {
    const double row = static_cast<double>(i), y = kTop + (row + 0.5) * kRow, value = chart.values[i];
    const double end = scale.shows(value) ? value : scale.start();
    const double from = std::min(scale.start(), end), to = std::max(scale.start(), end);
    figure.add_label(shorten(chart.names[i], kLongestName), left - 8, y, "right");
    const auto error = error_bar(chart.log_scale, value, chart.deviations, i);
    const double text = std::max(to, error ? error->second : to);
    figure.add_label(bar_text(value), left + kWidth * scale.part(text) + 6, y, "left", GnuplotFigure::kSmall);
    if (error) errors += fmt::format("{} {} {} {}\n", value, row, error->first, error->second);
    // x, y and the four edges of the bar
    bars += fmt::format("{} {} {} {} {} {}\n", to, row, from, to, row - 0.36, row + 0.36);
  }
  std::string command = fmt::format(
      "plot {} index {} using 1:2:3:4:5:6 with boxxyerror fillcolor rgb '#3b7fb6' fillstyle solid noborder",
      GnuplotFigure::kData, figure.add_data(bars));
  if (!errors.empty())
    command += fmt::format(
        ", {} index {} using 1:2:3:4 with xerrorbars linecolor rgb '#303030' pointtype 7 pointsize 0.3",
        GnuplotFigure::kData, figure.add_data(errors));
  figure.add(command);
  return figure.save(stem);
}

}  // namespace heed::apps
