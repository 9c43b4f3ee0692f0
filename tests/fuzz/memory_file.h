// The bytes of an input as a file that has a path.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

namespace heed::fuzz {

/// The path of a file that holds those bytes until the next call. All inputs use one file: to make and drop
/// its pages each time would take longer than to read most inputs.
inline const std::string& memory_file(const uint8_t* data, size_t size) {
  static const int fd = ::memfd_create("input", MFD_CLOEXEC);
  static const std::string path = "/proc/self/fd/" + std::to_string(fd);
  if (fd < 0 || ::pwrite(fd, data, size, 0) != static_cast<ssize_t>(size) ||
      ::ftruncate(fd, static_cast<off_t>(size)) != 0)
    std::abort();
  return path;
}

}  // namespace heed::fuzz
