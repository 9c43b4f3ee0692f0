// The element types of GGUF files and how their blocks become floats.
#pragma once

#include <cstddef>
#include <cstdint>

namespace heed::detail {

struct GgufType {
  uint32_t id;
  const char* name;
  int64_t elements;  // of a block
  uint64_t bytes;    // of a block
  /// The floats of one block; null: heed does not read the type.
  void (*read)(const std::byte* block, float* out);
};

/// The type of that number, or null.
const GgufType* find_gguf_type(uint32_t id);

}  // namespace heed::detail
