#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <heed/core/base/check.h>
#include <heed/core/io/append_file.h>

namespace heed {
namespace {

int open_to_append(const char* path) {
  int fd;
  do {
    fd = ::open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

}  // namespace

AppendFile::AppendFile(std::string path) : path_(std::move(path)) {
  HEED_CHECK(!path_.empty() && path_.find('\0') == std::string::npos, IoError, "cannot write '",
             path_.c_str(), "': not a file name");
  int fd = open_to_append(path_.c_str());
  if (fd < 0 && errno == ELOOP && ::unlink(path_.c_str()) == 0) fd = open_to_append(path_.c_str());
  // Of a pipe without a reader.
  HEED_CHECK(fd >= 0 || errno != ENXIO, IoError, "cannot write '", path_, "': it is not a regular file");
  HEED_CHECK(fd >= 0, IoError, "cannot write '", path_, "': ", detail::error_text(errno));
  file_ = FileDescriptor(fd);
  struct stat info;
  HEED_CHECK(::fstat(fd, &info) == 0, IoError, "cannot write '", path_, "': ", detail::error_text(errno));
  HEED_CHECK(S_ISREG(info.st_mode), IoError, "cannot write '", path_, "': it is not a regular file");
  size_ = static_cast<uint64_t>(info.st_size);
}

void AppendFile::cut(uint64_t size) {
  if (size >= size_) return;
  HEED_CHECK(::ftruncate(file_.get(), static_cast<off_t>(size)) == 0, IoError, "cannot shorten '", path_,
             "': ", detail::error_text(errno));
  size_ = size;
}

void AppendFile::append(std::string_view piece) {
  const uint64_t bytes = piece.size();
  while (!piece.empty()) {
    const ssize_t put = ::write(file_.get(), piece.data(), piece.size());
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) {
      const int error = put < 0 ? errno : ENOSPC;
      [[maybe_unused]] const int cut = ::ftruncate(file_.get(), static_cast<off_t>(size_));
      throw IoError(concat("cannot write '", path_, "': ", detail::error_text(error)));
    }
    piece.remove_prefix(static_cast<size_t>(put));
  }
  size_ += bytes;
}

}  // namespace heed
