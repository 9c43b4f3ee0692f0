// Stands between heed and the operating system's file calls: fails the n-th one, or records what was written.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace heed::test {

/// One call that heed made, as the crash model needs it.
struct SystemCall {
  enum Kind { kCreate, kWrite, kSyncFile, kRename, kSyncFolder, kUnlink } kind;
  std::string path;    // of the file, or the rename's source
  std::string target;  // of a rename
  uint64_t offset = 0;
  std::string data;
};

/// While it lives, calls on files below `folder` are counted and recorded, and the one numbered `fail_at`
/// (from 0) fails: with `error`, or, if `short_write`, by writing half of what it was given, once.
class FaultySystem {
 public:
  explicit FaultySystem(std::string folder, int64_t fail_at = -1, int error = 0, bool short_write = false);
  ~FaultySystem();
  FaultySystem(const FaultySystem&) = delete;
  FaultySystem& operator=(const FaultySystem&) = delete;

  /// Fails every call from fail_at on, not just that one.
  void persist() { persistent_ = true; }

  int64_t calls() const { return calls_; }
  const std::string& failed_call() const { return failed_call_; }
  const std::vector<SystemCall>& log() const { return log_; }

  /// Used by the replaced functions: counts a call; true if it must fail.
  bool fails(const char* call);
  bool watches(const std::string& path) const { return path.compare(0, folder_.size(), folder_) == 0; }
  bool short_write() const { return short_write_; }
  int error() const { return error_; }
  void record(SystemCall call) { log_.push_back(std::move(call)); }

 private:
  std::string folder_;
  int64_t fail_at_;
  int error_;
  bool short_write_;
  bool persistent_ = false;
  int64_t calls_ = 0;
  std::string failed_call_;
  std::vector<SystemCall> log_;
};

}  // namespace heed::test
