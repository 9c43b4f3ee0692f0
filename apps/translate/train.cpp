#include <heed/core/base/divide.h>
#include <heed/core/io/atomic_file.h>
#include <heed/nn/inspection.h>
#include <heed/train/run_folder.h>
#include <heed/train/trainer.h>

#include "apps/common/program.h"
#include "apps/translate/commands.h"
#include "apps/translate/train_output.h"

namespace heed::apps {
namespace {

// Room for outputs longer than any target of training.
int64_t max_output(int64_t longest_target) { return longest_target + longest_target / 2 + 10; }

}  // namespace

void train(Settings& s, OptionTable& table) {
  if (s.resume) table.read_toml(train::saved_settings(s.out), "the settings of the checkpoint");
  s.check();
  HEED_CHECK(!s.resume || train::has_checkpoint(s.out), CheckpointError, s.out.string(),
             ": there is no checkpoint to resume from");
  const Device device = apply(s);
  const Corpus corpus = read_corpus(s);
  const Tokenizers tokenizers = train_tokenizers(s, corpus.splits.train);
  const auto encode = [&](const data::TextPairs& pairs) {
    return std::make_shared<data::TextDataset>(pairs, *tokenizers.source, *tokenizers.target, s.max_tokens);
  };
  const auto pairs = encode(corpus.splits.train), valid = encode(corpus.splits.valid);
  HEED_CHECK(pairs->size() > 0, DataError, "no pair for training has at most --max-tokens ", s.max_tokens,
             " on each side");
  const train::RunStart start = s.resume  ? train::RunStart::resume
                                : s.force ? train::RunStart::replace
                                          : train::RunStart::fresh;
  const DirectoryLock lock =
      train::lock_run_folder(s.out, start, "add --force to replace it or --resume to go on");
  train::prepare_run_folder(s.out, start);

  const std::shared_ptr<nn::Transformer> model =
      make_model(s, s.model_config(tokenizers.source->vocab(), tokenizers.target->vocab()));
  model->to(s.dtype);
  model->to(device);
  const auto optimizer = make_optimizer(s, *model);
  data::PairLoader loader(pairs, s.loader_options());
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

  const nn::TextModel text_model(model, tokenizers.source, tokenizers.target,
                                 max_output(pairs->longest_target()));
  write_whole_file(s.out / "config.toml", table.dump_toml());
  TrainOutput output(s, corpus, text_model, *pairs, *valid, trainer.state().epoch);
  output.begin(device);
  if (output.exhausted()) trainer.finish();
  const bool ended = trainer.run(
      [&](const train::EpochReport& report) {
        if (!output.epoch(report)) trainer.finish();
      },
      [&](int64_t count, double loss) { output.batch(trainer.state().epoch, count, loss); });
  if (!ended) return output.stopped(trainer.state().step);
  output.end(trainer.state().step);
}

}  // namespace heed::apps
