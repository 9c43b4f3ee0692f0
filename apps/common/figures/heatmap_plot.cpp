// Heatmaps and grids of them.
#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include <heed/core/base/check.h>
#include <heed/core/base/int_math.h>

#include "apps/common/figures/gnuplot.h"
#include "apps/common/text.h"

namespace heed::apps {

namespace {

constexpr double kText = GnuplotFigure::kText, kTitle = GnuplotFigure::kTitle,
                 kHeading = GnuplotFigure::kHeading;
constexpr double kBold = 1.08;  // how much wider bold text is
constexpr int kLongestLabel = 24;
constexpr int64_t kMaxShapes = 4096;
constexpr int64_t kMaxBoxes = 64;  // cells along a side that are drawn one by one, with gaps between them

// The text, shortened if it is wider than the pixels.
std::string fit(const std::string& text, double width, double size) {
  const double full = text_width(text, size >= kTitle ? size * kBold : size);
  return full <= width ? text
                       : shorten(text, std::max(4, static_cast<int>(width / full * text_columns(text))));
}

// The texts along one axis: at which cells, and whether they stand slanted.
struct Ticks {
  std::vector<std::pair<int64_t, std::string>> texts;
  double widest = 0;
  bool slanted = false;
};

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

// A panel with all its measures in pixels, its own top left corner being 0, 0.
struct Panel {
  const Heatmap* map;
  std::pair<double, double> scale;
  Ticks rows, columns;
  bool row_side = true, column_side = true, bar = true;  // which of its sides carry texts
  double width = 0, height = 0;                          // of the cells together
  double overhang = 0;                                   // of the bar above and below them
  double left = 0, right = 0, top = 0, bottom = 0;       // margins around them

  double total_width() const { return left + width + right; }
  double total_height() const { return top + height + bottom; }
};

constexpr double kBarGap = 14, kBarWidth = 14, kBarTexts = 44, kBarName = 24, kShortestBar = 130;
constexpr double kAxisName = 24,
                 kSlope = 0.71;  // room for an axis's name; the height of a slanted text per length

constexpr double kSide = 340, kShortestSide = 150;
// A page shows a wider figure smaller, and its texts too small to read.
constexpr double kPageWidth = 880;

// `side`: how long the longer side of a map of few cells is to be.
void set_cell_size(Panel& panel, double side) {
  const Heatmap& map = *panel.map;
  const double rows = static_cast<double>(map.values.rows), cols = static_cast<double>(map.values.cols);
  if (std::max(rows, cols) <= kMaxBoxes) {
    // Whole pixels, so that edges are sharp; wide enough for the values in them.
    const double smallest = map.decimals > 2 ? 46 : map.decimals > 0 ? 38 : 6;
    const double cell = std::clamp(std::floor(side / std::max(rows, cols)), smallest, 48.0);
    panel.width = cell * cols;
    panel.height = (map.square ? cell : std::min(cell, 30.0)) * rows;
    return;
  }
  const double longest = 640 / kSide * side;
  panel.width = cols > longest ? longest : std::round(longest / cols) * cols;
  panel.height = std::clamp(std::round(panel.width * rows / cols), 200.0, 420.0);
}

void check_sizes(const Heatmap& map) {
  const Matrix& m = map.values;
  HEED_CHECK(m.rows > 0 && m.cols > 0 && m.values.size() == static_cast<size_t>(m.rows * m.cols), ShapeError,
             "heatmap: ", m.values.size(), " values for ", m.rows, " rows and ", m.cols,
             " columns; expected at least one of each");
  const auto fits = [](const std::vector<std::string>& labels, int64_t count) {
    return labels.empty() || labels.size() == static_cast<size_t>(count);
  };
  HEED_CHECK(fits(map.row_labels, m.rows) && fits(map.column_labels, m.cols), ShapeError,
             "heatmap: ", map.row_labels.size(), " row and ", map.column_labels.size(), " column labels for ",
             m.rows, " rows and ", m.cols, " columns");
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

// The cells and all texts of a panel whose cells begin at the pixel left, top; its bar, if any, stands apart.
struct BarPlace {
  double left, top, height;
};

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

}  // namespace

namespace {

Heatmap drawable(const Heatmap& map) {
  check_sizes(map);
  if (map.values.rows * map.values.cols <= kMaxCells * kMaxCells) return map;
  const int64_t row_block = block_of(map.values.rows), column_block = block_of(map.values.cols);
  Heatmap result = map;
  result.values = reduced(map.values, row_block, column_block);
  // Without labels rows and columns are named by their numbers.
  const auto names = [](const std::vector<std::string>& labels, int64_t count, int64_t block) {
    if (!labels.empty() || block == 1) return reduced(labels, block);
    std::vector<std::string> numbers;
    for (int64_t i = 0; i < count; i += block) numbers.push_back(std::to_string(i));
    return numbers;
  };
  result.row_labels = names(map.row_labels, map.values.rows, row_block);
  result.column_labels = names(map.column_labels, map.values.cols, column_block);
  result.row_axis = reduced_axis(map.row_axis, row_block);
  result.column_axis = reduced_axis(map.column_axis, column_block);
  return result;
}

HeatmapGrid drawable(const HeatmapGrid& grid) {
  HeatmapGrid result{grid.title, grid.columns, {}, grid.shared_scale};
  const size_t count = std::min(grid.panels.size(), kMaxPanels);
  for (size_t i = 0; i < count; ++i) result.panels.push_back(drawable(grid.panels[i]));
  if (count < grid.panels.size())
    result.title += concat(result.title.empty() ? "" : ": ", "the first ", count, " of ", grid.panels.size());
  return result;
}

}  // namespace

std::pair<double, double> color_scale(const Heatmap& map) {
  if (map.range) return *map.range;
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const float value : map.values.values) {
    if (!std::isfinite(value)) continue;
    low = std::min(low, static_cast<double>(value));
    high = std::max(high, static_cast<double>(value));
  }
  if (low > high) return {0, 1};
  return low == high ? std::pair(low, low + 1) : std::pair(low, high);
}

Figure save_figure(const Heatmap& heatmap, const std::filesystem::path& stem) {
  HeatmapGrid grid;
  grid.columns = 1;
  grid.panels = {heatmap};
  return save_figure(grid, stem);
}

namespace {

// Where the panels of a grid stand. Those in a row share their height, those in a column their margins.
struct GridLayout {
  std::vector<Panel> panels;
  size_t columns;
  std::vector<double> lefts, widths, tops, heights;
  double heading, bar_room, width, height;  // of all panels, the heading above and the shared bar beside them

