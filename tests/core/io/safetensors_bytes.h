// Hand-made safetensors files for the tests.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include <heed/core/io/safetensors.h>

namespace heed::test {

/// The eight length bytes for N = length.
inline std::string length_bytes(uint64_t length) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(length >> (8 * i));
  return bytes;
}

/// A file of the header `json` and `data` bytes of zeros.
inline std::string file_bytes(const std::string& json, size_t data) {
  return length_bytes(json.size()) + json + std::string(data, '\0');
}

inline std::span<const std::byte> as_bytes(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

/// What a reader does with a whole file held in memory.
inline SafetensorsHeader parse_bytes(const std::string& file, Checksums checksums = Checksums::verify) {
  const auto all = as_bytes(file);
  const uint64_t length =
      safetensors_header_length(all.first(std::min<size_t>(8, all.size())), all.size(), "t");
  return parse_safetensors_header(all.subspan(8, length), all.size(), "t", checksums);
}

inline SafetensorsHeader parse_json(const std::string& json, size_t data = 0) {
  return parse_bytes(file_bytes(json, data));
}

}  // namespace heed::test
