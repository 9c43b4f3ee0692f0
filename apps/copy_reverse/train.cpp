#include <heed/core/base/divide.h>
#include <heed/core/io/atomic_file.h>
#include <heed/nn/inspection.h>
#include <heed/nn/weights.h>
#include <heed/train/run_folder.h>
#include <heed/train/trainer.h>

#include "apps/common/program.h"
#include "apps/copy_reverse/commands.h"
#include "apps/copy_reverse/run_output.h"

namespace heed::apps {
namespace {

void save_model(const Settings& s, const OptionTable& table, nn::Transformer& model) {
  nn::save_weights(model, s.out / "model.safetensors");
  write_whole_file(s.out / "config.toml", table.dump_toml());
}

}  // namespace

void train(Settings& s, OptionTable& table) {
  if (s.resume) table.read_toml(train::saved_settings(s.out), "the settings of the checkpoint");
  s.check();
  HEED_CHECK(!s.resume || train::has_checkpoint(s.out), CheckpointError, s.out.string(),
             ": there is no checkpoint to resume from");
  const Device device = apply(s);
  const auto pairs = s.training_data();
  const auto valid = s.validation_data();
  s.check_lengths(*pairs);
  if (valid) s.check_lengths(*valid);
  const train::RunStart start = s.resume  ? train::RunStart::resume
                                : s.force ? train::RunStart::replace
                                          : train::RunStart::fresh;
  const DirectoryLock lock =
      train::lock_run_folder(s.out, start, "add --force to replace it or --resume to go on");
  train::prepare_run_folder(s.out, start);

  const std::unique_ptr<nn::Transformer> model = make_model(s, s.model_config(), s.seed);
  if (!s.init.empty()) {
    nn::load_weights(*model, s.init);
    nn::check_finite(*model, s.init);
  }
  model->to(s.dtype);
  model->to(device);
  const auto optimizer = make_optimizer(s, *model);
  data::PairLoader loader(pairs, s.loader_options(), s.marks());
  const int64_t accumulate = s.accumulate.value_or(1);
  train::Seq2SeqTrainer trainer(
      *model, *optimizer, loader,
      {.epochs = s.last_epoch(),
       .steps = s.steps.value_or(INT64_MAX),
       .accumulate = accumulate,
       .clip = s.clip,
       .label_smoothing = s.label_smoothing,
       .schedule = s.rate_schedule(ceil_divide(loader.count_batches(0), accumulate)),
       .save_every = s.save_every,
       .directory = s.out,
       .settings = table.dump_toml(),
       .data = pairs->fingerprint(),
       .stop = stop_requested});
  if (s.resume) trainer.resume();

  RunOutput output(s, table, *model, *pairs, valid ? *valid : *pairs, trainer.state().epoch);
  output.begin(device);
  const bool ended =
      trainer.run([&](const train::EpochReport& report) { output.epoch(report); },
                  [&](int64_t count, double loss) { output.batch(trainer.state().epoch, count, loss); });
  if (!ended) return output.stopped(trainer.state().step);
  save_model(s, table, *model);
  output.end(trainer.state().step);
}

}  // namespace heed::apps
