// Large maps made small enough to draw.
#include <algorithm>
#include <cmath>

#include <heed/core/base/check.h>
#include <heed/core/base/int_math.h>
#include <heed/core/base/text.h>

#include "apps/common/figures/plot.h"

namespace heed::apps {

int64_t block_of(int64_t count) { return std::max<int64_t>(ceil_divide(count, kMaxCells), 1); }

Matrix reduced(const Matrix& m, int64_t row_block, int64_t column_block) {
  if (row_block == 1 && column_block == 1) return m;
  Matrix result{ceil_divide(m.rows, row_block), ceil_divide(m.cols, column_block), {}};
  result.values.assign(static_cast<size_t>(result.rows * result.cols), std::nanf(""));
  for (int64_t r = 0; r < m.rows; ++r) {
    float* const cells = result.values.data() + r / row_block * result.cols;
    for (int64_t c = 0; c < m.cols; ++c) {
      float& cell = cells[c / column_block];
      if (!(std::abs(m.at(r, c)) <= std::abs(cell)) && !std::isnan(m.at(r, c))) cell = m.at(r, c);
    }
  }
  return result;
}

std::vector<std::string> reduced(const std::vector<std::string>& names, int64_t block) {
  std::vector<std::string> result;
  for (size_t i = 0; i < names.size(); i += static_cast<size_t>(block)) result.push_back(names[i]);
  return result;
}

std::string reduced_axis(const std::string& name, int64_t block) {
  return block == 1 ? name : concat(name, " (", grouped(block), " in a cell: the largest)");
}

}  // namespace heed::apps
