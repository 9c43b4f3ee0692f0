// Code points of well-formed UTF-8, and the groups that regular expressions know: \p{L}, \p{N}, \s.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace heed::data::detail {

struct CodePoint {
  int32_t value;
  size_t bytes;
};

/// That at `at`, which is less than the text's size.
inline CodePoint code_point_at(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<int32_t>(static_cast<unsigned char>(text[at + i])); };
  const int32_t first = byte(0);
  if (first < 0x80) return {first, 1};
  if (first < 0xe0) return {(first & 0x1f) << 6 | (byte(1) & 0x3f), 2};
  if (first < 0xf0) return {(first & 0xf) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f), 3};
  return {(first & 7) << 18 | (byte(1) & 0x3f) << 12 | (byte(2) & 0x3f) << 6 | (byte(3) & 0x3f), 4};
}

enum class CharacterGroup : uint8_t { other, letter, number, space };

/// By the general category and White_Space; for code points beyond ASCII.
CharacterGroup find_group(int32_t code_point);

inline CharacterGroup group_of(int32_t c) {
  using enum CharacterGroup;
  if (c >= 0x80) return find_group(c);
  const int32_t small = c | 0x20;
  if (small >= 'a' && small <= 'z') return letter;
  if (c >= '0' && c <= '9') return number;
  return c == ' ' || (c >= '\t' && c <= '\r') ? space : other;
}

struct CodePointRange {
  int32_t first, last;
};
/// Whether one of the ranges, which are in order, has a code point.
bool in_ranges(int32_t code_point, std::span<const CodePointRange> ranges);

/// \w: letters, marks, decimal and letter numbers, connectors and the joiners.
bool is_word_character(int32_t code_point);

}  // namespace heed::data::detail
