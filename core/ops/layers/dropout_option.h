// The dropout that an operation's options ask for. Private to core: not installed.
#pragma once

#include <heed/core/base/check.h>
#include <heed/core/base/philox.h>
#include <heed/core/creation.h>
#include <heed/core/generator.h>

namespace heed {

/// ConfigError for a rate outside [0, 1). Takes one offset of the generator (null: the default one), none for
/// a rate of 0: so it comes after all other checks.
inline Dropout draw_dropout(double p, Generator* generator, const char* operation) {
  HEED_CHECK(p >= 0 && p < 1, ConfigError, operation, ": the dropout rate is ", p, "; it must be in [0, 1)");
  if (p == 0) return make_dropout(0, {});
  return make_dropout(p, (generator ? *generator : default_generator()).next());
}

/// Room for the bits of what dropout keeps, from a CPU's forward to its backward; undefined if bytes is 0.
inline Tensor empty_keep_mask(int64_t bytes) {
  return bytes == 0 ? Tensor() : empty({bytes}, {DType::boolean, Device()});
}

inline uint8_t* keep_mask_bits(const Tensor& keep_mask) {
  return keep_mask.defined() ? static_cast<uint8_t*>(keep_mask.raw_data()) : nullptr;
}

}  // namespace heed
