// Rows of floats and bf16 that are chosen, mirrored or converted, by the vector. Private to kernels/cpu: not
// installed.
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

}  // namespace heed::cpu
