// A file that grows by whole pieces, such as lines.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <heed/core/io/file.h>

namespace heed {

/// A regular file open for appending. A piece is there whole or, after an error, not at all; nothing before
/// it is written again, so that a process killed at any time leaves at most one piece cut short, the last.
class AppendFile {
 public:
  /// Makes the file if it is missing; a symbolic link in its place is replaced by a file. IoError if it
  /// cannot be written or is no regular file.
  explicit AppendFile(std::string path);

  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }

  /// Drops all after the first `size` bytes.
  void cut(uint64_t size);
  /// IoError with the system's reason; the file is then as before.
  void append(std::string_view piece);

 private:
  std::string path_;
  FileDescriptor file_;
  uint64_t size_ = 0;
};

}  // namespace heed
