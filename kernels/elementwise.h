// Elementwise arithmetic, comparison, selection and copies over strided operands. Contract for both devices.
#pragma once

#include <cstdint>

#include <heed/core/base/dtype.h>
#include <heed/core/base/strided.h>

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
  logical_not,
  is_nan,
  is_finite
};

enum class BinaryOp : uint8_t {
  add,
  subtract,
  multiply,
  divide,
  power,
  maximum,
  minimum,
  logical_and,
  logical_or
};

enum class CompareOp : uint8_t { equal, not_equal, less, less_equal, greater, greater_equal };

/// y = convert(x), or y += convert(x) if accumulate. Every pair of dtypes. Floating to integer truncates
/// towards zero; to bool asks != 0.
template <class To, class From>
struct Copy {
  To* y;
  const From* x;
  Strided<2> index;
  bool accumulate;
};

template <class T>
struct Fill {  // y = value
  T* y;
  T value;
  Strided<1> index;
};

template <class T>
struct Unary {  // y = op(x); f32, bf16, f64 and, where it means something, the integers and bool
  UnaryOp op;
  T* y;
  const T* x;
  Strided<2> index;
};

template <class T>
struct Binary {  // y = op(a, b)
  BinaryOp op;
  T* y;
  const T* a;
  const T* b;
  Strided<3> index;
};

template <class T>
struct Compare {  // y = op(a, b)
  CompareOp op;
  bool* y;
  const T* a;
  const T* b;
  Strided<3> index;
};

template <class T>
struct Where {  // y = condition ? a : b
  T* y;
  const bool* condition;
  const T* a;
  const T* b;
  Strided<4> index;
};

}  // namespace heed::kernels

#define HEED_DECLARE(device)                      \
  namespace heed::device {                        \
  template <class To, class From>                 \
  void copy(const kernels::Copy<To, From>& args); \
  template <class T>                              \
  void fill(const kernels::Fill<T>& args);        \
  template <class T>                              \
  void unary(const kernels::Unary<T>& args);      \
  template <class T>                              \
  void binary(const kernels::Binary<T>& args);    \
  template <class T>                              \
  void compare(const kernels::Compare<T>& args);  \
  template <class T>                              \
  void where(const kernels::Where<T>& args);      \
  }
HEED_DECLARE(cpu)
HEED_DECLARE(cuda)
#undef HEED_DECLARE
