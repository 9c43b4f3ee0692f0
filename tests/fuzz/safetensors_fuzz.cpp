// Any bytes as a safetensors file: a CheckpointError, or a header that keeps every promise and tensors that
// can be read.
#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <heed/core/io/safetensors.h>

#include "fuzz.h"
#include "memory_file.h"

using heed::fuzz::require;

namespace {

void check(const heed::SafetensorsHeader& header, uint64_t file_size) {
  uint64_t end = 0;
  for (const heed::TensorEntry& tensor : header.tensors) {
    require(tensor.begin == end && tensor.end >= tensor.begin);
    end = tensor.end;
    uint64_t elements = 1;
    for (const int64_t size : tensor.shape) {
      require(size >= 0);
      elements *= static_cast<uint64_t>(size);
    }
    if (tensor.readable())
      require(elements * static_cast<uint64_t>(heed::size_of(tensor.dtype)) == tensor.bytes());
    require(tensor.name.find('\0') == std::string::npos && tensor.name != "__metadata__");
    require(header.find(tensor.name) == &tensor);
  }
  require(header.data_start + end == file_size);
  require(header.digests.empty() || header.digests.size() == header.tensors.size());
}

/// A file whose header is sound.
void read_tensors(const std::string& path, heed::Checksums checksums) {
  const heed::SafetensorsReader reader(path, checksums);
  for (const heed::TensorEntry& tensor : reader.header().tensors) {
    if (!tensor.readable()) continue;
    const auto values = std::make_unique_for_overwrite<std::byte[]>(tensor.bytes());
    try {
      reader.read(tensor, values.get(), tensor.bytes());
    } catch (const heed::CheckpointError&) {  // its checksum, or a value that its type has not
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> file(reinterpret_cast<const std::byte*>(data), size);
  for (const heed::Checksums checksums : {heed::Checksums::verify, heed::Checksums::ignore}) {
    try {
      const uint64_t length =
          heed::safetensors_header_length(file.first(std::min<size_t>(size, 8)), size, "input");
      require(length <= size - 8);
      check(heed::parse_safetensors_header(file.subspan(8, length), size, "input", checksums), size);
      read_tensors(heed::fuzz::memory_file(data, size), checksums);
    } catch (const heed::CheckpointError&) {
    }
  }
  return 0;
}

#ifdef HEED_LIBFUZZER
extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

/// Mostly mutates the header and then puts its true length in front, without which few inputs would be
/// parsed.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  std::minstd_rand random(seed);
  if (size < 8 || max_size < 64 || random() % 8 == 0) return LLVMFuzzerMutate(data, size, max_size);
  uint64_t length = 0;
  std::memcpy(&length, data, 8);
  length = std::min<uint64_t>(length, size - 8);
  const std::vector<uint8_t> rest(data + 8 + length, data + size);
  const size_t room = max_size - 8 - std::min(rest.size(), max_size - 8);
  length = LLVMFuzzerMutate(data + 8, std::min<size_t>(length, room), room);
  std::memcpy(data, &length, 8);
  std::copy(rest.begin(), rest.end(), data + 8 + length);
  return 8 + length + rest.size();
}
#endif
