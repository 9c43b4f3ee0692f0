// The second half of a sum over rows: blocks leave one partial sum per column each, which are added in fixed
// order, where they are few by the last of these blocks, else by a launch of their own.
#pragma once

#include <cstdint>

#include <heed/kernels/simt/simt.h>

namespace heed::cuda {

struct PartialSums {
  const float* partials;  // [count, cols]
  float* out;             // [cols]; null: skipped
  bool accumulate;        // add to what `out` holds

  /// The sum of a column's partials number first, first + step, ….
  __device__ __forceinline__ float add_up(int64_t first, int64_t step, int64_t count, int64_t cols,
                                          int64_t col) const {
    float sum = 0.0f;
#pragma unroll 8
    for (int64_t p = first; p < count; p += step) sum += partials[p * cols + col];
    return sum;
  }

  __device__ __forceinline__ void put(int64_t col, float sum) const {
    out[col] = accumulate ? out[col] + sum : sum;
  }
};

struct ColumnSums {
  PartialSums of[2];
  int64_t count, cols;
};

/// out (+)= the sum over the first axis of partials, for both. Rounds the same way in every run.
void add_partials(const char* what, const ColumnSums& sums);

/// The same in a kernel, by all threads of the one block that calls it: a column a thread.
__device__ __forceinline__ void add_partials_in_block(const ColumnSums& sums) {
  const int64_t cols = sums.cols;
#pragma unroll 1
  for (int64_t i = threadIdx.x; i < 2 * cols; i += blockDim.x) {
    const PartialSums one = i < cols ? sums.of[0] : sums.of[1];
    const int64_t col = i < cols ? i : i - cols;
    if (one.out != nullptr) one.put(col, one.add_up(0, 1, sums.count, cols, col));
  }
}

}  // namespace heed::cuda
