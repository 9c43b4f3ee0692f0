// Reductions over some axes of a strided tensor, and scans along one. Contract for both devices.
#pragma once

#include <cstdint>
#include <type_traits>

#include <heed/core/base/cost.h>
#include <heed/core/base/dtype.h>
#include <heed/core/base/strided.h>
#include <heed/kernels/declare.h>

namespace heed::kernels {

/// Results: f32 for f32 and bf16, f64 for f64, i64 for integers and bool.
template <class T>
using reduced_t = std::conditional_t<std::is_integral_v<T>, int64_t, accumulator_t<T>>;

enum class ReduceOp : uint8_t {
  sum,              // of nothing: 0
  norm,             // √Σ x²; floating types
  sum_squared_gap,  // Σ (x - centre)²; floating types
  sum_exponential,  // Σ exp(x - centre); floating types
  maximum,          // of nothing: the least value. NaN if there is one. Of bool: whether any is true
  minimum           // of nothing: the greatest. Of bool: whether all are true
};

/// y = scale * Σ f(x), or an extremum, over all of `reduced` for each place of `kept`. Sums are kept in
/// double (64-bit wrapping integers) and added up in blocks whose cut depends on the shape alone: the error
/// is at most 4 epsilon log2(n) of the sum of magnitudes, and results are the same on any number of threads.
template <class T>
struct Reduce {
  ReduceOp op;
  reduced_t<T>* y;
  const T* x;
  const reduced_t<T>* centre;  // in y's layout; null where op has none
  double scale;                // of floating sums, before the root of norm; otherwise 1
  Strided<2> kept;             // y, x
  Strided<1> reduced;          // x

  Cost cost() const {
    return bytes_moved<T>(kept.count() * reduced.count()) + bytes_moved<reduced_t<T>>(kept.count());
  }
};

/// y = position of the largest (smallest) of `n` elements of x along an axis, for each line: the first of
/// equals, the first NaN if there is one. n >= 1.
template <class T>
struct ArgReduce {
  bool largest;
  int64_t* y;
  const T* x;
  Strided<2> lines;  // y, x
  int64_t n, stride;

  Cost cost() const { return bytes_moved<T>(lines.count() * n) + bytes_moved<int64_t>(lines.count()); }
};

/// y[i] = Σ x[j] over j <= i, or over j >= i if `reverse`, along an axis, for each line; added to y if
/// accumulate. Summed in double (64-bit wrapping integers), in order.
template <class T>
struct CumSum {
  T* y;
  const T* x;
  Strided<2> lines;  // y, x
  int64_t n, stride_y, stride_x;
  bool reverse;
  bool accumulate;

  Cost cost() const { return bytes_moved<T>((accumulate ? 3 : 2) * lines.count() * n); }
};

}  // namespace heed::kernels

HEED_KERNEL(reduce, Reduce);
HEED_KERNEL(arg_reduce, ArgReduce);
HEED_KERNEL(cumsum, CumSum);
