// Keeps two processes from writing checkpoints into one folder.
#pragma once

#include <string>

#include <heed/core/io/file.h>

namespace heed {

/// The file in a folder that carries its lock, and stays.
inline constexpr char kDirectoryLockFile[] = ".heed.lock";

/// Holds an exclusive lock on a folder while it lives; the system drops it when the process ends, however it
/// ends. A symbolic link in the place of its file is replaced. CheckpointError naming the holder's process
/// and host if another object, here or elsewhere, holds it; IoError if the folder cannot be written. Once
/// held, it removes the orphans that killed writers left there (remove_orphans).
class DirectoryLock {
 public:
  explicit DirectoryLock(const std::string& folder);

 private:
  FileDescriptor file_;
};

}  // namespace heed
