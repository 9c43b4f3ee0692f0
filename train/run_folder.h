// The folder of a training run, and what an earlier one left in it.
#pragma once

#include <filesystem>
#include <string_view>

#include <heed/core/io/directory_lock.h>

namespace heed::train {

/// What a run does with what its folder holds: nothing may be there, go on from it, or put its own in place.
enum class RunStart { fresh, resume, replace };

/// The lock of a folder that holds nothing which would be lost by accident; the folder is made where it is
/// missing. Before it is ours, nothing changes. ConfigError where a fresh run finds a model or checkpoints,
/// or a config.toml, metrics.jsonl, steps.jsonl or report.html of no run; `hint` ends the message. IoError;
/// what DirectoryLock throws.
DirectoryLock lock_run_folder(const std::filesystem::path& folder, RunStart start,
                              std::string_view hint = "replace it or resume its run");

/// Removes what an earlier run left, but for its model, which stays until there is a new one: checkpoints,
/// metrics.jsonl, steps.jsonl, event files and report.html. A run that goes on appends to its metrics, but
/// through no link.
void prepare_run_folder(const std::filesystem::path& folder, RunStart start);

}  // namespace heed::train
