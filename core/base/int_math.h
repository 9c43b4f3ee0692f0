// Division that rounds up. Private to heed: not installed.
#pragma once

#include <concepts>
#include <type_traits>

namespace heed {

/// a / b, rounded up; a >= 0, b > 0.
template <std::integral T>
constexpr T ceil_divide(T a, std::type_identity_t<T> b) {
  return (a + b - 1) / b;
}

/// The next multiple of `unit`; n >= 0.
template <std::integral T>
constexpr T round_up(T n, std::type_identity_t<T> unit) {
  return ceil_divide(n, unit) * unit;
}

}  // namespace heed
