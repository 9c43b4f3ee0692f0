// Element types of tensors, and the step from a run-time DType to a C++ type.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>
#include <type_traits>

#include <heed/core/base/bfloat16.h>
#include <heed/core/base/check.h>

namespace heed {

/// f64 exists on the CPU only, for exact gradient checks.
enum class DType : uint8_t { f32, bf16, f64, i64, i32, boolean };

/// Bytes of one element.
constexpr int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
    case DType::i64:
      return 8;
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::bf16:
      return 2;
    case DType::boolean:
      return 1;
  }
  return 0;
}

constexpr bool is_floating(DType dtype) {
  return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f64;
}

/// "f32", "bf16", "f64", "i64", "i32" or "bool".
const char* name(DType dtype);
void append_text(std::string& out, DType dtype);
std::ostream& operator<<(std::ostream& out, DType dtype);

/// The inverse of name(); ConfigError on anything else.
DType parse_dtype(std::string_view text);

template <class T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, float>)
    return DType::f32;
  else if constexpr (std::is_same_v<T, bfloat16>)
    return DType::bf16;
  else if constexpr (std::is_same_v<T, double>)
    return DType::f64;
  else if constexpr (std::is_same_v<T, int64_t>)
    return DType::i64;
  else if constexpr (std::is_same_v<T, int32_t>)
    return DType::i32;
  else {
    static_assert(std::is_same_v<T, bool>, "not an element type of heed");
    return DType::boolean;
  }
}

/// The type in which elements of T are computed: bf16 in float, the others in their own.
template <class T>
using math_t = std::conditional_t<std::is_same_v<T, bfloat16>, float, T>;

/// The type in which sums and statistics over T are kept.
template <class T>
using accumulator_t = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// Calls f.operator()<T>() with T = float, bfloat16 or double; DTypeError naming `operation` otherwise.
template <class F>
decltype(auto) visit_floating(DType dtype, const char* operation, F&& f) {
  switch (dtype) {
    case DType::f32:
      return f.template operator()<float>();
    case DType::bf16:
      return f.template operator()<bfloat16>();
    case DType::f64:
      return f.template operator()<double>();
    default:
      throw DTypeError(
          concat(operation, ": needs a floating-point tensor (f32, bf16 or f64), got ", name(dtype)));
  }
}

/// Calls f.operator()<T>() with the C++ type of `dtype`.
template <class F>
decltype(auto) visit_dtype(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f32:
      return f.template operator()<float>();
    case DType::bf16:
      return f.template operator()<bfloat16>();
    case DType::f64:
      return f.template operator()<double>();
    case DType::i64:
      return f.template operator()<int64_t>();
    case DType::i32:
      return f.template operator()<int32_t>();
    case DType::boolean:
      return f.template operator()<bool>();
  }
  throw InternalError("visit_dtype: corrupt dtype");
}

}  // namespace heed
