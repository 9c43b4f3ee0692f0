// Keeps two processes from writing checkpoints into one folder.
#pragma once

#include <string>

#include <heed/core/io/file.h>

namespace heed {

/// Holds an exclusive lock on a folder while it lives; the system drops it when the process ends, however it
/// ends. CheckpointError naming the holder's process and host if another object, here or elsewhere, holds it;
/// IoError if the folder cannot be written.
class DirectoryLock {
 public:
  explicit DirectoryLock(const std::string& folder);

 private:
  FileDescriptor file_;
};

}  // namespace heed
