#include "apps/common/run_folder.h"

#include <heed/core/base/check.h>

#include "apps/common/checkpoint.h"
#include "apps/common/event_file.h"

namespace heed::apps {
namespace {

namespace fs = std::filesystem;

bool is_there(const fs::path& file) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(file, ignored));
}

}  // namespace

DirectoryLock lock_run_folder(const fs::path& folder, bool resume, bool force) {
  std::error_code error;
  fs::create_directories(folder, error);
  HEED_CHECK(!error, IoError, "cannot make the folder ", folder.string(), ": ", error.message());
  const bool may_replace = resume || force;
  if (!may_replace && !is_there(folder / kDirectoryLockFile))
    for (const char* name : {"config.toml", "metrics.jsonl", "report.html"})
      HEED_CHECK(!is_there(folder / name), ConfigError, "--out ", folder.string(), " holds a ", name,
                 " that is of no run here; add --force to replace it");
  DirectoryLock lock(folder);
  const bool used = is_there(folder / "model.safetensors") || has_checkpoint(folder);
  HEED_CHECK(!used || may_replace, ConfigError, "--out ", folder.string(),
             " holds a model already; add --force to replace it or --resume to go on");
  return lock;
}

void prepare_run_folder(const fs::path& folder, bool resume) {
  const fs::path metrics = folder / "metrics.jsonl";
  if (!resume || fs::is_symlink(metrics)) fs::remove(metrics);
  if (resume) return;
  remove_checkpoints(folder);
  remove_event_files(folder);
  fs::remove(folder / "report.html");
}

}  // namespace heed::apps
