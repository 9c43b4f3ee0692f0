#include "faulty_system.h"

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

#include <climits>

namespace heed::test {
namespace {
FaultySystem* active = nullptr;

std::string path_of(int fd) {
  char link[64];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  char path[PATH_MAX];
  const ssize_t length = ::readlink(link, path, sizeof path);
  return length > 0 ? std::string(path, static_cast<size_t>(length)) : "";
}

bool watched(int fd) { return active && active->watches(path_of(fd)); }
bool watched(const char* path) { return active && active->watches(path); }

/// -1 with the injected errno if this call is the one to fail.
bool injected(const char* call) {
  if (!active->fails(call)) return false;
  errno = active->error();
  return true;
}
}  // namespace

FaultySystem::FaultySystem(std::string folder, int64_t fail_at, int error, bool short_write)
    : folder_(std::move(folder)), fail_at_(fail_at), error_(error), short_write_(short_write) {
  active = this;
}

FaultySystem::~FaultySystem() { active = nullptr; }

bool FaultySystem::fails(const char* call) {
  const bool now = persistent_ ? fail_at_ >= 0 && calls_ >= fail_at_ : calls_ == fail_at_;
  if (now && failed_call_.empty()) failed_call_ = call;
  ++calls_;
  return now;
}

}  // namespace heed::test

using heed::test::active;
using heed::test::injected;
using heed::test::SystemCall;
using heed::test::watched;

// These take the place of the C library's functions in the test program.
extern "C" {

int open(const char* path, int flags, ...) {
  mode_t mode = 0;
  if (flags & O_CREAT) {
    va_list arguments;
    va_start(arguments, flags);
    mode = va_arg(arguments, mode_t);
    va_end(arguments);
  }
  if (watched(path)) {
    if (injected("open")) return -1;
    if (flags & O_CREAT) active->record({SystemCall::kCreate, path, "", 0, ""});
  }
  return static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}

ssize_t pwrite(int fd, const void* data, size_t bytes, off_t offset) {
  if (watched(fd)) {
    const bool shorter = active->short_write();
    if (injected("pwrite")) {
      if (!shorter) return -1;
      bytes = (bytes + 1) / 2;
    }
    active->record({SystemCall::kWrite, heed::test::path_of(fd), "", static_cast<uint64_t>(offset),
                    std::string(static_cast<const char*>(data), bytes)});
  }
  return ::syscall(SYS_pwrite64, fd, data, bytes, offset);
}

ssize_t pread(int fd, void* data, size_t bytes, off_t offset) {
  if (watched(fd) && injected("pread")) {
    if (!active->short_write()) return -1;
    bytes = (bytes + 1) / 2;
  }
  return ::syscall(SYS_pread64, fd, data, bytes, offset);
}

ssize_t read(int fd, void* data, size_t bytes) {
  if (watched(fd) && injected("read")) {
    if (!active->short_write()) return -1;
    bytes = (bytes + 1) / 2;
  }
  return ::syscall(SYS_read, fd, data, bytes);
}

int fsync(int fd) {
  if (watched(fd)) {
    if (injected("fsync")) return -1;
    struct stat info;
    const bool folder = ::fstat(fd, &info) == 0 && S_ISDIR(info.st_mode);
    active->record(
        {folder ? SystemCall::kSyncFolder : SystemCall::kSyncFile, heed::test::path_of(fd), "", 0, ""});
  }
  return static_cast<int>(::syscall(SYS_fsync, fd));
}

int close(int fd) {
  const bool fail = watched(fd) && injected("close");
  const int error = errno;
  const int status = static_cast<int>(::syscall(SYS_close, fd));
  if (!fail) return status;
  errno = error;
  return -1;
}

int rename(const char* from, const char* to) {
  if (watched(from)) {
    if (injected("rename")) return -1;
    active->record({SystemCall::kRename, from, to, 0, ""});
  }
  return static_cast<int>(::syscall(SYS_renameat, AT_FDCWD, from, AT_FDCWD, to));
}

int unlink(const char* path) {
  if (watched(path)) active->record({SystemCall::kUnlink, path, "", 0, ""});
  return static_cast<int>(::syscall(SYS_unlinkat, AT_FDCWD, path, 0));
}

}  // extern "C"
