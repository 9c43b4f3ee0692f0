#include "apps/common/figures/presentation.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "apps/common/console.h"
#include "apps/common/figures/terminal_heatmap.h"
#include "apps/common/program.h"
#include "apps/common/text.h"

namespace heed::apps {
namespace {

std::string cell_text(const Json& cell, const Table::Column& column) {
  if (cell.is_string()) return cell.get<std::string>();
  if (cell.is_number_integer()) return grouped(cell.get<int64_t>());
  if (cell.is_null()) return "";
  const double value = cell.get<double>();
  if (std::abs(value) < column.negligible) return "~0";
  const std::string text = fmt::format(fmt::runtime(column.format), value);
  const bool rounded_to_zero = text.find_first_of("123456789ain") == std::string::npos;  // nor nan or inf
  return rounded_to_zero && text[0] == '-' ? text.substr(1) : text;
}

std::vector<std::vector<double>> to_rows(const Tensor& x) {
  const std::vector<double> values = x.detach().to(kCpu).to(DType::f64).contiguous().to_vector<double>();
  std::vector<std::vector<double>> rows(static_cast<size_t>(x.size(0)));
  const auto columns = static_cast<size_t>(x.size(1));
  for (size_t r = 0; r < rows.size(); ++r)
    rows[r].assign(values.begin() + static_cast<std::ptrdiff_t>(r * columns),
                   values.begin() + static_cast<std::ptrdiff_t>((r + 1) * columns));
  return rows;
}

}  // namespace

Matrix to_matrix(const Tensor& x) {
  HEED_CHECK(x.rank() == 2, ShapeError, "a figure shows a matrix; got shape ", x.shape());
  return {x.size(0), x.size(1), x.detach().to(kCpu).to(DType::f32).contiguous().to_vector<float>()};
}

std::string to_text(const Table& table) {
  const size_t columns = table.columns.size();
  std::vector<std::vector<std::string>> cells(1);
  std::vector<int> widths;
  for (const Table::Column& column : table.columns) {
    cells[0].push_back(printable(column.name));
    widths.push_back(text_columns(cells[0].back()));
  }
  std::vector<bool> texts(columns, true);  // a column of texts stands to the left
  for (const auto& row : table.rows) {
    HEED_CHECK(row.size() == columns, ShapeError, "table: ", row.size(), " cells in a row of ", columns);
    cells.emplace_back();
    for (size_t c = 0; c < columns; ++c) {
      cells.back().push_back(printable(cell_text(row[c], table.columns[c])));
      widths[c] = std::max(widths[c], text_columns(cells.back().back()));
      if (!row[c].is_string() && !row[c].is_null()) texts[c] = false;
    }
  }
  std::string out;
  for (const auto& row : cells) {
    std::string line;
    for (size_t c = 0; c < columns; ++c)
      line += (c ? "  " : "") + (texts[c] ? pad_right(row[c], widths[c]) : pad_left(row[c], widths[c]));
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

std::string difference_text(double difference) {
  constexpr double kRounding = 1e-12;
  return std::abs(difference) < kRounding ? "below 1e-12" : fmt::format("{:.3g}", difference);
}

void Presentation::heading(std::string_view text) {
  throw_if_stopped();
  if (!json_) write_out(fmt::format("\n{}\n", printable(text)));
}

void Presentation::line(std::string_view text) {
  if (json_) return;
  std::string out;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    out += printable(text.substr(at, end - at)) + "\n";
    at = end + 1;
  }
  write_out(out);
}

void Presentation::value(const std::string& key, Json value) { values_[key] = std::move(value); }

void Presentation::table(const std::string& key, const Table& table) {
  if (!json_) write_out(to_text(table));
  Json rows = Json::array();
  for (const auto& row : table.rows) {
    Json object = Json::object();
    for (size_t c = 0; c < table.columns.size(); ++c) object[table.columns[c].name] = row.at(c);
    rows.push_back(std::move(object));
  }
  values_[key] = std::move(rows);
}

void Presentation::matrix(const std::string& key, std::string_view title, const Tensor& x,
                          const std::vector<std::string>& rows, const std::vector<std::string>& columns) {
  HEED_CHECK(x.rank() == 2 && rows.size() == static_cast<size_t>(x.size(0)), ShapeError,
             "matrix: ", rows.size(), " names of rows for shape ", x.shape());
  const std::vector<std::vector<double>> values = to_rows(x);
  values_[key] = values;
  if (json_) return;
  Table table{{{""}}, {}};
  for (int64_t c = 0; c < x.size(1); ++c)
    table.columns.push_back({columns.empty() ? "" : columns.at(static_cast<size_t>(c))});
  for (size_t r = 0; r < rows.size(); ++r) {
    table.rows.push_back({"  " + rows[r]});
    for (const double value : values[r]) table.rows.back().push_back(value);
  }
  std::string text = to_text(table);
  if (columns.empty()) text.erase(0, text.find('\n') + 1);
  write_out(fmt::format("{} {}\n{}", title, concat(x.shape()), text));
}

void Presentation::map(const Heatmap& heatmap) {
  if (!json_) write_out(terminal_heatmap(heatmap, {.color = has_colors(stdout), .utf8 = has_utf8()}));
}

void Presentation::finish() {
  Json files = Json::array();
  std::string text;
  for (const Figure& figure : figures_) {
    if (!figure.drawn) text += "  " + figure.message + "\n";
    for (const auto& file : figure.files) {
      files.push_back(file.string());
      text += "  " + printable(file.string()) + "\n";
    }
  }
  values_["files"] = files;
  if (json_)
    JsonLines().write(values_);
  else if (!text.empty())
    write_out("\n" + text);
}

}  // namespace heed::apps
