// A file that appears whole or not at all, whatever interrupts the writing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <heed/core/io/file.h>

namespace heed {

/// Writes to a temporary file beside `path`; commit() syncs it, renames it to `path` and syncs the folder.
/// Until then, and after any error, `path` keeps its old content; the destructor removes the temporary file.
/// A process killed in between leaves at most a file for which is_temporary_file() holds, an orphan.
class AtomicFile {
 public:
  /// Creates the temporary file, which takes over an existing file's permissions. A symbolic link at `path`
  /// will be replaced: what it points to is not touched. IoError if the folder is missing or read-only, or
  /// `path` is a directory or otherwise not a regular file, or a link to one.
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Appends; IoError (disk full and the like) with the system's reason.
  void write(const void* data, size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }

  /// Writes at `offset`, without moving the place where write() appends.
  void write_at(uint64_t offset, const void* data, size_t bytes);

  /// Forces what was written to the disk and closes the file, which can then be read back at
  /// temporary_path().
  void sync();

  /// sync(), then the rename. Nothing can be written afterwards.
  void commit();

  const std::string& path() const { return path_; }
  const std::string& temporary_path() const { return temporary_; }

 private:
  void create_temporary();
  [[noreturn]] void fail(const char* action, int error) const;

  std::string path_;
  std::string temporary_;  // empty once renamed
  FileDescriptor file_;
  FileDescriptor lock_;  // the temporary file too, once file_ is closed
  uint64_t end_ = 0;
};

/// Whether a file name is one that AtomicFile gives to its temporary files.
bool is_temporary_file(std::string_view name);

/// Removes the orphans in a folder: temporary files that no AtomicFile of any process is writing. What cannot
/// be read or removed stays.
void remove_orphans(const std::string& folder);

/// Writes `text` as the whole content of `path`, atomically.
void write_whole_file(const std::string& path, std::string_view text);

}  // namespace heed
