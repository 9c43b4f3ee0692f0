// Any bytes as a GGUF file: a CheckpointError, or tensors that lie apart within the file and can be read.
#include <vector>

#include <heed/core/base/check.h>
#include <heed/core/io/gguf.h>

#include "fuzz.h"
#include "memory_file.h"

using heed::fuzz::require;

namespace {

void check(const heed::GgufReader& reader, size_t size) {
  for (const heed::GgufTensor& tensor : reader.tensors()) {
    require(reader.find(tensor.name) == &tensor && tensor.offset <= size &&
            tensor.bytes <= size - tensor.offset);
    int64_t elements = 1;
    for (const int64_t n : tensor.shape) elements *= n;
    require(elements == tensor.elements());
    for (const heed::GgufTensor& other : reader.tensors())
      require(&other == &tensor || other.bytes == 0 || tensor.bytes == 0 ||
              other.offset >= tensor.offset + tensor.bytes || tensor.offset >= other.offset + other.bytes);
    if (!tensor.readable()) continue;
    std::vector<float> values(static_cast<size_t>(elements));
    reader.read(tensor, values.data());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const heed::fuzz::MemoryFile file(data, size);
  try {
    check(heed::GgufReader(file.path()), size);
  } catch (const heed::CheckpointError&) {
  }
  return 0;
}
