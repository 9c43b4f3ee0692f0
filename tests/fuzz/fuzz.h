// What every fuzz target has: the entry point of libFuzzer, and a check that ends the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace heed::fuzz {

/// A property that every input must satisfy.
inline void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace heed::fuzz
