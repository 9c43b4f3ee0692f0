// Source lines of accesses, kept as small numbers until a message needs their text.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include <heed/kernels/simt/host/location.h>

namespace heed::emulator {

class Sites {
 public:
  uint32_t of(const void* return_address) { return of(Site{return_address, 0}); }
  uint32_t of(Location at) { return of(Site{at.file, at.line}); }
  /// "file.cu:12"
  std::string text(uint32_t site) const;
  /// Whether it lies in a header of the C++ library. Kernels do not use it, but the emulator does, and the
  /// linker may have given it a kernel source's instrumented copy of an inline function.
  bool in_library(uint32_t site) const;

 private:
  struct Site {
    const void* address = nullptr;  // of code, or of the file's name
    int line = 0;                   // 0: of code
    bool operator==(const Site&) const = default;
  };
  struct Hash {
    size_t operator()(const Site& site) const {
      return reinterpret_cast<size_t>(site.address) * 31 + static_cast<size_t>(site.line);
    }
  };
  struct Found {
    Site site;
    uint32_t number;
  };

  uint32_t of(const Site& site);

  std::vector<Site> sites_ = {Site()};  // the first is unknown
  std::unordered_map<Site, uint32_t, Hash> numbers_;
  std::array<Found, 1024> found_ = {};  // lately, by their hashes
};

}  // namespace heed::emulator
