// Rows that are added up by the number of the row they go to, always in the same order.
#pragma once

#include <cstdint>

#include <heed/core/base/bfloat16.h>
#include <heed/core/base/philox.h>

namespace heed::cuda {

/// Which target a row goes to: ids[row], or none if that is `skip` or outside [0, targets), or if gate[row]
/// is negative where a gate is given.
struct RowTargets {
  const int64_t* ids;
  const int64_t* gate;
  int64_t skip, rows, targets;
};

/// sorted, order: [rows] the targets in ascending order, `targets` standing for none, and the rows they
/// belong to; those of one target in ascending order.
void sort_rows(const char* what, const RowTargets& args, int32_t* sorted, int32_t* order);

/// to[target] (+)= scale * Σ dropout(from[row]) over the rows of each target, in ascending order; without
/// accumulate a target that has none gets zeros.
template <class T>
struct RowSums {
  RowTargets rows;
  const T* from;  // [rows, cols]
  float* to;      // [targets, cols]
  int64_t cols;
  Dropout dropout;  // of element row * cols + column
  float scale;
  bool accumulate;
};

template <class T>
void sum_rows(const char* what, const RowSums<T>& args);

}  // namespace heed::cuda
