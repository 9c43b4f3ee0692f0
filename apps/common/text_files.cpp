#include "apps/common/text_files.h"

#include <algorithm>
#include <sys/stat.h>

#include <heed/core/base/check.h>
#include <heed/core/base/utf8.h>
#include <heed/core/io/file.h>

namespace heed::apps {
namespace {

namespace fs = std::filesystem;

bool is_hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

bool has_extension(const fs::path& path, const std::vector<std::string>& extensions) {
  if (extensions.empty()) return true;
  const std::string extension = path.extension().string();
  return std::ranges::any_of(extensions, [&](const std::string& e) { return extension == "." + e; });
}

}  // namespace

std::vector<FileStamp> list_text_files(const fs::path& folder, const std::vector<std::string>& extensions,
                                       int64_t most_bytes) {
  std::error_code error;
  fs::recursive_directory_iterator entries(folder, fs::directory_options::skip_permission_denied, error);
  HEED_CHECK(!error, IoError, "cannot read the folder ", folder.string(), ": ", error.message());
  std::vector<FileStamp> files;
  for (; entries != fs::recursive_directory_iterator(); entries.increment(error)) {
    HEED_CHECK(!error, IoError, "cannot read ", folder.string(), ": ", error.message());
    const fs::path& path = entries->path();
    struct stat status {};
    if (is_hidden(path)) {
      if (entries->is_directory(error)) entries.disable_recursion_pending();
      continue;
    }
    if (::lstat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
    if (status.st_size > most_bytes || !has_extension(path, extensions)) continue;
    files.push_back({path.lexically_relative(folder).generic_string(), status.st_size,
                     int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec});
  }
  std::ranges::sort(files, {}, &FileStamp::path);
  return files;
}

std::optional<std::string> read_text(const fs::path& file, int64_t most_bytes) {
  std::string text;
  try {
    text = read_whole_file(file.string(), static_cast<uint64_t>(most_bytes));
  } catch (const IoError&) {
    return std::nullopt;
  }
  if (text.find('\0') != std::string::npos || invalid_utf8(text)) return std::nullopt;
  return text;
}

}  // namespace heed::apps
