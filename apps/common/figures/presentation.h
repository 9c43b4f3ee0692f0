// What a command shows: text and figures for people, or one JSON object.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <heed/core/tensor.h>

#include "apps/common/figures/plot.h"
#include "apps/common/json_lines.h"
#include "apps/common/program.h"

namespace heed::apps {

/// A matrix for a figure, in f32. ShapeError unless it has two axes.
Matrix to_matrix(const Tensor& x);

/// Rows under named columns.
struct Table {
  struct Column {
    std::string name;
    std::string format = "{:.4f}";  ///< fmt's, for numbers that are not integers
    double negligible = 0;          ///< numbers smaller than this are shown as ~0
  };
  std::vector<Column> columns;
  std::vector<std::vector<Json>> rows;
};

/// The table in aligned columns, texts to the left, numbers to the right, integers as "1,396,244".
std::string to_text(const Table& table);

/// "below 1e-12", or three digits: a difference that is rounding alone should not look like a result.
std::string difference_text(double difference);

/// Collects what a command has to show. Text goes to standard output at once, unless JSON is wanted: then all
/// values are printed as one object by finish().
class Presentation {
 public:
  /// Without a folder no figures are drawn.
  Presentation(bool json, std::filesystem::path folder) : json_(json), folder_(std::move(folder)) {}

  /// For people: a heading, one or more lines. Control characters are shown as \xNN. What a command does
  /// between headings and figures is what a signal may have to wait for: both throw Stopped after one.
  void heading(std::string_view text);
  void line(std::string_view text);
  /// For JSON.
  void value(const std::string& key, Json value);
  /// For both.
  void table(const std::string& key, const Table& table);
  /// A matrix (two axes) with a name for each row, and for each column unless they are empty.
  void matrix(const std::string& key, std::string_view title, const Tensor& x,
              const std::vector<std::string>& rows, const std::vector<std::string>& columns = {});

  /// The heatmap as text, for people.
  void map(const Heatmap& heatmap);

  /// Writes the figure as FOLDER/name.svg and .png.
  template <class Plot>
  void figure(const Plot& plot, const std::string& name) {
    throw_if_stopped();
    if (!folder_.empty()) figures_.push_back(save_figure(plot, folder_ / name));
  }

  /// Lists the figures; prints the JSON object.
  void finish();

 private:
  bool json_;
  std::filesystem::path folder_;
  std::vector<Figure> figures_;
  Json values_ = Json::object();
};

}  // namespace heed::apps
