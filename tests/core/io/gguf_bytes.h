// GGUF files made byte by byte.
#pragma once

#include <cstdint>
#include <string>

namespace heed::test {

template <class T>
std::string bytes_of(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}
inline std::string gguf_string(const std::string& text) { return bytes_of<uint64_t>(text.size()) + text; }

/// The head: version 3, so many tensors and entries, and what stands after.
inline std::string gguf(uint64_t tensors, uint64_t entries, const std::string& rest, uint32_t version = 3) {
  return "GGUF" + bytes_of(version) + bytes_of(tensors) + bytes_of(entries) + rest;
}
inline std::string gguf_entry(const std::string& key, uint32_t type, const std::string& value) {
  return gguf_string(key) + bytes_of(type) + value;
}
/// A tensor with one axis.
inline std::string gguf_tensor(const std::string& name, uint64_t size, uint32_t type, uint64_t offset) {
  return gguf_string(name) + bytes_of<uint32_t>(1) + bytes_of(size) + bytes_of(type) + bytes_of(offset);
}
/// With the data at the next multiple of 32.
inline std::string with_data(std::string head, const std::string& data) {
  head.resize((head.size() + 31) / 32 * 32);
  return head + data;
}

}  // namespace heed::test
