// Any bytes as a .npz and a .npy file: a CheckpointError, or arrays that are written and read back unchanged.
#include <cstdlib>
#include <string>

#include <heed/core/base/check.h>
#include <heed/core/io/zip.h>
#include <heed/core/numpy.h>

#include "fuzz.h"
#include "memory_file.h"

using heed::fuzz::require;

namespace {

void check(const heed::Tensor& tensor) {
  int64_t elements = 1;
  for (const int64_t n : tensor.shape()) elements *= n;
  require(elements == tensor.numel() && tensor.is_contiguous());
  if (elements == 0) return;
  volatile const auto* bytes = static_cast<const char*>(tensor.raw_data());
  (void)bytes[0];
  (void)bytes[elements * heed::size_of(tensor.dtype()) - 1];
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // Each array lies in memory of its own, whose ends AddressSanitizer guards.
  [[maybe_unused]] static const int plain = ::setenv("HEED_ALLOCATOR", "plain", 0);
  const std::string& path = heed::fuzz::memory_file(data, size);
  try {
    for (const auto& entry : heed::load_npz(path)) check(entry.second);
  } catch (const heed::CheckpointError&) {
  }
  try {  // entries whatever their names and CRC
    const heed::ZipReader zip(path);
    for (const heed::ZipEntry& entry : zip.entries()) {
      require(entry.offset <= size && entry.bytes <= size - entry.offset);
      const std::string_view text(reinterpret_cast<const char*>(data) + entry.offset, entry.bytes);
      check(heed::parse_npy(text, "entry"));
    }
  } catch (const heed::CheckpointError&) {
  }
  try {
    check(heed::parse_npy({reinterpret_cast<const char*>(data), size}, "input"));
  } catch (const heed::CheckpointError&) {
  }
  return 0;
}