  double total_width() const { return std::max(width + bar_room, 200.0); }
};

void share_scale(const HeatmapGrid& grid, std::vector<Panel>& panels, size_t columns) {
  std::pair<double, double> scale = panels[0].scale;
  for (const Panel& panel : panels)
    scale = {std::min(scale.first, panel.scale.first), std::max(scale.second, panel.scale.second)};
  for (size_t i = 0; i < panels.size(); ++i) {
    panels[i].scale = grid.panels[0].range.value_or(scale);
    panels[i].row_side = i % columns == 0 || grid.panels[i].row_labels != grid.panels[i - 1].row_labels;
    panels[i].column_side = i + columns >= panels.size() ||
                            grid.panels[i].column_labels != grid.panels[i + columns].column_labels;
    panels[i].bar = false;
  }
}

GridLayout lay_out(const HeatmapGrid& grid, size_t columns, double side) {
  GridLayout at{};
  at.columns = columns;
  for (const Heatmap& map : grid.panels) at.panels.push_back(make_panel(map, side));
  if (grid.shared_scale) share_scale(grid, at.panels, columns);
  at.lefts.resize(columns), at.widths.resize(columns);
  at.tops.resize(ceil_divide(at.panels.size(), columns)), at.heights.resize(at.tops.size());
  for (size_t i = 0; i < at.panels.size(); ++i) {
    Panel& panel = at.panels[i];
    set_margins(panel);
    at.lefts[i % columns] = std::max(at.lefts[i % columns], panel.left);
    at.widths[i % columns] = std::max(at.widths[i % columns], panel.width + panel.right);
    at.tops[i / columns] = std::max(at.tops[i / columns], panel.top);
    at.heights[i / columns] = std::max(at.heights[i / columns], panel.height + panel.bottom);
  }
  at.heading = grid.title.empty() ? 0 : 42;
  at.height = at.heading;
  for (size_t c = 0; c < columns; ++c) at.width += at.lefts[c] + at.widths[c];
  for (size_t r = 0; r < at.tops.size(); ++r) at.height += at.tops[r] + at.heights[r];
  at.bar_room = grid.shared_scale ? kBarGap + kBarWidth + kBarTexts + kBarName + 4 : 0;
  return at;
}

// The largest maps that fit a page; where the smallest are too wide, fewer of them beside each other.
GridLayout fit_page(const HeatmapGrid& grid) {
  for (size_t columns = std::min(static_cast<size_t>(grid.columns), grid.panels.size());; --columns)
    for (double side = kSide; side >= kShortestSide; side -= 10) {
      GridLayout at = lay_out(grid, columns, side);
      if (at.total_width() <= kPageWidth || (columns == 1 && side < kShortestSide + 10)) return at;
    }
}

}  // namespace

Figure save_figure(const HeatmapGrid& whole, const std::filesystem::path& stem) {
  HEED_CHECK(!whole.panels.empty() && whole.columns > 0, ShapeError, "heatmap grid: ", whole.panels.size(),
             " panels in ", whole.columns, " columns; expected at least one of each");
  const HeatmapGrid grid = drawable(whole);
  const GridLayout at = fit_page(grid);
  const double all_width = at.total_width();
  GnuplotFigure figure(static_cast<int>(std::ceil(all_width)), static_cast<int>(std::ceil(at.height)));
  figure.add("set multiplot");
  if (!grid.title.empty()) {
    // A label belongs to a plot: this one draws nothing else.
    figure.add("unset key; unset border; unset tics; set xrange [0:1]; set yrange [0:1]; unset colorbox");
    figure.add_label(fit(grid.title, all_width - 16, kHeading), all_width / 2, 23, "center", kHeading);
    figure.add("plot NaN notitle");
  }
  double y = at.heading;
  for (size_t r = 0; r < at.tops.size(); ++r) {
    double x = 0;
    y += at.tops[r];
    for (size_t c = 0; c < at.columns && r * at.columns + c < at.panels.size(); ++c) {
      const Panel& panel = at.panels[r * at.columns + c];
      const double left = x + at.lefts[c];
      const BarPlace own{left + panel.width + kBarGap, y - panel.overhang, panel.height + 2 * panel.overhang};
      // The bar of all panels is drawn with the last one.
      const BarPlace shared{at.width, at.heading + at.tops[0],
                            at.height - at.heights.back() + panel.height - at.heading - at.tops[0]};
      const bool last = grid.shared_scale && &panel == &at.panels.back();
      add_panel(figure, panel, left, y, panel.bar ? &own : last ? &shared : nullptr);
      x += at.lefts[c] + at.widths[c];
    }
    y += at.heights[r];
  }
  figure.add("unset multiplot");
  return figure.save(stem);
}

}  // namespace heed::apps
