// Figures as SVG and PNG, drawn by gnuplot: heatmaps, grids of them, line plots and bar charts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/common/figures/colormap.h"

namespace heed::apps {

/// Numbers in rows, row-major.
struct Matrix {
  int64_t rows = 0, cols = 0;
  std::vector<float> values;

  float at(int64_t row, int64_t col) const { return values[static_cast<size_t>(row * cols + col)]; }
};

/// A matrix as coloured cells, row 0 on top. Labels are any text: nothing in them is interpreted, control
/// characters are shown as \n or \xNN, and long ones are shortened. NaN cells are grey.
struct Heatmap {
  std::string title;
  Matrix values;
  std::vector<std::string> row_labels,
      column_labels;  ///< a text for each row and column; empty: their numbers
  std::string row_axis = "Query", column_axis = "Key";
  std::string color_label = "Attention weight";
  ColorMap colors = ColorMap::blues;
  std::optional<std::pair<double, double>>
      range;  ///< ends of the colour scale; by default those of the values
  bool zeros_are_hidden =
      false;           ///< cells of exactly 0 are what a mask hides: blank, as NaN cells, without a value
  int decimals = 0;    ///< 2 or 3 writes each value into its cell
  bool square = true;  ///< cells as high as wide, unless there are more than 64 in a row; else low, and wide
                       ///< where they are few
};

/// Figures do not grow with what they show: a heatmap of more cells than the square of this is reduced to so
/// many rows and columns at most, and a grid shows so many panels.
inline constexpr int64_t kMaxCells = 192;
inline constexpr size_t kMaxPanels = 64;

/// How many of `count` rows or columns become one, so that at most kMaxCells are left.
int64_t block_of(int64_t count);
/// Of each block of so many rows and columns the value furthest from 0; NaN where there is no other.
Matrix reduced(const Matrix& values, int64_t row_block, int64_t column_block);
/// The names of the blocks: of each the first.
std::vector<std::string> reduced(const std::vector<std::string>& names, int64_t block);
/// An axis's name, saying how many are in a cell.
std::string reduced_axis(const std::string& name, int64_t block);

/// The heatmap's range, else the ends of its finite values, never equal.
std::pair<double, double> color_scale(const Heatmap& heatmap);

/// Heatmaps beside and below each other: at most `columns` in a row, fewer and smaller where a page would
/// have no room.
struct HeatmapGrid {
  std::string title;
  int columns = 3;
  std::vector<Heatmap> panels;
  bool shared_scale = false;  ///< one colour scale and one bar (the first panel's); axes named at the edges
                              ///< and where labels differ
};

/// One line of a LinePlot; a NaN interrupts it.
struct Line {
  std::string name;  ///< in the legend; "" stays out of it
  std::vector<double> x, y;
  std::vector<double> deviation = {};  ///< error bars, up and down from y; empty or NaN: none
};

struct LinePlot {
  std::string title, x_axis, y_axis;
  std::vector<Line> lines;
  bool log_x = false, log_y = false;  ///< a log axis leaves out what is not positive
};

/// Named horizontal bars, the first on top, each with its value beside it.
struct BarChart {
  std::string title, value_axis;
  std::vector<std::string> names;
  std::vector<double> values;
  bool log_scale = false;
  std::vector<double> deviations = {};  ///< error bars; empty or NaN: none
};

/// What has been written.
struct Figure {
  bool drawn = false;
  std::vector<std::filesystem::path> files;  ///< STEM.svg and STEM.png, or STEM.gp and STEM.dat if not drawn
  std::string message;                       ///< why it is not drawn and what to do
};

/// Each writes stem.svg and stem.png, making the folder if need be. The axes of a heatmap
/// that is reduced say so, as does the title of a grid of which the first kMaxPanels panels are shown; a
/// line keeps the highest and the lowest of points that no eye could part. Where gnuplot is missing or fails,
/// the data (stem.dat) and the script (stem.gp) stay instead, and the message says so. ShapeError where sizes
/// do not fit, IoError where files cannot be written.
Figure save_figure(const Heatmap& heatmap, const std::filesystem::path& stem);
Figure save_figure(const HeatmapGrid& grid, const std::filesystem::path& stem);
Figure save_figure(const LinePlot& plot, const std::filesystem::path& stem);
Figure save_figure(const BarChart& chart, const std::filesystem::path& stem);

}  // namespace heed::apps
