// Elementwise functions of rows of floats and bf16, by the vector. Private to kernels/cpu: not installed.
#pragma once

#include <cstdint>

#include <heed/core/base/dtype.h>
#include <heed/kernels/elementwise.h>

namespace heed::cpu {

/// y = op(x) for `n` elements that lie side by side; y may be x. T is float or bfloat16.
template <class T, class Y = T>
struct UnaryRow {
  int64_t n;
  Y* y;
  const T* x;
};

/// y = op(a, b), likewise; the steps are 1, or 0 for the same element in each place.
template <class T>
struct BinaryRow {
  int64_t n;
  T* y;
  const T *a, *b;
  int64_t step_a, step_b;
};

/// What computes them, null for an operation that is not among them; for this machine.
template <class T>
void (*unary_row(kernels::UnaryOp op))(const UnaryRow<T>& row);
template <class T>
void (*binary_row(kernels::BinaryOp op))(const BinaryRow<T>& row);

template <class T>
void clamp_row(const UnaryRow<T>& row, float low, float high);

}  // namespace heed::cpu
