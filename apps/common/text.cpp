#include "apps/common/text.h"

#include <algorithm>

#include <fmt/format.h>

namespace heed::apps {

std::string printable(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t length = first_code_point(text.substr(at)).length;
    const uint8_t first = static_cast<uint8_t>(text[at]);
    // The C1 controls, U+0080 to U+009F, steer some terminals too.
    const bool c1_control = length == 2 && first == 0xc2 && static_cast<uint8_t>(text[at + 1]) < 0xa0;
    if (first == '\n' || first == '\t') {
      out += first == '\n' ? "\\n" : "\\t";
    } else if (length == 0 || first < 0x20 || first == 0x7f || c1_control) {
      for (size_t i = 0; i < std::max<size_t>(length, 1); ++i) {
        out += fmt::format("\\x{:02x}", static_cast<uint8_t>(text[at + i]));
      }
    } else {
      out += text.substr(at, length);
    }
    at += std::max<size_t>(length, 1);
  }
  return out;
}

std::string printable_lines(std::string_view text) {
  std::string out;
  for_each_character(
      text, [&](std::string_view c) { out += c == "\n" || c == "\t" ? std::string(c) : printable(c); });
  return out;
}

bool is_wide(std::string_view character) {
  const auto byte = static_cast<unsigned char>(character[0]);
  // U+3000 to U+DFFF, and all of the higher planes.
  return character.size() == 4 || (character.size() == 3 && byte >= 0xe3 && byte <= 0xed);
}

int text_columns(std::string_view text) {
  int columns = 0;
  for_each_character(text, [&](std::string_view character) { columns += is_wide(character) ? 2 : 1; });
  return columns;
}

std::string shorten(std::string_view text, int columns) {
  const std::string whole = printable(text);
  if (text_columns(whole) <= columns) return whole;
  std::string out;
  int used = 1;  // by the …
  for_each_character(whole, [&](std::string_view character) {
    used += is_wide(character) ? 2 : 1;
    if (used <= columns) out += character;
  });
  return out + "…";
}

std::string pad_left(const std::string& text, int columns) {
  return std::string(static_cast<size_t>(std::max(columns - text_columns(text), 0)), ' ') + text;
}

std::string pad_right(const std::string& text, int columns) {
  return text + std::string(static_cast<size_t>(std::max(columns - text_columns(text), 0)), ' ');
}

}  // namespace heed::apps
