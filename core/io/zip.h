// ZIP archives of entries that are stored, not compressed: what NumPy's .npz files are.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <heed/core/io/atomic_file.h>
#include <heed/core/io/file.h>

namespace heed {

struct ZipEntry {
  std::string name;
  uint64_t offset = 0;  // of the data in the file
  uint64_t bytes = 0;
  uint32_t crc = 0;
};

/// CRC-32 of bytes that follow those with the sum `crc`.
uint32_t crc32(const void* data, size_t bytes, uint32_t crc = 0);

/// An archive open for reading. Sizes are checked against the file before memory is asked for, and names are
/// never paths.
class ZipReader {
 public:
  /// IoError if the file cannot be read, CheckpointError if it is no sound archive, has an entry that is
  /// compressed or encrypted, two of one name, or two that overlap.
  explicit ZipReader(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const std::vector<ZipEntry>& entries() const { return entries_; }
  /// The data of an entry; CheckpointError where its CRC differs.
  std::string read(const ZipEntry& entry) const;

 private:
  InputFile file_;
  std::vector<ZipEntry> entries_;
};

/// Writes an archive that appears whole or not at all.
class ZipWriter {
 public:
  explicit ZipWriter(const std::string& path) : file_(path) {}

  /// An entry whose data are `head` and then `bytes` bytes. ConfigError if they, or the archive, have 4 GiB.
  void add(const std::string& name, std::string_view head, const void* data, size_t bytes);
  void commit();

 private:
  AtomicFile file_;
  uint64_t end_ = 0;
  std::string directory_;
  uint16_t count_ = 0;
};

}  // namespace heed
