// Division as Python divides: quotients are rounded down, and remainders have the sign of the divisor. For
// both devices.
#pragma once

#include <cmath>
#include <type_traits>

#include <heed/core/base/host_device.h>

namespace heed::kernels {

/// Of integers: 0 where b is 0, and whatever b of -1 divides wraps.
template <class T>
HEED_HOST_DEVICE inline T floor_remainder(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    if (b == 0 || b == -1) return 0;
    const T r = a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
  } else {
    const T r = std::fmod(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
  }
}

/// Likewise. Of floating numbers it is the whole number q for which a = q b + floor_remainder(a, b).
template <class T>
HEED_HOST_DEVICE inline T floor_quotient(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    if (b == 0) return 0;
    if (b == -1) return static_cast<T>(U(0) - static_cast<U>(a));
    return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
  } else {
    if (b == 0) return a / b;
    const T r = std::fmod(a, b), down = r != 0 && (r < 0) != (b < 0) ? T(1) : T(0);
    const T q = (a - r) / b - down;
    if (q == 0) return std::copysign(T(0), a / b);
    const T whole = std::floor(q);  // q is whole but for its rounding
    return q - whole > T(0.5) ? whole + 1 : whole;
  }
}

}  // namespace heed::kernels
