#include "apps/common/figures/terminal_heatmap.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include <heed/core/base/check.h>

#include "apps/common/figures/gnuplot.h"
#include "apps/common/text.h"

namespace heed::apps {

namespace {

constexpr int kLongestLabel = 12;

std::vector<std::string> labels_or_numbers(const std::vector<std::string>& labels, int64_t count,
                                           int longest) {
  std::vector<std::string> out;
  for (int64_t i = 0; i < count; ++i) {
    out.push_back(labels.empty() ? std::to_string(i) : shorten(labels[static_cast<size_t>(i)], longest));
  }
  return out;
}

// ".42", "1.00", "-.30"
std::string cell_text(double value) {
  if (!std::isfinite(value)) return std::isnan(value) ? "NaN" : value > 0 ? "+Inf" : "-Inf";
  std::string text = fmt::format("{:.2f}", value);
  if (text == "-0.00") text = "0.00";
  const size_t zero = text.find("0.");
  if (zero == 0 || (zero == 1 && text[0] == '-')) text.erase(zero, 1);
  return text;
}

std::string shade(double t, bool utf8) {
  static const char* const blocks[] = {"  ", "░░", "▒▒", "▓▓", "██"};
  static const char* const characters[] = {"  ", "..", "++", "%%", "@@"};
  if (std::isnan(t)) return "??";
  const int level = static_cast<int>(std::lround(std::clamp(t, 0.0, 1.0) * 4));
  return utf8 ? blocks[level] : characters[level];
}

}  // namespace

std::string terminal_heatmap(const Heatmap& heatmap, TerminalStyle style) {
  const Matrix& m = heatmap.values;
  HEED_CHECK(m.values.size() == static_cast<size_t>(m.rows * m.cols), ShapeError,
             "heatmap: ", m.values.size(), " values for ", m.rows, " rows and ", m.cols, " columns");
  const auto fits = [](const std::vector<std::string>& labels, int64_t count) {
    return labels.empty() || labels.size() == static_cast<size_t>(count);
  };
  HEED_CHECK(fits(heatmap.row_labels, m.rows) && fits(heatmap.column_labels, m.cols), ShapeError,
             "heatmap: ", heatmap.row_labels.size(), " row and ", heatmap.column_labels.size(),
             " column labels for ", m.rows, " rows and ", m.cols, " columns");
  const std::pair<double, double> scale = color_scale(heatmap);
  const double low = scale.first, high = scale.second;
  int cell = 4;
  for (const float value : m.values) cell = std::max(cell, text_columns(cell_text(value)));
  cell += style.color ? 2 : 3;  // a space on either side, or two columns of shade and a space
  const std::vector<std::string> rows = labels_or_numbers(heatmap.row_labels, m.rows, kLongestLabel);
  const std::vector<std::string> columns = labels_or_numbers(heatmap.column_labels, m.cols, cell - 1);
  int left = 0;
  for (const std::string& row : rows) left = std::max(left, text_columns(row));

  std::string out;
  if (!heatmap.title.empty()) out += printable(heatmap.title) + "\n";
  out += std::string(static_cast<size_t>(left) + 1, ' ');
  for (const std::string& column : columns) out += pad_left(column, cell - 1) + " ";
  out += "\n";
  for (int64_t r = 0; r < m.rows; ++r) {
    out += pad_left(rows[static_cast<size_t>(r)], left) + " ";
    for (int64_t c = 0; c < m.cols; ++c) {
      const double value = m.at(r, c), t = (value - low) / (high - low);
      const std::string text = cell_text(value);
      if (!style.color) {
        out += shade(t, style.utf8) + pad_left(text, cell - 3) + " ";
        continue;
      }
      const Color back = color_at(heatmap.colors, t), ink = text_color_on(back);
      out += fmt::format("\x1b[48;2;{};{};{}m\x1b[38;2;{};{};{}m{} \x1b[0m", back.red, back.green, back.blue,
                         ink.red, ink.green, ink.blue, pad_left(text, cell - 1));
    }
    out += "\n";
  }
  out += fmt::format("{} (rows) by {} (columns), {:.4g} to {:.4g}\n", printable(heatmap.row_axis),
                     printable(heatmap.column_axis), low, high);
  return out;
}

}  // namespace heed::apps
