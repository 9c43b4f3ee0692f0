// The sizes in which small blocks are cached. Private to core: not installed.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>

#include <heed/core/base/int_math.h>

namespace heed {

constexpr size_t kAlignment = 128;
constexpr int kStepsPerDoubling = 4;  // a block is at most a quarter larger than what was asked

/// Multiples of 128 up to 512, then four steps per doubling.
struct SizeClass {
  size_t bytes;
  size_t index;
};

constexpr SizeClass size_class(size_t bytes) {
  if (bytes <= 512) {
    const size_t rounded = round_up(std::max<size_t>(1, bytes), kAlignment);
    return {rounded, rounded / kAlignment - 1};
  }
  const int doubling = std::bit_width(bytes - 1) - 1;  // 2^doubling < bytes <= 2^(doubling + 1)
  const size_t base = size_t{1} << doubling;
  const size_t step = base / kStepsPerDoubling;
  const size_t steps = ceil_divide(bytes - base, step);  // 1 .. 4
  return {base + steps * step, 4 + static_cast<size_t>(doubling - 9) * kStepsPerDoubling + (steps - 1)};
}

/// Of the class with this index.
constexpr size_t class_bytes(size_t index) {
  if (index < 4) return (index + 1) * kAlignment;
  return ((size_t{1} << (9 + (index - 4) / kStepsPerDoubling)) / kStepsPerDoubling) *
         (kStepsPerDoubling + 1 + (index - 4) % kStepsPerDoubling);
}

}  // namespace heed
