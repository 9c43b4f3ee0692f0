// Blocks of floats and bf16 that are reduced by the vector. Private to kernels/cpu: not installed.
#pragma once

#include <cstdint>
#include <type_traits>

#include <heed/core/base/dtype.h>
#include <heed/kernels/reduce.h>

namespace heed::cpu {

/// Whether blocks of T are reduced by the vector.
template <class T>
inline constexpr bool kReducesRows = std::is_same_v<T, float> || std::is_same_v<T, bfloat16>;

/// What reduces blocks of T, float or bfloat16, to A: double for sums, float for extrema. An instruction set
/// changes the bits of no sum but that of exponentials.
template <class T, class A>
struct ReduceRows {
  /// Of `n` elements that lie side by side, with one centre.
  A (*row)(const T* x, int64_t n, float centre);
  /// Joins `rows` rows to the results of `columns` columns; row i begins at x + i * step.
  void (*columns)(A* results, const T* x, int64_t rows, int64_t step, int64_t columns, const float* centres);
};

/// For this machine.
template <class T, class A>
ReduceRows<T, A> reduce_rows(kernels::ReduceOp op);

/// What sums `n` whole numbers that lie side by side, wrapping, or finds their maximum or minimum; for this
/// machine. Of none it gives what changes no other result.
using ReduceIntegers = int64_t (*)(const int64_t* x, int64_t n);
ReduceIntegers reduce_integers(kernels::ReduceOp op);

}  // namespace heed::cpu
