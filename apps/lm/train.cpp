// Training of a language model on texts.
#include <heed/core/io/atomic_file.h>
#include <heed/nn/init.h>
#include <heed/nn/pretrained/lora_files.h>
#include <heed/train/language_model.h>

#include "apps/common/program.h"
#include "apps/lm/commands.h"
#include "apps/lm/documents.h"
#include "apps/lm/train_output.h"

namespace heed::apps {
namespace {

std::vector<std::string> lines_of(const std::vector<std::string>& documents) {
  std::vector<std::string> lines;
  for (const std::string& document : documents)
    for (std::string& line : divide(document, DocumentUnit::line)) lines.push_back(std::move(line));
  return lines;
}

std::shared_ptr<const data::Tokenizer> make_tokenizer(const TrainSettings& s, const Documents& documents) {
  if (!s.tokenizer_file.empty()) return data::load_tokenizer(s.tokenizer_file.string());
  const data::TokenizerOptions options{.kind = s.tokenizer, .max_vocab = s.vocab};
  // Sub-words are learned from lines: sentencepiece leaves longer texts out.
  const bool sub_words =
      s.tokenizer == data::TokenizerKind::bpe || s.tokenizer == data::TokenizerKind::unigram;
  return data::train_tokenizer(options, {sub_words ? lines_of(documents.train) : documents.train});
}

// The layers that add to the residual stream begin smaller, by how many there are (GPT-2, 2019, 2.3).
std::shared_ptr<nn::LanguageModel> make_model(const TrainSettings& s, int64_t vocabulary) {
  Generator random(static_cast<uint64_t>(s.seed), uint64_t{1} << 40);  // apart from dropout's stream
  const nn::LanguageModelConfig config = s.config(vocabulary, s.context);
  auto model = std::make_shared<nn::LanguageModel>(config, random);
  if (s.layers == 0) return model;
  const double deviation = 0.02 / std::sqrt(2.0 * static_cast<double>(s.layers));
  nn::initialize(*model,
                 {{"*out_proj.weight", nn::Initializer::normal, deviation},
                  {"*linear2.weight", nn::Initializer::normal, deviation}},
                 random);
  return model;
}

nn::TextGenerator make_generator(const TrainSettings& s, const Documents& documents) {
  if (!s.model.empty()) return nn::load_text_generator(s.model.string());
  const std::shared_ptr<const data::Tokenizer> tokenizer = make_tokenizer(s, documents);
  const bool published = tokenizer->options().kind == data::TokenizerKind::pretrained;
  HEED_CHECK(!published, ConfigError, "--tokenizer-file ", s.tokenizer_file.string(),
             " is that of a published model; it comes with --model");
  return {make_model(s, tokenizer->vocab()), tokenizer, data::kStart, {data::kEnd}};
}

std::unique_ptr<nn::Lora> make_lora(const TrainSettings& s, nn::LanguageModel& model) {
  if (s.lora_rank == 0) return nullptr;
  std::vector<std::string> words = s.lora_targets;
  const bool gpt2 = model.config().position == nn::PositionKind::learned;
  if (words.empty())
    words = gpt2 ? std::vector<std::string>{"c_attn"} : std::vector<std::string>{"q_proj", "v_proj"};
  Generator random(static_cast<uint64_t>(s.seed), uint64_t{1} << 40);
  return std::make_unique<nn::Lora>(model, nn::lora_targets(model, words),
                                    nn::LoraOptions{.rank = s.lora_rank, .alpha = s.lora_alpha}, random);
}

/// What is trained: a model, or its adapters, which act while a scope of theirs lives.
struct Trained {
  nn::TextGenerator generator;
  std::unique_ptr<nn::Lora> lora;

  std::unique_ptr<nn::LoraScope> scope() const {
    return lora ? std::make_unique<nn::LoraScope>(*lora) : nullptr;
  }
  nn::Module& module() const { return lora ? static_cast<nn::Module&>(*lora) : generator.model(); }
  train::LossFunction loss(double label_smoothing) const {
    return [this, plain = train::language_model_loss(generator.model(), label_smoothing)](
               const StepInputs& inputs) {
      const std::unique_ptr<nn::LoraScope> acting = scope();
      return plain(inputs);
    };
  }
  void save(const TrainSettings& s) const {
    if (lora)
      nn::save_lora(*lora, generator.model(), s.model.string(), s.out.string());
    else
      nn::save_text_generator(generator, s.out.string());
  }
};

}  // namespace

void train(TrainSettings& s, OptionTable& table) {
  take_saved_settings(s, table);
  s.check(table);
  const Device device = apply(s);
  const Documents documents = read_documents(s);
  Trained trained{make_generator(s, documents), nullptr};
  const nn::TextGenerator& generator = trained.generator;
  nn::LanguageModel& model = generator.model();
  HEED_CHECK(model.config().position != nn::PositionKind::learned || s.context <= model.config().max_length,
             ConfigError, "--context ", s.context, " is more than the ", model.config().max_length,
             " positions that the model has learned");
  const data::DocumentOptions cutting{.context = s.context,
                                      .start = generator.start(),
                                      .end = generator.ends().empty() ? -1 : generator.ends().front()};
  const auto pieces =
      std::make_shared<data::DocumentDataset>(documents.train, generator.tokenizer(), cutting);
  const data::DocumentDataset valid(documents.valid, generator.tokenizer(), cutting);
  HEED_CHECK(pieces->size() > 0, DataError, "the text has no tokens to predict");
  const DirectoryLock lock = open_run_folder(s);
  model.to(s.dtype);
  model.to(device);
  trained.lora = make_lora(s, model);
  const auto optimizer = make_optimizer(s, trained.module());
  data::Loader<data::TokenIds, train::Batch> loader(
      pieces, train::language_model_collate(device, pieces->longest()), s.loader_options());
  const train::TrainerOptions options =
      trainer_options(s, s, table, loader.count_batches(0), pieces->fingerprint());
  train::Trainer trainer(trained.module(), *optimizer, loader, trained.loss(s.label_smoothing), options);
  if (s.resume) trainer.resume();

  write_whole_file(s.out / "config.toml", table.dump_toml());
  TrainOutput output({.settings = s,
                      .documents = documents,
                      .generator = generator,
                      .train = *pieces,
                      .valid = valid,
                      .trained = trained.module(),
                      .save = [&] { trained.save(s); }},
                     trainer.state(), std::min(options.steps, options.schedule.total));
  output.begin(device);
  if (output.exhausted()) trainer.finish();
  train::EpochReport last{.epoch = trainer.state().epoch, .step = trainer.state().step};
  const bool ended = trainer.run({.step = [&](const train::StepReport& report) { output.step(report); },
                                  .epoch = [&](const train::EpochReport& report) { last = report; },
                                  .measure =
                                      [&](const train::EpochReport& report) {
                                        const train::AveragedWeights averaged(trainer);
                                        const auto acting = trained.scope();
                                        last = report;
                                        if (!output.measure(report)) trainer.finish();
                                      },
                                  .stop = stop_requested});
  if (!ended) return output.stopped(trainer.state().step);
  const train::AveragedWeights averaged(trainer);
  const auto acting = trained.scope();
  output.end(last);
}

}  // namespace heed::apps
