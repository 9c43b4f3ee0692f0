// Cells of text in aligned columns.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

namespace heed::nn {

/// One line for each row, without a newline at the end; the first `left` columns stand to the left, the
/// others to the right.
inline std::string aligned(const std::vector<std::vector<std::string>>& rows, size_t left) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  std::string text;
  for (const auto& row : rows) {
    for (size_t c = 0; c < row.size(); ++c) {
      const std::string space(widths[c] - row[c].size(), ' ');
      text += (c ? "  " : "") + (c < left ? row[c] + space : space + row[c]);
    }
    text += '\n';
  }
  if (!text.empty()) text.pop_back();
  return text;
}

}  // namespace heed::nn
