// Files by descriptor, with errors that name the file and the system's reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace heed {

/// An open descriptor, closed with its owner.
class FileDescriptor {
 public:
  explicit FileDescriptor(int fd = -1) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~FileDescriptor();

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  /// Gives the descriptor away.
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

/// A regular file open for reading. Reads share no position, so several threads may read at once.
class InputFile {
 public:
  /// IoError if the file is missing, unreadable, a directory or otherwise not a regular file.
  explicit InputFile(std::string path);

  const std::string& path() const { return path_; }
  /// Bytes, as found when it was opened.
  uint64_t size() const { return size_; }

  /// Fills `out` with the bytes from `offset` on; IoError if the file has become shorter or cannot be read.
  void read_at(uint64_t offset, std::span<std::byte> out) const;

  /// Whether the file now has more bytes than when it was opened.
  bool has_grown() const;

 private:
  std::string path_;
  FileDescriptor file_;
  uint64_t size_ = 0;
};

/// The whole content of a regular file. IoError if it is none (a pipe, a device, a directory), cannot be
/// read, has more than `max_bytes` or changes its size while it is read.
std::string read_whole_file(const std::string& path, uint64_t max_bytes);

/// The names of what a folder holds, in no order; none if there is no such folder. IoError if it cannot be
/// read.
std::vector<std::string> folder_entries(const std::string& folder);

namespace detail {
/// The system's words for an errno value.
std::string error_text(int error);
/// The folder that holds `path`, "." for a bare name.
std::string parent_folder(const std::string& path);
}  // namespace detail

}  // namespace heed
