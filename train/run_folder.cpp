#include <heed/core/base/check.h>
#include <heed/train/checkpoint.h>
#include <heed/train/event_file.h>
#include <heed/train/run_folder.h>

namespace heed::train {
namespace {

namespace fs = std::filesystem;

bool is_there(const fs::path& file) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(file, ignored));
}

}  // namespace

DirectoryLock lock_run_folder(const fs::path& folder, RunStart start, std::string_view hint) {
  std::error_code error;
  fs::create_directories(folder, error);
  HEED_CHECK(!error, IoError, "cannot make the folder ", folder.string(), ": ", error.message());
  const bool fresh = start == RunStart::fresh;
  if (fresh && !is_there(folder / kDirectoryLockFile))
    for (const char* name : {"config.toml", "metrics.jsonl", "steps.jsonl", "report.html"})
      HEED_CHECK(!is_there(folder / name), ConfigError, folder.string(), " holds a ", name,
                 " that is of no run here; ", hint);
  DirectoryLock lock(folder);
  const bool used = is_there(folder / "model.safetensors") || has_checkpoint(folder);
  HEED_CHECK(!used || !fresh, ConfigError, folder.string(), " holds a model already; ", hint);
  return lock;
}

void prepare_run_folder(const fs::path& folder, RunStart start) {
  const bool resume = start == RunStart::resume;
  for (const char* metrics : {"metrics.jsonl", "steps.jsonl"})
    if (!resume || fs::is_symlink(folder / metrics)) fs::remove(folder / metrics);
  if (resume) return;
  remove_checkpoints(folder);
  remove_event_files(folder);
  fs::remove(folder / "report.html");
}

}  // namespace heed::train
