// Rows that are chosen, mirrored, converted or filled, by the vector. Private to kernels/cpu: not installed.
#pragma once

#include <cstdint>

#include <heed/core/base/dtype.h>

namespace heed::cpu {

/// y = condition ? a : b for `n` elements that lie side by side, bit for bit; the steps are 1, or 0 for the
/// same element in each place.
template <class T>
struct WhereRow {
  int64_t n;
  T* y;
  const bool* condition;
  const T *a, *b;
  int64_t step_a, step_b;
};
template <class T>
void where_row(const WhereRow<T>& row);

/// y = x from the last to the first; y is not x.
template <class T>
void reverse_row(int64_t n, T* y, const T* x);

/// y = x, rounded where To is bfloat16: from float, bfloat16 and bool to the first two.
template <class To, class From>
void convert_row(int64_t n, To* y, const From* x);

/// As many whole numbers from the first on, whole vectors of them, as are less than 2^31 in size; returns how
/// many. From float and bfloat16.
template <class From>
int64_t convert_small(int64_t n, int64_t* y, const From* x);

/// y = x by non-temporal stores, to be followed by hwy::FlushStream(); by plain ones for less than a line at
/// both ends. Prefetches x `ahead` bytes on unless that is 0.
void stream_row(int64_t bytes, void* y, const void* x, int64_t ahead = 0);

/// y = value, for every element type.
template <class T>
void fill_row(int64_t n, T* y, T value);

}  // namespace heed::cpu
