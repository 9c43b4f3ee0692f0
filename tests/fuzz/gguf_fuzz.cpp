// Any bytes as a GGUF file: a CheckpointError, or tensors that lie apart within the file and can be read.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include <heed/core/base/check.h>
#include <heed/core/io/gguf.h>

#include "fuzz.h"
#include "memory_file.h"

using heed::fuzz::require;

namespace {

void check(const heed::GgufReader& reader, size_t size) {
  std::vector<std::pair<uint64_t, uint64_t>> ranges;  // of bytes that tensors have for themselves
  for (const heed::GgufTensor& tensor : reader.tensors()) {
    require(reader.find(tensor.name) == &tensor && tensor.offset <= size &&
            tensor.bytes <= size - tensor.offset);
    int64_t elements = 1;
    for (const int64_t n : tensor.shape) elements *= n;
    require(elements == tensor.elements());
    if (tensor.bytes > 0) ranges.emplace_back(tensor.offset, tensor.offset + tensor.bytes);
    if (!tensor.readable()) continue;
    const auto values = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(elements));
    reader.read(tensor, values.get());
  }
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); ++i) require(ranges[i - 1].second <= ranges[i].first);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    check(heed::GgufReader(heed::fuzz::memory_file(data, size)), size);
  } catch (const heed::CheckpointError&) {
  }
  return 0;
}
