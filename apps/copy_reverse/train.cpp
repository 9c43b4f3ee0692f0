#include <heed/core/base/divide.h>
#include <heed/core/io/atomic_file.h>
#include <heed/core/io/directory_lock.h>
#include <heed/nn/inspection.h>
#include <heed/nn/weights.h>

#include "apps/common/event_file.h"
#include "apps/common/seq2seq_trainer.h"
#include "apps/copy_reverse/commands.h"
#include "apps/copy_reverse/run_output.h"

namespace heed::apps {
namespace {

namespace fs = std::filesystem;

bool is_there(const fs::path& file) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(file, ignored));
}

// The lock of a folder that holds nothing which would be lost by accident. Before it is ours, nothing
// changes.
DirectoryLock lock_directory(const Settings& s) {
  std::error_code error;
  fs::create_directories(s.out, error);
  HEED_CHECK(!error, IoError, "cannot make the folder ", s.out.string(), ": ", error.message());
  const bool may_replace = s.resume || s.force;
  if (!may_replace && !is_there(s.out / kDirectoryLockFile))
    for (const char* name : {"config.toml", "metrics.jsonl", "report.html"})
      HEED_CHECK(!is_there(s.out / name), ConfigError, "--out ", s.out.string(), " holds a ", name,
                 " that is of no run here; add --force to replace it");
  DirectoryLock lock(s.out);
  const bool used = is_there(s.out / "model.safetensors") || has_checkpoint(s.out);
  HEED_CHECK(!used || may_replace, ConfigError, "--out ", s.out.string(),
             " holds a model already; add --force to replace it or --resume to go on");
  return lock;
}

// Removes what an earlier run left, but for its model, which stays until there is a new one. A run that goes
// on appends to its metrics, but through no link.
void prepare_directory(const Settings& s) {
  const fs::path metrics = s.out / "metrics.jsonl";
  if (!s.resume || fs::is_symlink(metrics)) fs::remove(metrics);
  if (s.resume) return;
  remove_checkpoints(s.out);
  remove_event_files(s.out);
  fs::remove(s.out / "report.html");
}

void save_model(const Settings& s, const OptionTable& table, nn::Transformer& model) {
  nn::save_weights(model, s.out / "model.safetensors");
  write_whole_file(s.out / "config.toml", table.dump_toml());
}

}  // namespace

void train(Settings& s, OptionTable& table) {
  if (s.resume) table.read_toml(saved_settings(s.out), "the settings of the checkpoint");
  s.check();
  HEED_CHECK(!s.resume || has_checkpoint(s.out), CheckpointError, s.out.string(),
             ": there is no checkpoint to resume from");
  const Device device = apply(s);
  const auto pairs = s.training_data();
  const auto valid = s.validation_data();
  s.check_lengths(*pairs);
  if (valid) s.check_lengths(*valid);
  const DirectoryLock lock = lock_directory(s);
  prepare_directory(s);

  const std::unique_ptr<nn::Transformer> model = make_model(s);
  if (!s.init.empty()) {
    nn::load_weights(*model, s.init);
    nn::check_finite(*model, s.init);
  }
  model->to(s.dtype);
  model->to(device);
  const auto optimizer = make_optimizer(s, *model);
  data::PairLoader loader(pairs, s.loader_options());
  const int64_t accumulate = s.accumulate.value_or(1);
  Seq2SeqTrainer trainer(*model, *optimizer, loader,
                         {.epochs = s.last_epoch(),
                          .steps = s.steps.value_or(INT64_MAX),
                          .accumulate = accumulate,
                          .clip = s.clip,
                          .label_smoothing = s.label_smoothing,
                          .schedule = s.rate_schedule(ceil_divide(loader.count_batches(0), accumulate)),
                          .save_every = s.save_every,
                          .directory = s.out,
                          .settings = table.dump_toml(),
                          .data = pairs->fingerprint()});
  if (s.resume) trainer.resume();

  RunOutput output(s, table, *model, *pairs, valid ? *valid : *pairs, trainer.state().epoch);
  output.begin(device);
  const bool ended =
      trainer.run([&](const EpochReport& report) { output.epoch(report); },
                  [&](int64_t count, double loss) { output.batch(trainer.state().epoch, count, loss); });
  if (!ended) return output.stopped(trainer.state().step);
  save_model(s, table, *model);
  output.end(trainer.state().step);
}

}  // namespace heed::apps
