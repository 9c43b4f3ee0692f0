// Filling memory with random numbers. Contract for both devices.
//
// Element i depends on (seed, position, i) alone: it is made from word i % 4 of the Philox counter
// (i/4 lo, i/4 hi, position lo, position hi). Where 64 bits an element are needed (f64 and integers) the
// lower 32 come from the same word at position + 1, so that an f64 fill is the f32 one with more digits.
// A fill thus uses kFillPositions<T> positions of its Generator, whatever its length.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <heed/core/base/check.h>
#include <heed/core/base/dtype.h>
#include <heed/core/base/host_device.h>
#include <heed/core/base/philox.h>
#include <heed/kernels/box_muller.h>
#include <heed/kernels/declare.h>

namespace heed::kernels {

/// By how much a fill of T moves the offset of its Generator.
template <class T>
inline constexpr uint64_t kFillPositions = std::is_same_v<T, double> || std::is_same_v<T, int64_t> ? 2 : 1;

/// Uniform on [low, high), the bounds rounded to T first; all `low` when they are equal. With u in [0, 1)
/// from the upper 24 bits (53 for f64): low + (high - low) u in double, rounded to T; the number of T before
/// `high` where that rounds up to `high`. The same bits on every device.
template <class T>
struct FillUniform {
  T* y;  // [count]
  int64_t count;
  double low, high;  // finite, low <= high
  PhiloxState rng;
};

/// Normal by the Box-Muller transform: elements 2k and 2k + 1 are the cosine and the sine of one draw, the
/// first of their words its radius, the second its angle. mean + std z in double, rounded to T through
/// accumulator_t<T>. The same bits on every device (box_muller.h); f64, which takes log, cos and sin of the
/// machine, exists on the CPU only.
template <class T>
struct FillNormal {
  T* y;  // [count]
  int64_t count;
  double mean, std;  // std >= 0
  PhiloxState rng;
};

/// Integers on [low, high): the upper half of the product of 64 random bits and the width, whose bias is
/// below width / 2^64. The same on every device.
struct FillIntegers {
  int64_t* y;  // [count]
  int64_t count;
  int64_t low, high;  // low < high
  PhiloxState rng;
};

/// The four words of elements 4 * group .. 4 * group + 3; `part` 0 gives the upper (or only) halves, 1 the
/// lower.
HEED_HOST_DEVICE inline Philox4 fill_words(const PhiloxState& rng, int64_t group, uint64_t part) {
  const uint64_t counter = static_cast<uint64_t>(group), position = rng.position() + part;
  return philox(static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32),
                static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32),
                static_cast<uint32_t>(rng.seed), static_cast<uint32_t>(rng.seed >> 32));
}

HEED_HOST_DEVICE inline uint64_t join(uint32_t high, uint32_t low) {
  return static_cast<uint64_t>(high) << 32 | low;
}

/// u in [0, 1) moved to [low, high). The product is exact unless T is double, so contraction changes nothing.
template <class T>
struct UniformRange {
  using A = accumulator_t<T>;
  double low, width;
  T high, last;

  /// ConfigError if the range is no range of T.
  UniformRange(double from, double to) {
    HEED_CHECK(std::isfinite(from) && std::isfinite(to) && from <= to, ConfigError,
               "fill_uniform: the range [", from, ", ", to, ") must be finite with low <= high");
    low = A(T(A(from)));
    width = A(A(T(A(to))) - A(T(A(from))));
    high = T(A(to));
    last = before(high);
    HEED_CHECK(std::isfinite(width), ConfigError, "fill_uniform: the range [", from, ", ", to,
               ") is wider than the largest ", name(dtype_of<T>()), "; draw from a narrower one and scale");
  }

  HEED_HOST_DEVICE T operator()(double u) const {
    const T value = T(A(low + width * u));
    return A(value) < A(high) || width == 0 ? value : last;
  }

 private:
  static T before(T value) {
    if constexpr (!std::is_same_v<T, bfloat16>) {
      return std::nextafter(value, -std::numeric_limits<T>::infinity());
    } else if (float(value) == 0.0f) {
      value.bits = 0x8001u;  // the least negative number
    } else {
      value.bits = static_cast<uint16_t>(float(value) > 0 ? value.bits - 1 : value.bits + 1);
    }
    return value;
  }
};

/// A number of mean 0 and deviation 1 moved to those of a fill.
template <class T>
struct NormalScale {
  double mean, std;

  /// ConfigError for a negative deviation.
  NormalScale(double center, double deviation) : mean(center), std(deviation) {
    HEED_CHECK(std >= 0, ConfigError, "fill_normal: the standard deviation is ", std, ", expected >= 0");
  }

  HEED_HOST_DEVICE T operator()(double z) const { return T(accumulator_t<T>(multiply_add(std, z, mean))); }
};

/// 64 random bits moved to [low, high).
struct IntegerRange {
  uint64_t low, width;

  /// ConfigError if the range is empty.
  IntegerRange(int64_t from, int64_t to)
      : low(static_cast<uint64_t>(from)), width(static_cast<uint64_t>(to) - static_cast<uint64_t>(from)) {
    HEED_CHECK(from < to, ConfigError, "fill_integers: the range [", from, ", ", to,
               ") is empty; expected low < high");
  }

  HEED_HOST_DEVICE int64_t operator()(uint64_t bits) const {
    return static_cast<int64_t>(low + multiply_high(bits, width));
  }

 private:
  /// The upper 64 of the 128 bits of a * b.
  HEED_HOST_DEVICE static uint64_t multiply_high(uint64_t a, uint64_t b) {
    const uint64_t a0 = a & 0xffffffffu, a1 = a >> 32, b0 = b & 0xffffffffu, b1 = b >> 32;
    const uint64_t middle = a1 * b0 + (a0 * b0 >> 32);
    const uint64_t other = a0 * b1 + (middle & 0xffffffffu);
    return a1 * b1 + (middle >> 32) + (other >> 32);
  }
};

}  // namespace heed::kernels

HEED_KERNEL(fill_uniform, FillUniform);
HEED_KERNEL(fill_normal, FillNormal);
HEED_KERNEL_0(fill_integers, FillIntegers);
