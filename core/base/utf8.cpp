#include <cstdint>

#include <heed/core/base/utf8.h>

namespace heed {

CodePoint first_code_point(std::string_view text) {
  if (text.empty()) return {};
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const size_t length = lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
  if (length == 0 || text.size() < length) return {};
  // What the second byte may be; the others may be any continuation.
  const uint8_t low = lead == 0xe0   ? 0xa0
                      : lead == 0xf0 ? 0x90
                                     : 0x80,
                high = lead == 0xed   ? 0x9f
                       : lead == 0xf4 ? 0x8f
                                      : 0xbf;
  if (byte(1) < low || byte(1) > high) return {};
  char32_t value = lead & (0x7f >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    value = value << 6 | (byte(i) & 0x3f);
  }
  return {value, length};
}

std::optional<size_t> invalid_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t length = first_code_point(text.substr(at)).length;
    if (length == 0) return at;
    at += length;
  }
  return std::nullopt;
}

}  // namespace heed
