// How row-wise and elementwise passes are cut into tasks: by their shape alone, so that results cannot depend
// on the number of threads.
#pragma once

#include <algorithm>
#include <cstdint>

namespace heed::cpu {

/// Elements of a task of a pass over `count`: small enough for load balance, large enough to amortise the
/// cold TLB and prefetcher at a task's start.
inline int64_t elements_per_task(int64_t count) {
  return std::clamp<int64_t>(count / 64 / 1024 * 1024, 4096, 65536);
}

/// Rows of a task of a pass over [rows, cols].
inline int64_t rows_per_task(int64_t rows, int64_t cols) {
  return std::max<int64_t>(1, elements_per_task(rows * cols) / std::max<int64_t>(1, cols));
}

/// Rows of a task that sums its columns, whose sums others add: few sums, since they go from core to core,
/// and an even number of them.
inline int64_t rows_per_partial_sum(int64_t rows) {
  constexpr int64_t kRows = 64;
  const int64_t pairs = std::clamp<int64_t>((rows + 2 * kRows - 1) / (2 * kRows), 1, 32);
  return std::max<int64_t>(1, (rows + 2 * pairs - 1) / (2 * pairs));
}

}  // namespace heed::cpu
