#include <heed/core/io/atomic_file.h>
#include <heed/nn/inspection.h>
#include <heed/nn/weights.h>
#include <heed/train/seq2seq.h>

#include "apps/common/program.h"
#include "apps/copy_reverse/commands.h"
#include "apps/copy_reverse/run_output.h"

namespace heed::apps {
namespace {

void save_model(const Settings& s, const OptionTable& table, nn::Seq2SeqModel& model) {
  nn::save_weights(model, s.out / "model.safetensors");
  write_whole_file(s.out / "config.toml", table.dump_toml());
}

}  // namespace

void train(Settings& s, OptionTable& table) {
  take_saved_settings(s, table);
  s.check();
  const Device device = apply(s);
  HEED_CHECK(s.model == SequenceModel::transformer || device.is_cpu(), ConfigError, "--device ", s.device,
             ": recurrent models are trained on the CPU, which knows the lengths");
  const auto pairs = s.training_data();
  const auto valid = s.validation_data();
  s.check_training_lengths(*pairs);
  if (valid) s.check_lengths(*valid);
  const DirectoryLock lock = open_run_folder(s);

  const std::unique_ptr<nn::Seq2SeqModel> model = make_model(s);
  if (!s.init.empty()) {
    nn::load_weights(*model, s.init);
    nn::check_finite(*model, s.init);
  }
  model->to(s.dtype);
  model->to(device);
  const auto optimizer = make_optimizer(s, *model);
  data::PairLoader loader(pairs, s.loader_options(), s.marks());
  train::Trainer trainer(*model, *optimizer, train::seq2seq_batches(loader, device, s.positions_to_train()),
                         train::seq2seq_loss(*model, s.label_smoothing),
                         trainer_options(s, s, table, loader.count_batches(0), pairs->fingerprint()));
  if (s.resume) trainer.resume();

  RunOutput output(s, table, *model, *pairs, valid ? *valid : *pairs, trainer.state());
  output.begin(device);
  const bool ended = trainer.run({.step = [&](const train::StepReport& report) { output.step(report); },
                                  .epoch =
                                      [&](const train::EpochReport& report) {
                                        const train::AveragedWeights averaged(trainer);
                                        output.epoch(report);
                                      },
                                  .stop = stop_requested});
  const train::AveragedWeights averaged(trainer);
  if (!ended) return output.stopped(trainer.state().step);
  save_model(s, table, *model);
  output.end(trainer.state().step);
}

}  // namespace heed::apps
