// The element types that safetensors files name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include <heed/core/base/dtype.h>

namespace heed::detail {

struct StoredType {
  const char* name;
  int bits;  // of an element
  /// What elements become in memory: their own type, or a wider one that holds each value. None: heed does
  /// not read them.
  std::optional<DType> read_as;
  bool widened = false;  // read_as is a wider one

  /// Elements in so many bytes.
  uint64_t elements(uint64_t bytes) const {
    const auto size = static_cast<uint64_t>(bits);
    return bits < 8 ? bytes * 8 / size : bytes / (size / 8);
  }
};

/// The type of that name, or null.
const StoredType* find_stored_type(std::string_view name);
/// The type that heed's own is written as.
const StoredType& stored_type(DType dtype);

/// The value of an IEEE half.
float from_half(uint16_t bits);

/// Converts `count` elements of a widened type. Gives the position of the first that its read_as does not
/// hold (U64 above 2^63 - 1), or `count`.
size_t widen(const StoredType& type, const std::byte* from, size_t count, std::byte* to);

}  // namespace heed::detail
