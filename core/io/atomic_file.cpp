#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <heed/core/base/check.h>
#include <heed/core/io/atomic_file.h>

namespace heed {
namespace {

constexpr char kMark[] = ".tmp-";

FileDescriptor open_folder(const std::string& path) {
  int fd;
  do {
    fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  } while (fd < 0 && errno == EINTR);
  return FileDescriptor(fd);
}

int retry_fsync(int fd) {
  int status;
  do {
    status = ::fsync(fd);
  } while (status != 0 && errno == EINTR);
  return status;
}

}  // namespace

AtomicFile::AtomicFile(const std::string& path) : path_(path) {
  HEED_CHECK(!path.empty() && path.find('\0') == std::string::npos, IoError, "cannot write '", path.c_str(),
             "': not a file name");
  struct stat info;
  const bool exists = ::stat(path_.c_str(), &info) == 0;
  HEED_CHECK(!exists || S_ISREG(info.st_mode), IoError, "cannot write '", path_, "': it is ",
             exists && S_ISDIR(info.st_mode) ? "a directory" : "not a regular file");
  create_temporary();
  const int fd = file_.get();
  if (::lstat(path_.c_str(), &info) == 0 && S_ISREG(info.st_mode))
    static_cast<void>(::fchmod(fd, info.st_mode & 0777));  // a file system without modes keeps its own
}

void AtomicFile::create_temporary() {
  static std::atomic<unsigned> counter{0};
  while (true) {
    temporary_ = concat(path_, kMark, ::getpid(), '-', counter++);
    const int fd = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0 && (errno == EEXIST || errno == EINTR)) continue;
    if (fd < 0) {
      const int error = errno;
      temporary_.clear();
      fail(concat("create a temporary file in '", detail::parent_folder(path_), '\'').c_str(), error);
    }
    file_ = FileDescriptor(fd);
    // The lock says that it is no orphan; it goes with the last descriptor. Where the file was taken for one
    // before it had the lock, it has no name any more.
    struct stat info;
    if (::flock(fd, LOCK_EX) != 0 || ::fstat(fd, &info) != 0 || info.st_nlink > 0) return;
  }
}

AtomicFile::~AtomicFile() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::fail(const char* action, int error) const {
  throw IoError(concat("cannot write '", path_, "': failed to ", action, ": ", detail::error_text(error),
                       "; what was there before is unchanged"));
}

void AtomicFile::write(const void* data, size_t bytes) {
  write_at(end_, data, bytes);
  end_ += bytes;
}

void AtomicFile::write_at(uint64_t offset, const void* data, size_t bytes) {
  HEED_CHECK(file_.valid(), StateError, "cannot write '", path_, "': the file was already synced");
  constexpr size_t kMax = size_t{1} << 30;  // below what one call may transfer
  const char* p = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t put = ::pwrite(file_.get(), p, std::min(bytes, kMax), static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) fail(concat("write ", bytes, " bytes at byte ", offset).c_str(), put < 0 ? errno : ENOSPC);
    p += put;
    offset += static_cast<uint64_t>(put);
    bytes -= static_cast<size_t>(put);
  }
}

void AtomicFile::sync() {
  if (!file_.valid()) return;
  if (retry_fsync(file_.get()) != 0) fail("sync the data to the disk", errno);
  lock_ = FileDescriptor(::fcntl(file_.get(), F_DUPFD_CLOEXEC, 0));
  if (::close(file_.release()) != 0 && errno != EINTR) fail("close the temporary file", errno);
}

void AtomicFile::commit() {
  HEED_CHECK(!temporary_.empty(), StateError, "cannot commit '", path_, "' twice");
  sync();
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("rename the temporary file", errno);
  temporary_.clear();
  const FileDescriptor folder = open_folder(detail::parent_folder(path_));
  // EINVAL: a file system that has nothing to sync for a folder. EACCES: one that may be written but not
  // listed.
  const bool synced = folder.valid() ? retry_fsync(folder.get()) == 0 || errno == EINVAL : errno == EACCES;
  HEED_CHECK(synced, IoError, "wrote '", path_,
             "', but failed to sync its folder: ", detail::error_text(errno),
             "; a power failure now could bring the earlier file back");
}

bool is_temporary_file(std::string_view name) {
  const size_t mark = name.rfind(kMark);
  if (mark == std::string_view::npos || mark == 0) return false;
  const std::string_view rest = name.substr(mark + sizeof kMark - 1);
  const auto digits = [](std::string_view text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
  };
  const size_t dash = rest.find('-');
  return dash != std::string_view::npos && digits(rest.substr(0, dash)) && digits(rest.substr(dash + 1));
}

void remove_orphans(const std::string& folder) {
  std::vector<std::string> names;
  try {
    names = folder_entries(folder);
  } catch (const IoError&) {  // one that may be written but not listed
  }
  for (const std::string& name : names) {
    if (!is_temporary_file(name)) continue;
    const std::string path = concat(folder, '/', name);
    const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    struct stat info;
    const bool regular = file.valid() && ::fstat(file.get(), &info) == 0 && S_ISREG(info.st_mode);
    if (regular && ::flock(file.get(), LOCK_EX | LOCK_NB) == 0) ::unlink(path.c_str());
  }
}

void write_whole_file(const std::string& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

}  // namespace heed
