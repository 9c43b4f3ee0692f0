// How row-wise and elementwise passes are cut into tasks: by their shape alone, so that results cannot depend
// on the number of threads.
#pragma once

#include <algorithm>
#include <cstdint>

namespace heed::cpu {

/// Elements of a task of a pass over `count`: few enough that the threads end together, yet many in a large
/// pass, since a task begins on pages that nothing has asked for.
inline int64_t elements_per_task(int64_t count) {
  return std::clamp<int64_t>(count / 64 / 1024 * 1024, 4096, 65536);
}

/// Rows of a task of a pass over [rows, cols].
inline int64_t rows_per_task(int64_t rows, int64_t cols) {
  return std::max<int64_t>(1, elements_per_task(rows * cols) / std::max<int64_t>(1, cols));
}

}  // namespace heed::cpu
