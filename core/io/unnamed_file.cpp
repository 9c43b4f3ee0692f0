#include <algorithm>
#include <atomic>
#include <cerrno>
#include <fcntl.h>
#include <unistd.h>

#include <heed/core/base/check.h>
#include <heed/core/io/unnamed_file.h>

namespace heed {
namespace {

constexpr size_t kWaiting = 1 << 20;      // bytes that are handed over together
constexpr size_t kMax = size_t{1} << 30;  // below what one call may transfer

/// As one of AtomicFile's: should the process be killed before it is unlinked, it is an orphan.
std::string temporary_name(const std::string& folder) {
  static std::atomic<unsigned> counter{0};
  return concat(folder, "/unnamed.tmp-", ::getpid(), '-', counter++);
}

}  // namespace

UnnamedFile::UnnamedFile(std::string folder) : folder_(std::move(folder)) {
  while (!file_.valid()) {
    const std::string name = temporary_name(folder_);
    const int fd = ::open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 && (errno == EEXIST || errno == EINTR)) continue;
    if (fd < 0) fail("create it", errno);
    file_ = FileDescriptor(fd);
    if (::unlink(name.c_str()) != 0) fail("take its name away", errno);
  }
}

void UnnamedFile::fail(const char* action, int error) const {
  throw IoError(
      concat("a temporary file in '", folder_, "': failed to ", action, ": ", detail::error_text(error)));
}

void UnnamedFile::append(std::span<const std::byte> bytes) {
  waiting_.insert(waiting_.end(), bytes.begin(), bytes.end());
  size_ += bytes.size();
  if (waiting_.size() >= kWaiting) flush();
}

void UnnamedFile::flush() {
  std::span<const std::byte> rest = waiting_;
  while (!rest.empty()) {
    const ssize_t put = ::pwrite(file_.get(), rest.data(), std::min(rest.size(), kMax),
                                 static_cast<off_t>(size_ - rest.size()));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) fail(concat("write ", rest.size(), " bytes").c_str(), put < 0 ? errno : ENOSPC);
    rest = rest.subspan(static_cast<size_t>(put));
  }
  waiting_.clear();
}

void UnnamedFile::read_at(uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t got =
        ::pread(file_.get(), out.data(), std::min(out.size(), kMax), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("read it", errno);
    HEED_ASSERT(got > 0, "a file that no one else has became shorter");
    offset += static_cast<uint64_t>(got);
    out = out.subspan(static_cast<size_t>(got));
  }
}

}  // namespace heed
