#include "apps/common/figures/heatmap_panel.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "apps/common/text.h"

namespace heed::apps {
namespace {

constexpr double kText = GnuplotFigure::kText, kTitle = GnuplotFigure::kTitle;
constexpr double kBold = 1.08;  // how much wider bold text is
constexpr int kLongestLabel = 24;
constexpr int64_t kMaxShapes = 4096;
constexpr int64_t kMaxBoxes = 64;  // cells along a side that are drawn one by one, with gaps between them
constexpr double kShortestBar = 130;
constexpr double kAxisName = 24,
                 kSlope = 0.71;  // room for an axis's name; the height of a slanted text per length

// Steps of 1, 2 or 5 times a power of ten, such that texts have room.
int64_t tick_step(int64_t count, double cell, double room) {
  int64_t step = 1;
  for (int i = 0; static_cast<double>(step) * cell < room && step < count; ++i)
    step = i % 3 == 1 ? step / 2 * 5 : step * 2;
  return step;
}

Ticks make_ticks(const std::vector<std::string>& labels, int64_t count, double cell, bool horizontal) {
  Ticks ticks;
  const auto width = [](const std::string& text) { return text_width(text, kText); };
  if (labels.empty()) {
    const double widest = width(std::to_string(count - 1));
    const int64_t step = tick_step(count, cell, horizontal ? widest + 18 : 24);
    for (int64_t i = 0; i < count; i += step) ticks.texts.emplace_back(i, std::to_string(i));
  } else {
    const int64_t step = tick_step(count, cell, horizontal ? 18 : 13);  // slanted texts need more
    for (int64_t i = 0; i < count; i += step) {
      ticks.texts.emplace_back(i, shorten(labels[static_cast<size_t>(i)], kLongestLabel));
    }
    for (const auto& text : ticks.texts) ticks.slanted |= horizontal && width(text.second) + 4 > cell * step;
  }
  for (const auto& text : ticks.texts) ticks.widest = std::max(ticks.widest, width(text.second));
  return ticks;
}

// `side`: how long the longer side of a map of few cells is to be, or its width where they are not square.
void set_cell_size(Panel& panel, double side) {
  const Heatmap& map = *panel.map;
  const double rows = static_cast<double>(map.values.rows), cols = static_cast<double>(map.values.cols);
  if (std::max(rows, cols) <= kMaxBoxes) {
    // Whole pixels, so that edges are sharp; wide enough for the values in them.
    const double smallest = map.decimals > 2 ? 46 : map.decimals > 0 ? 38 : 6;
    const auto cell = [&](double count, double largest) {
      return std::clamp(std::floor(side / count), smallest, largest);
    };
    const double square = cell(std::max(rows, cols), 48);
    panel.width = (map.square ? square : cell(cols, 96)) * cols;
    panel.height = (map.square ? square : std::min(square, 30.0)) * rows;
    return;
  }
  const double longest = 640 / kSide * side;
  panel.width = cols > longest ? longest : std::round(longest / cols) * cols;
  panel.height = std::clamp(std::round(panel.width * rows / cols), 200.0, 420.0);
}

void add_bar(GnuplotFigure& figure, double left, double top, double height, const std::string& name) {
  figure.add(fmt::format("set colorbox user origin {}, {} size {:.6f}, {:.6f} noborder", figure.x(left),
                         figure.y(top + height), figure.fraction_x(kBarWidth), figure.fraction_y(height)));
  figure.add(
      fmt::format("set cbtics scale 0.4,0.4 out nomirror font ',{}' textcolor rgb '#404040' format '%g'",
                  GnuplotFigure::kSmall));
  figure.add_label(name, left + kBarWidth + kBarTexts + 8, top + height / 2, "center rotate by 90");
}

void add_texts(GnuplotFigure& figure, const Panel& panel, double left, double top) {
  const Heatmap& map = *panel.map;
  const double cell_width = panel.width / static_cast<double>(map.values.cols);
  const double cell_height = panel.height / static_cast<double>(map.values.rows);
  const double middle = left + panel.width / 2, bottom = top + panel.height;
  figure.add_label(fit(map.title, panel.left + panel.width + panel.right, kTitle), middle,
                   top - panel.overhang - 18, "center", kTitle);
  if (panel.row_side) {
    for (const auto& text : panel.rows.texts) {
      const double y = top + (static_cast<double>(text.first) + 0.5) * cell_height;
      figure.add_label(text.second, left - 7, y, "right");
    }
    figure.add_label(fit(map.row_axis, panel.height + 40, kText), left - panel.rows.widest - 23,
                     top + panel.height / 2, "center rotate by 90");
  }
  if (!panel.column_side) return;
  const bool slanted = panel.columns.slanted;
  for (const auto& text : panel.columns.texts) {
    const double x = left + (static_cast<double>(text.first) + 0.5) * cell_width;
    figure.add_label(text.second, x + (slanted ? 4 : 0), bottom + (slanted ? 9 : 14),
                     slanted ? "right rotate by 45" : "center");
  }
  const double below = slanted ? panel.columns.widest * kSlope + 26 : 36;
  figure.add_label(fit(map.column_axis, panel.width + 40, kText), middle, bottom + below, "center");
}

bool is_blank(const Heatmap& map, float value) { return map.zeros_are_hidden && value == 0; }

std::string cell_texts(const Heatmap& map, std::pair<double, double> scale) {
  std::string out;
  for (int64_t r = 0; r < map.values.rows; ++r) {
    for (int64_t c = 0; c < map.values.cols; ++c) {
      if (is_blank(map, map.values.at(r, c))) continue;
      const double value = map.values.at(r, c);
      const Color behind = color_at(map.colors, (value - scale.first) / (scale.second - scale.first));
      const Color ink = text_color_on(behind);
      const std::string text = std::isfinite(value) ? fmt::format("{:.{}f}", value, map.decimals)
                               : std::isnan(value)  ? "NaN"
                               : value > 0          ? "+Inf"
                                                    : "-Inf";
      out += fmt::format("{} {} {} {}\n", c, r, text, ink.red * 65536 + ink.green * 256 + ink.blue);
    }
  }
  return out;
}

std::string cell_values(const Heatmap& map) {
  const Matrix& m = map.values;
  std::string out;
  for (int64_t r = 0; r < m.rows; ++r) {
    for (int64_t c = 0; c < m.cols; ++c) {
      const bool shown = std::isfinite(m.at(r, c)) && !is_blank(map, m.at(r, c));
      out += shown ? fmt::format("{}{}", c ? " " : "", m.at(r, c)) : c ? " NaN" : "NaN";
    }
    out += '\n';
  }
  return out;
}

// gnuplot draws an image from two rows and columns on. Beyond so many cells an SVG holds one picture instead
// of a shape for each of them.
std::string cell_style(const Matrix& m) {
  if (std::min(m.rows, m.cols) < 2)
    return "using ($3 == $3 ? $1 : NaN):2:(0.5):(0.5):3 with boxxyerror fillstyle solid noborder fillcolor "
           "palette";
  return m.rows * m.cols > kMaxShapes ? "with image" : "with image pixels";
}

// x, y and lengths. No blank lines: to gnuplot they would begin another matrix in the same file.
std::string lines_between_cells(const Matrix& m) {
  std::string out;
  for (int64_t c = 1; c < m.cols; ++c) out += fmt::format("{} -0.5 0 {}\n", c - 0.5, m.rows);
  for (int64_t r = 1; r < m.rows; ++r) out += fmt::format("-0.5 {} {} 0\n", r - 0.5, m.cols);
  return out;
}

}  // namespace

std::string fit(const std::string& text, double width, double size) {
  const double full = text_width(text, size >= kTitle ? size * kBold : size);
  return full <= width ? text
                       : shorten(text, std::max(4, static_cast<int>(width / full * text_columns(text))));
}

Panel make_panel(const Heatmap& map, double side) {
  const Matrix& m = map.values;
  Panel panel;
  panel.map = &map;
  panel.scale = color_scale(map);
  set_cell_size(panel, side);
  panel.rows = make_ticks(map.row_labels, m.rows, panel.height / static_cast<double>(m.rows), false);
  panel.columns = make_ticks(map.column_labels, m.cols, panel.width / static_cast<double>(m.cols), true);
  return panel;
}

void set_margins(Panel& panel) {
  const Heatmap& map = *panel.map;
  const double slant = panel.columns.slanted ? panel.columns.widest * kSlope : 0;
  panel.top = map.title.empty() ? 12 : 38;
  panel.left = 14;
  if (panel.row_side) panel.left += panel.rows.widest + 10 + (map.row_axis.empty() ? 0 : kAxisName);
  panel.bottom = 12;
  if (panel.column_side) {
    panel.bottom += (slant > 0 ? slant + 14 : 20) + (map.column_axis.empty() ? 0 : kAxisName);
    // Slanted texts begin to the left of their cell.
    panel.left = std::max(panel.left, slant - panel.width / static_cast<double>(map.values.cols) / 2 + 10);
  }
  panel.right = panel.bar ? kBarGap + kBarWidth + kBarTexts + (map.color_label.empty() ? 0 : kBarName) : 14;
  const double spare = std::min(text_width(map.title, kTitle * kBold), panel.width + 320) - panel.width;
  panel.left = std::max(panel.left, spare / 2 + 8);
  panel.right = std::max(panel.right, spare / 2 + 8);
  // A bar longer than the cells are high stands out above and below them, and the title above it.
  panel.overhang = panel.bar ? std::max((kShortestBar - panel.height) / 2, 0.0) : 0;
  panel.top += panel.overhang;
  panel.bottom = std::max(panel.bottom, panel.overhang + 14);
  for (double* margin : {&panel.left, &panel.right, &panel.top, &panel.bottom}) *margin = std::ceil(*margin);
}

void add_panel(GnuplotFigure& figure, const Panel& panel, double left, double top, const BarPlace* bar) {
  const Heatmap& map = *panel.map;
  const Matrix& m = map.values;
  figure.add("unset label; unset object; unset key; unset xtics; unset ytics; unset colorbox");
  figure.add("set border 0");
  figure.set_margins(left, top, panel.width, panel.height);
  figure.add(fmt::format("set xrange [-0.5:{}]; set yrange [{}:-0.5]; set cbrange [{}:{}]", m.cols - 0.5,
                         m.rows - 0.5, panel.scale.first, panel.scale.second));
  figure.add(gnuplot_palette(map.colors));
  figure.add(
      "set object 1 rectangle from graph 0,0 to graph 1,1 behind fillcolor rgb '#d9d9d9' fillstyle solid "
      "noborder");
  add_texts(figure, panel, left, top);
  if (bar) add_bar(figure, bar->left, bar->top, bar->height, map.color_label);
  const int values = figure.add_data(cell_values(map));
  std::string plot = fmt::format("plot {} index {} matrix {}", GnuplotFigure::kData, values, cell_style(m));
  // A hair of white between cells that are large enough for it.
  constexpr double kLargeCell = 12;
  if (m.rows * m.cols > 1 && std::min(panel.width / static_cast<double>(m.cols),
                                      panel.height / static_cast<double>(m.rows)) >= kLargeCell) {
    plot += fmt::format(", {} index {} with vectors nohead linecolor rgb '#ffffff' linewidth 1",
                        GnuplotFigure::kData, figure.add_data(lines_between_cells(m)));
  }
  if (map.decimals > 0) {
    plot += fmt::format(", {} index {} using 1:2:3:4 with labels textcolor rgb variable font ',{}'",
                        GnuplotFigure::kData, figure.add_data(cell_texts(map, panel.scale)),
                        GnuplotFigure::kSmall);
  }
  figure.add(plot);
}

}  // namespace heed::apps
