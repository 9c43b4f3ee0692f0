// One heatmap of a figure: its cells, and the texts and the bar around them.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "apps/common/figures/gnuplot.h"

namespace heed::apps {

/// The texts along one axis: at which cells, and whether they stand slanted.
struct Ticks {
  std::vector<std::pair<int64_t, std::string>> texts;
  double widest = 0;
  bool slanted = false;
};

/// A panel with all its measures in pixels, its own top left corner being 0, 0.
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

constexpr double kSide = 340;  // the longer side of a map of few cells, where a page has room for it
constexpr double kBarGap = 14, kBarWidth = 14, kBarTexts = 44, kBarName = 24;

/// The text, shortened if it is wider than the pixels.
std::string fit(const std::string& text, double width, double size);

/// Without margins. `side`: how long the longer side of a map of few cells is to be.
Panel make_panel(const Heatmap& map, double side);
/// Of the texts on the sides that carry some.
void set_margins(Panel& panel);

struct BarPlace {
  double left, top, height;
};

/// The cells and all texts of a panel whose cells begin at the pixel left, top; its bar, if any, stands
/// apart.
void add_panel(GnuplotFigure& figure, const Panel& panel, double left, double top, const BarPlace* bar);

}  // namespace heed::apps
