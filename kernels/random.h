// Filling memory with random numbers. Contract for both devices.
//
// Element i depends on (seed, position, i) alone: it is made from word i % 4 of the Philox counter
// (i/4 lo, i/4 hi, position lo, position hi). Where 64 bits an element are needed (f64 and integers) the
// lower 32 come from the same word at position + 1, so that an f64 fill is the f32 one with more digits.
// A fill thus uses kFillPositions<T> positions of its Generator, whatever its length.
#pragma once

#include <cstdint>
#include <type_traits>

#include <heed/core/base/dtype.h>
#include <heed/core/base/host_device.h>
#include <heed/core/base/philox.h>

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

/// Normal by the Box-Muller transform: elements 2k and 2k + 1 are the cosine and the sine of one draw. In
/// double for f64, else in float; devices differ by the rounding of log, cos and sin.
template <class T>
struct FillNormal {
  T* y;  // [count]
  int64_t count;
  double mean, std;
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

}  // namespace heed::kernels

#define HEED_DECLARE(device)                              \
  namespace heed::device {                                \
  template <class T>                                      \
  void fill_uniform(const kernels::FillUniform<T>& args); \
  template <class T>                                      \
  void fill_normal(const kernels::FillNormal<T>& args);   \
  void fill_integers(const kernels::FillIntegers& args);  \
  }
HEED_DECLARE(cpu)
HEED_DECLARE(cuda)
#undef HEED_DECLARE
