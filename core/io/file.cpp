#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

#include <heed/core/base/check.h>
#include <heed/core/io/file.h>

namespace heed {
namespace {

struct OpenFile {
  FileDescriptor descriptor;
  bool regular;
  uint64_t size;
};

OpenFile open_for_reading(const std::string& path, int extra_flags) {
  HEED_CHECK(path.find('\0') == std::string::npos, IoError, "cannot read a file: its name holds a NUL byte");
  int fd;
  do {
    fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | extra_flags);
  } while (fd < 0 && errno == EINTR);
  HEED_CHECK(fd >= 0, IoError, "cannot read '", path, "': ", detail::error_text(errno));
  FileDescriptor descriptor(fd);
  struct stat info;
  HEED_CHECK(::fstat(fd, &info) == 0, IoError, "cannot read '", path, "': ", detail::error_text(errno));
  HEED_CHECK(!S_ISDIR(info.st_mode), IoError, "cannot read '", path, "': it is a directory, not a file");
  return {std::move(descriptor), S_ISREG(info.st_mode), static_cast<uint64_t>(info.st_size)};
}

}  // namespace

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) ::close(fd_);
}

InputFile::InputFile(std::string path) : path_(std::move(path)) {
  OpenFile file = open_for_reading(path_, O_NONBLOCK);  // so that opening a pipe does not wait for a writer
  HEED_CHECK(file.regular, IoError, "cannot read '", path_, "': it is not a regular file");
  file_ = std::move(file.descriptor);
  size_ = file.size;
}

void InputFile::read_at(uint64_t offset, std::span<std::byte> out) const {
  constexpr size_t kMost = size_t{1} << 30;  // below what one call may transfer
  while (!out.empty()) {
    const ssize_t got =
        ::pread(file_.get(), out.data(), std::min(out.size(), kMost), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    HEED_CHECK(got >= 0, IoError, "cannot read '", path_, "' at byte ", offset, ": ",
               detail::error_text(errno));
    HEED_CHECK(got > 0, IoError, "cannot read '", path_, "': it ended at byte ", offset, ", but had ", size_,
               " bytes when it was opened; was it truncated meanwhile?");
    offset += static_cast<uint64_t>(got);
    out = out.subspan(static_cast<size_t>(got));
  }
}

std::string read_whole_file(const std::string& path, uint64_t max_bytes) {
  const OpenFile file = open_for_reading(path, 0);
  HEED_CHECK(file.size <= max_bytes, IoError, "cannot read '", path, "': it has ", file.size,
             " bytes, more than the limit of ", max_bytes);
  std::string text;
  size_t used = 0;
  const uint64_t first_guess = file.regular ? file.size + 1 : uint64_t{1} << 16;
  while (true) {
    if (used == text.size()) text.resize(std::max<size_t>(first_guess, 2 * text.size()));
    const ssize_t got = ::read(file.descriptor.get(), text.data() + used, text.size() - used);
    if (got < 0 && errno == EINTR) continue;
    HEED_CHECK(got >= 0, IoError, "cannot read '", path, "' at byte ", used, ": ", detail::error_text(errno));
    if (got == 0) break;
    used += static_cast<size_t>(got);
    HEED_CHECK(used <= max_bytes, IoError, "cannot read '", path, "': it has more than the limit of ",
               max_bytes, " bytes");
  }
  HEED_CHECK(!file.regular || used == file.size, IoError, "cannot read '", path, "': it had ", file.size,
             " bytes when it was opened and gave ", used, "; was it changed meanwhile?");
  text.resize(used);
  return text;
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
