#include <algorithm>
#include <cerrno>
#include <dirent.h>
#include <fcntl.h>
#include <memory>
#include <string_view>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

#include <heed/core/base/check.h>
#include <heed/core/io/file.h>

namespace heed {

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) ::close(fd_);
}

InputFile::InputFile(std::string path) : path_(std::move(path)) {
  HEED_CHECK(path_.find('\0') == std::string::npos, IoError, "cannot read a file: its name holds a NUL byte");
  int fd;
  do {
    fd = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // opening a pipe would wait for a writer
  } while (fd < 0 && errno == EINTR);
  HEED_CHECK(fd >= 0, IoError, "cannot read '", path_, "': ", detail::error_text(errno));
  file_ = FileDescriptor(fd);
  struct stat info;
  HEED_CHECK(::fstat(fd, &info) == 0, IoError, "cannot read '", path_, "': ", detail::error_text(errno));
  HEED_CHECK(!S_ISDIR(info.st_mode), IoError, "cannot read '", path_, "': it is a directory, not a file");
  HEED_CHECK(S_ISREG(info.st_mode), IoError, "cannot read '", path_, "': it is not a regular file");
  size_ = static_cast<uint64_t>(info.st_size);
}

void InputFile::read_at(uint64_t offset, std::span<std::byte> out) const {
  constexpr size_t kMax = size_t{1} << 30;  // below what one call may transfer
  while (!out.empty()) {
    const ssize_t got =
        ::pread(file_.get(), out.data(), std::min(out.size(), kMax), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    HEED_CHECK(got >= 0, IoError, "cannot read '", path_, "' at byte ", offset, ": ",
               detail::error_text(errno));
    HEED_CHECK(got > 0, IoError, "cannot read '", path_, "': it ended at byte ", offset, ", but had ", size_,
               " bytes when it was opened; was it truncated meanwhile?");
    offset += static_cast<uint64_t>(got);
    out = out.subspan(static_cast<size_t>(got));
  }
}

bool InputFile::has_grown() const {
  std::byte next;
  ssize_t got;
  do {
    got = ::pread(file_.get(), &next, 1, static_cast<off_t>(size_));
  } while (got < 0 && errno == EINTR);
  return got > 0;
}

std::string read_whole_file(const std::string& path, uint64_t max_bytes) {
  const InputFile file(path);
  HEED_CHECK(file.size() <= max_bytes, IoError, "cannot read '", path, "': it has ", file.size(),
             " bytes, more than the limit of ", max_bytes);
  std::string text(file.size(), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(text)));
  HEED_CHECK(!file.has_grown(), IoError, "cannot read '", path, "': it had ", file.size(),
             " bytes when it was opened, and has more now; is it still being written?");
  return text;
}

// Not by std::filesystem's iterator, which ends the program where memory is short.
std::vector<std::string> folder_entries(const std::string& folder) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> list(::opendir(folder.c_str()), &::closedir);
  if (!list && errno == ENOENT) return names;
  HEED_CHECK(list, IoError, "cannot list the folder '", folder, "': ", detail::error_text(errno));
  errno = 0;
  while (const dirent* entry = ::readdir(list.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
    errno = 0;
  }
  HEED_CHECK(errno == 0, IoError, "cannot list the folder '", folder, "': ", detail::error_text(errno));
  return names;
}

namespace detail {

std::string error_text(int error) { return std::generic_category().message(error); }

std::string parent_folder(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace detail
}  // namespace heed
