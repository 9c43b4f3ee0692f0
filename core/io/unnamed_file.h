// A file without a name, for data that has no room in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <heed/core/io/file.h>

namespace heed {

/// Bytes appended one after another, and then read anywhere. The file lies in a folder's file system, but no
/// name leads to it: its room is free again as soon as the object or the process has ended, in whatever way.
class UnnamedFile {
 public:
  /// IoError if the folder is missing or read-only.
  explicit UnnamedFile(std::string folder);

  /// IoError (disk full and the like) with the system's reason; nothing may be appended afterwards.
  void append(std::span<const std::byte> bytes);
  /// Bytes appended.
  uint64_t size() const { return size_; }
  /// Hands what was appended to the system, which read_at() sees then. IoError as append()'s.
  void flush();
  /// Fills `out` with the bytes from `offset` on; several threads may read at once. IoError.
  void read_at(uint64_t offset, std::span<std::byte> out) const;

 private:
  [[noreturn]] void fail(const char* action, int error) const;

  std::string folder_;
  FileDescriptor file_;
  std::vector<std::byte> waiting_;  // appended, but not handed over
  uint64_t size_ = 0;
};

}  // namespace heed
