// Elementwise arithmetic, comparison, selection and copies over strided operands. Contract for both devices.
#pragma once

#include <cstdint>

#include <heed/core/base/cost.h>
#include <heed/core/base/dtype.h>
#include <heed/core/base/strided.h>
#include <heed/kernels/declare.h>

namespace heed::kernels {

enum class UnaryOp : uint8_t {
  negative,
  absolute,
  sign,
  exponential,
  logarithm,
  square_root,
  reciprocal_square_root,
  reciprocal,
  sine,
  cosine,
  hyperbolic_tangent,
  sigmoid,
  error_function,
  square,
  floor,
  ceil,
  round,
  log1p,     // log(1 + x)
  expm1,     // e^x - 1
  softplus,  // log(1 + e^x)
  logical_not
};

enum class PredicateOp : uint8_t { is_nan, is_finite };

enum class BinaryOp : uint8_t {
  add,
  subtract,
  multiply,
  divide,
  power,
  maximum,
  minimum,
  remainder,         // division.h; integers too
  floor_divide,      // likewise
  leaky_relu,        // a > 0 ? a : b a
  leaky_relu_slope,  // a > 0 ? 1 : b
  elu,               // a > 0 ? a : b (e^a - 1)
  elu_slope,         // a > 0 ? 1 : b e^a
  logical_and,
  logical_or
};

enum class CompareOp : uint8_t { equal, not_equal, less, less_equal, greater, greater_equal };

// In every kernel here y may be exactly one of the inputs, element for element, but must not overlap one
// otherwise. NaN comes out wherever one goes in, also of maximum, minimum and clamp.

/// y = convert(x), or y += convert(x) if accumulate (or, for bool). Every pair of dtypes. Floating to integer
/// truncates towards zero, clamps to the range, and makes 0 of NaN; to bool asks != 0.
template <class To, class From>
struct Copy {
  To* y;
  const From* x;
  Strided<2> index;
  bool accumulate;

  Cost cost() const {
    return bytes_moved<To>((accumulate ? 2 : 1) * index.count()) + bytes_moved<From>(index.count_of(1));
  }
};

template <class T>
struct Fill {  // y = value
  T* y;
  T value;
  Strided<1> index;

  Cost cost() const { return bytes_moved<T>(index.count()); }
};

template <class T>
struct Unary {  // y = op(x); integers: negative, absolute, sign, square; bool: logical_not
  UnaryOp op;
  T* y;
  const T* x;
  Strided<2> index;

  Cost cost() const { return bytes_moved<T>(index.count() + index.count_of(1)); }
};

template <class T>
struct Predicate {  // y = op(x); f32, bf16, f64
  PredicateOp op;
  bool* y;
  const T* x;
  Strided<2> index;

  Cost cost() const { return bytes_moved<bool>(index.count()) + bytes_moved<T>(index.count_of(1)); }
};

template <class T>
struct Binary {  // y = op(a, b); divide, power, leaky_relu, elu and their slopes: f32, bf16, f64;
                 // logical_and, logical_or: bool and only they
  BinaryOp op;
  T* y;
  const T* a;  // null: `scalar` in each place
  const T* b;  // likewise
  T scalar;
  Strided<3> index;

  Cost cost() const {
    return bytes_moved<T>(index.count() + (a ? index.count_of(1) : 0) + (b ? index.count_of(2) : 0));
  }
};

template <class T>
struct Compare {  // y = op(a, b)
  CompareOp op;
  bool* y;
  const T* a;
  const T* b;
  Strided<3> index;

  Cost cost() const {
    return bytes_moved<bool>(index.count()) + bytes_moved<T>(index.count_of(1) + index.count_of(2));
  }
};

template <class T>
struct Clamp {  // y = low where x < low, high where x > high, else x
  T* y;
  const T* x;
  T low, high;  // low <= high
  Strided<2> index;

  Cost cost() const { return bytes_moved<T>(index.count() + index.count_of(1)); }
};

template <class T>
struct Where {  // y = condition ? a : b
  T* y;
  const bool* condition;
  const T* a;
  const T* b;
  Strided<4> index;

  Cost cost() const {
    return bytes_moved<T>(index.count() + index.count_of(2) + index.count_of(3)) +
           bytes_moved<bool>(index.count_of(1));
  }
};

}  // namespace heed::kernels

HEED_KERNEL_2(copy, Copy);
HEED_KERNEL(fill, Fill);
HEED_KERNEL(unary, Unary);
HEED_KERNEL(predicate, Predicate);
HEED_KERNEL(binary, Binary);
HEED_KERNEL(compare, Compare);
HEED_KERNEL(clamp, Clamp);
HEED_KERNEL(where, Where);
