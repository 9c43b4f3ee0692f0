// The decoder of UTF-8.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace heed {

/// A code point and the number of bytes that it takes; 0 bytes where there is none.
struct CodePoint {
  char32_t value = 0;
  size_t length = 0;
};

/// The code point that text begins with: none at its end and where it is not UTF-8 (The Unicode Standard 15,
/// table 3-7: no surrogates, no longer forms, nothing above U+10FFFF).
CodePoint first_code_point(std::string_view text);

/// Position of the first byte that is not part of UTF-8, if any.
std::optional<size_t> invalid_utf8(std::string_view text);

}  // namespace heed
