// The text files of a folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace heed::apps {

/// A file as it was found: it has changed where one of these differs.
struct FileStamp {
  std::string path;  ///< in the folder, with / between names
  int64_t size = 0;
  int64_t modified = 0;  ///< nanoseconds

  friend bool operator==(const FileStamp&, const FileStamp&) = default;
};

/// Larger files are passed over, unless another bound is given.
inline constexpr int64_t kMaxTextBytes = 16 << 20;

/// The regular files in a folder and those below it that may be texts, by path. Names that begin with a dot
/// and symbolic links are passed over, as are files of more than `most_bytes`. With extensions ("md",
/// "txt") only those. IoError if the folder cannot be read; a folder within that cannot is passed over.
std::vector<FileStamp> list_text_files(const std::filesystem::path& folder,
                                       const std::vector<std::string>& extensions = {},
                                       int64_t most_bytes = kMaxTextBytes);

/// The text of a file; nothing where it is none (not UTF-8, with NULs), cannot be read or has gone.
std::optional<std::string> read_text(const std::filesystem::path& file, int64_t most_bytes = kMaxTextBytes);

}  // namespace heed::apps
