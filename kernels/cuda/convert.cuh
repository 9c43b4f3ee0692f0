// Conversion between element types on the device, as the CPU does it.
#pragma once

#include <limits>

#include <heed/kernels/cuda/vector.cuh>

namespace heed::cuda {

template <class T>
inline constexpr bool kIsFloating = std::is_floating_point_v<T> || std::is_same_v<T, bfloat16>;

template <class T>
inline constexpr T kMin = std::numeric_limits<T>::min();
template <class T>
inline constexpr T kMax = std::numeric_limits<T>::max();

/// From a type of computation to any element's: floating to integer truncates, clamps, and makes 0 of NaN.
template <class To, class From>
__device__ __forceinline__ To convert(From x) {
  if constexpr (std::is_same_v<To, From>) {
    return x;
  } else if constexpr (std::is_same_v<To, bool>) {
    return x != From(0);
  } else if constexpr (std::is_integral_v<To> && std::is_floating_point_v<From>) {
    constexpr From kEnd = -static_cast<From>(kMin<To>);  // 2^31 or 2^63: exact
    if (!(x > -kEnd)) return x == x ? kMin<To> : To(0);
    return x < kEnd ? static_cast<To>(x) : kMax<To>;
  } else if constexpr (std::is_same_v<To, bfloat16>) {
    return bfloat16(static_cast<float>(x));
  } else {
    return static_cast<To>(x);
  }
}

/// Integer arithmetic wraps.
template <class T, class F>
__device__ __forceinline__ T wrapping(T a, T b, F f) {
  using U = std::make_unsigned_t<T>;
  return static_cast<T>(f(static_cast<U>(a), static_cast<U>(b)));
}

}  // namespace heed::cuda
