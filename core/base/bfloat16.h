// bfloat16: the upper half of an IEEE float, stored in 16 bits. Arithmetic is done in float.
#pragma once

#include <cstdint>
#include <cstring>

#include <heed/core/base/host_device.h>

namespace heed {

struct bfloat16 {
  uint16_t bits = 0;

  bfloat16() = default;

  /// Rounds to nearest, ties to even; NaN stays NaN.
  HEED_HOST_DEVICE bfloat16(float value) {
    uint32_t word;
    memcpy(&word, &value, sizeof word);
    const bool is_nan = (word & 0x7fffffffu) > 0x7f800000u;
    bits = is_nan ? static_cast<uint16_t>((word >> 16) | 0x40u)
                  : static_cast<uint16_t>((word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
  }

  HEED_HOST_DEVICE operator float() const {
    const uint32_t word = static_cast<uint32_t>(bits) << 16;
    float value;
    memcpy(&value, &word, sizeof value);
    return value;
  }
};

static_assert(sizeof(bfloat16) == 2);

}  // namespace heed
