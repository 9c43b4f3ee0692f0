// Preloaded into a program, it makes one call of the program to the system fail, or all calls from one on.
//
//   HEED_FAULT=memory:7    the eighth allocation after main has begun (malloc and its kin, anonymous mmap)
//   HEED_FAULT=memory:7+   that one and all after it
//   HEED_FAULT=thread:0    the first pthread_create
//   HEED_FAULT=file:3      the fourth call that opens, reads, writes, syncs, renames, removes, shortens or
//   closes a file,
//                          or makes a folder
//   HEED_FAULT_COUNTS=F    F, a file of three 64-bit integers, counts the calls of each kind
//
// Nothing is synced: a test that kills no machine has no use for it.
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../replaced_malloc.h"

namespace {

enum Kind { kMemory, kThread, kFile, kKinds };

std::atomic<bool> armed{false};
std::atomic<int64_t> own_counts[kKinds];
std::atomic<int64_t>* counts = own_counts;
int fault_kind = -1;
int64_t fault_at = 0;
bool and_after = false;
uintptr_t libc_begin = 0, libc_end = 0;

void read_settings() {
  if (const char* fault = std::getenv("HEED_FAULT")) {
    const char* const names[kKinds] = {"memory:", "thread:", "file:"};
    for (int kind = 0; kind < kKinds; ++kind) {
      const size_t length = std::strlen(names[kind]);
      if (std::strncmp(fault, names[kind], length) != 0) continue;
      char* end = nullptr;
      fault_kind = kind;
      fault_at = std::strtoll(fault + length, &end, 10);
      and_after = *end == '+';
    }
  }
  if (const char* file = std::getenv("HEED_FAULT_COUNTS")) {
    const int fd = static_cast<int>(::syscall(SYS_openat, AT_FDCWD, file, O_RDWR, 0));
    void* shared = fd < 0 ? MAP_FAILED
                          : reinterpret_cast<void*>(::syscall(SYS_mmap, nullptr, sizeof own_counts,
                                                              PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    if (shared != MAP_FAILED) counts = static_cast<std::atomic<int64_t>*>(shared);
    ::syscall(SYS_close, fd);
  }
}

// Where the C library lies: some of its own allocations may not fail by its design.
int find_libc(dl_phdr_info* info, size_t, void*) {
  if (!std::strstr(info->dlpi_name, "/libc.so")) return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    if (info->dlpi_phdr[i].p_type != PT_LOAD) continue;
    const uintptr_t begin = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr,
                    end = begin + info->dlpi_phdr[i].p_memsz;
    if (libc_begin == 0 || begin < libc_begin) libc_begin = begin;
    if (end > libc_end) libc_end = end;
  }
  return 1;
}

// Counts a call; whether it is to fail.
bool fails(Kind kind, int error) {
  if (!armed.load(std::memory_order_relaxed)) return false;
  const int64_t number = counts[kind].fetch_add(1);
  if (kind != fault_kind || (and_after ? number < fault_at : number != fault_at)) return false;
  errno = error;
  return true;
}

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

int (*real_main)(int, char**, char**) = nullptr;

int armed_main(int argc, char** argv, char** environment) {
  read_settings();
  ::dl_iterate_phdr(find_libc, nullptr);
  armed = true;
  return real_main(argc, argv, environment);
}

}  // namespace

static bool allocation_fails(const void* caller) {
  const auto address = reinterpret_cast<uintptr_t>(caller);
  return (address < libc_begin || address >= libc_end) && fails(kMemory, ENOMEM);
}

extern "C" {

int __libc_start_main(int (*main)(int, char**, char**), int argc, char** argv,
                      int (*init)(int, char**, char**), void (*fini)(), void (*end)(), void* stack) {
  real_main = main;
  return next<decltype(__libc_start_main)>("__libc_start_main")(armed_main, argc, argv, init, fini, end,
                                                                stack);
}

void* mmap(void* address, size_t bytes, int protection, int flags, int fd, off_t offset) noexcept {
  if ((flags & MAP_ANONYMOUS) && allocation_fails(__builtin_return_address(0))) return MAP_FAILED;
  return reinterpret_cast<void*>(::syscall(SYS_mmap, address, bytes, protection, flags, fd, offset));
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*function)(void*),
                   void* argument) {
  if (fails(kThread, EAGAIN)) return EAGAIN;
  static const auto real =
      next<int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)>("pthread_create");
  return real(thread, attributes, function, argument);
}

int open(const char* path, int flags, ...) {
  mode_t mode = 0;
  if (flags & O_CREAT) {
    va_list arguments;
    va_start(arguments, flags);
    mode = va_arg(arguments, mode_t);
    va_end(arguments);
  }
  if (fails(kFile, EIO)) return -1;
  return static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}
ssize_t read(int fd, void* data, size_t bytes) {
  return fails(kFile, EIO) ? -1 : ::syscall(SYS_read, fd, data, bytes);
}
ssize_t pread(int fd, void* data, size_t bytes, off_t offset) {
  return fails(kFile, EIO) ? -1 : ::syscall(SYS_pread64, fd, data, bytes, offset);
}
ssize_t write(int fd, const void* data, size_t bytes) {
  return fails(kFile, ENOSPC) ? -1 : ::syscall(SYS_write, fd, data, bytes);
}
ssize_t pwrite(int fd, const void* data, size_t bytes, off_t offset) {
  if (!fails(kFile, ENOSPC)) return ::syscall(SYS_pwrite64, fd, data, bytes, offset);
  ::syscall(SYS_pwrite64, fd, data, bytes / 2, offset);  // a part of it is there
  errno = ENOSPC;
  return -1;
}
int fsync(int) { return fails(kFile, EIO) ? -1 : 0; }
int ftruncate(int fd, off_t size) noexcept {
  return fails(kFile, EIO) ? -1 : static_cast<int>(::syscall(SYS_ftruncate, fd, size));
}
int close(int fd) {
  const bool fail = fails(kFile, EIO);
  const int status = static_cast<int>(::syscall(SYS_close, fd));
  if (fail) errno = EIO;
  return fail ? -1 : status;
}
int rename(const char* from, const char* to) noexcept {
  return fails(kFile, EIO) ? -1 : static_cast<int>(::syscall(SYS_renameat, AT_FDCWD, from, AT_FDCWD, to));
}
int unlink(const char* path) noexcept {
  return fails(kFile, EIO) ? -1 : static_cast<int>(::syscall(SYS_unlinkat, AT_FDCWD, path, 0));
}
int mkdir(const char* path, mode_t mode) noexcept {
  return fails(kFile, EIO) ? -1 : static_cast<int>(::syscall(SYS_mkdirat, AT_FDCWD, path, mode));
}
DIR* opendir(const char* path) {
  if (fails(kFile, EIO)) return nullptr;
  static const auto real = next<DIR*(const char*)>("opendir");
  return real(path);
}
FILE* fopen(const char* path, const char* mode) {
  if (fails(kFile, EIO)) return nullptr;
  static const auto real = next<FILE*(const char*, const char*)>("fopen");
  return real(path, mode);
}

}  // extern "C"
