#include <heed/core/io/atomic_file.h>
#include <heed/core/io/directory_lock.h>
#include <heed/nn/weights.h>

#include "apps/common/event_file.h"
#include "apps/common/seq2seq_trainer.h"
#include "apps/copy_reverse/commands.h"
#include "apps/copy_reverse/run_output.h"

namespace heed::apps {
namespace {

namespace fs = std::filesystem;

// The folder is there, ours alone, and holds nothing that would be lost by accident.
void prepare_directory(const Settings& s) {
  fs::create_directories(s.out);
  if (s.resume) return;
  const bool used = fs::exists(s.out / "model.safetensors") || has_checkpoint(s.out);
  HEED_CHECK(!used || s.force, ConfigError, "--out ", s.out.string(),
             " holds a model already; add --force to replace it or --resume to go on");
  remove_checkpoints(s.out);
  remove_event_files(s.out);
  fs::remove(s.out / "report.html");
}

void save_model(const Settings& s, const OptionTable& table, nn::Transformer& model) {
  nn::save_weights(model, s.out / "model.safetensors");
  AtomicFile file(s.out / "config.toml");
  const std::string text = table.dump_toml();
  file.write(text.data(), text.size());
  file.commit();
}

}  // namespace

void train(Settings& s, OptionTable& table) {
  if (s.resume) table.read_toml(saved_settings(s.out), "the settings of the checkpoint");
  s.check();
  const Device device = apply(s);
  const auto pairs = s.training_data();
  const auto valid = s.validation_data();
  prepare_directory(s);
  const DirectoryLock lock(s.out);

  const std::unique_ptr<nn::Transformer> model = make_model(s);
  if (!s.init.empty()) nn::load_weights(*model, s.init);
  model->to(s.dtype);
  model->to(device);
  const auto optimizer = make_optimizer(s, *model);
  data::PairLoader loader(pairs, s.loader_options());
  Seq2SeqTrainer trainer(*model, *optimizer, loader,
                         {.epochs = s.last_epoch(),
                          .steps = s.steps.value_or(INT64_MAX),
                          .clip = s.clip,
                          .label_smoothing = s.label_smoothing,
                          .schedule = s.rate_schedule(loader.count_batches(0)),
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
