#include <optional>

#include <heed/core/io/atomic_file.h>
#include <heed/nn/inspection.h>
#include <heed/train/seq2seq.h>

#include "apps/common/program.h"
#include "apps/translate/commands.h"
#include "apps/translate/train_output.h"

namespace heed::apps {
namespace {

// Room for outputs longer than any target of training.
int64_t max_output(int64_t longest_target) { return longest_target + longest_target / 2 + 10; }

}  // namespace

void train(Settings& s, OptionTable& table) {
  take_saved_settings(s, table);
  s.check();
  const Device device = apply(s);
  const Corpus corpus = read_corpus(s);
  const Tokenizers tokenizers = train_tokenizers(s, s, corpus);
  std::optional<DirectoryLock> lock;  // taken once the texts are known to be good, or where they are to lie
  if (s.stream) lock.emplace(open_run_folder(s));
  const TrainingPairs training = encode_training(corpus, tokenizers, s);
  const auto& pairs = training.pairs;
  const data::TextDataset valid(corpus.splits.valid, *tokenizers.source, *tokenizers.target, s.max_tokens);
  if (!lock) lock.emplace(open_run_folder(s));

  const std::shared_ptr<nn::Transformer> model =
      make_model(s, s.model_config(tokenizers.source->vocab(), tokenizers.target->vocab()));
  model->to(s.dtype);
  model->to(device);
  const auto optimizer = make_optimizer(s, *model);
  data::PairLoader loader(pairs, s.loader_options());
  train::Trainer trainer(
      *model, *optimizer,
      train::seq2seq_batches(loader, device,
                             {.range = s.random_positions, .seed = static_cast<uint64_t>(s.seed)}),
      train::seq2seq_loss(*model, s.label_smoothing),
      trainer_options(s, s, table, loader.count_batches(0), pairs->fingerprint()));
  if (s.resume) trainer.resume();

  const nn::TextModel text_model(model, tokenizers.source, tokenizers.target,
                                 max_output(pairs->longest_target()));
  write_whole_file(s.out / "config.toml", table.dump_toml());
  TrainOutput output(s, corpus, text_model, training, valid, trainer.state());
  output.begin(device);
  if (output.exhausted()) trainer.finish();
  const bool ended = trainer.run({.step = [&](const train::StepReport& report) { output.step(report); },
                                  .epoch =
                                      [&](const train::EpochReport& report) {
                                        const train::AveragedWeights averaged(trainer);
                                        if (!output.epoch(report)) trainer.finish();
                                      },
                                  .stop = stop_requested});
  const train::AveragedWeights averaged(trainer);
  if (!ended) return output.stopped(trainer.state().step);
  output.end(trainer.state().step);
}

}  // namespace heed::apps
