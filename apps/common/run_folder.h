// The folder of a training run, and what an earlier one left in it.
#pragma once

#include <filesystem>

#include <heed/core/io/directory_lock.h>

namespace heed::apps {

/// The lock of a folder that holds nothing which would be lost by accident; the folder is made where it is
/// missing. Before it is ours, nothing changes. ConfigError for a folder that holds a model (unless the run
/// resumes it or is forced to replace it) or files of no run; IoError; what DirectoryLock throws.
DirectoryLock lock_run_folder(const std::filesystem::path& folder, bool resume, bool force);

/// Removes what an earlier run left, but for its model, which stays until there is a new one. A run that goes
/// on appends to its metrics, but through no link.
void prepare_run_folder(const std::filesystem::path& folder, bool resume);

}  // namespace heed::apps
