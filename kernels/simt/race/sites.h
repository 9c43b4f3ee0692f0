// Source lines of accesses, kept as small numbers until a message needs their text.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include <heed/kernels/simt/host/location.h>

namespace heed::emulator {

class Sites {
 public:
  uint32_t of(const void* return_address);
  uint32_t of(Location at);
  /// "file.cu:12"
  std::string text(uint32_t site) const;
  /// Whether it lies in a header of the C++ library. Kernels do not use it, but the emulator does, and the
  /// linker may have given it a kernel source's instrumented copy of an inline function.
  bool in_library(uint32_t site) const;

 private:
  struct Site {
    const void* address;  // of code, or null
    Location at;
  };
  std::vector<Site> sites_;
  std::unordered_map<const void*, uint32_t> by_address_;
};

}  // namespace heed::emulator
