#include <cerrno>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <heed/core/base/check.h>
#include <heed/core/io/atomic_file.h>
#include <heed/core/io/directory_lock.h>

namespace heed {

DirectoryLock::DirectoryLock(const std::string& folder) {
  const std::string path = concat(folder, '/', kDirectoryLockFile);
  const auto open = [&] { return ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666); };
  file_ = FileDescriptor(open());
  if (!file_.valid() && errno == ELOOP && ::unlink(path.c_str()) == 0) file_ = FileDescriptor(open());
  HEED_CHECK(file_.valid(), IoError, "cannot lock '", folder, "': ", detail::error_text(errno));
  int status;
  do {
    status = ::flock(file_.get(), LOCK_EX | LOCK_NB);
  } while (status != 0 && errno == EINTR);
  if (status != 0) {
    const int error = errno;
    HEED_CHECK(error == EWOULDBLOCK, IoError, "cannot lock '", folder, "': ", detail::error_text(error));
    char holder[300] = {};
    const ssize_t got = ::pread(file_.get(), holder, sizeof holder - 1, 0);
    throw CheckpointError(concat("cannot write to '", folder, "': ", got > 0 ? holder : "another process",
                                 " is writing there; choose another folder or stop it"));
  }
  char host[256] = {};
  if (::gethostname(host, sizeof host - 1) != 0) host[0] = '?';
  const std::string self = concat("process ", ::getpid(), " on ", host);
  const bool written = ::ftruncate(file_.get(), 0) == 0 && ::pwrite(file_.get(), self.data(), self.size(),
                                                                    0) == static_cast<ssize_t>(self.size());
  HEED_CHECK(written, IoError, "cannot lock '", folder, "': ", detail::error_text(errno));
  remove_orphans(folder);
}

}  // namespace heed
