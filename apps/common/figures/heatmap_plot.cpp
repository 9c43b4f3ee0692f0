// Heatmaps and grids of them.
#include <algorithm>
#include <cmath>
#include <limits>

#include <heed/core/base/check.h>
#include <heed/core/base/int_math.h>

#include "apps/common/figures/heatmap_panel.h"

namespace heed::apps {
namespace {

constexpr double kHeading = GnuplotFigure::kHeading;
constexpr double kShortestSide = 150;
// A page shows a wider figure smaller, and its texts too small to read.
constexpr double kPageWidth = 880;

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
