#include "apps/copy_reverse/settings.h"

#include <algorithm>

#include <heed/data/tsv.h>
#include <heed/nn/inspection.h>
#include <heed/nn/parameter.h>
#include <heed/nn/weights.h>

namespace heed::apps {
namespace {

constexpr IntegerRange kCount{1, int64_t{1} << 40};
constexpr IntegerRange kSize{1, int64_t{1} << 20};
constexpr IntegerRange kValidation{0, int64_t{1} << 20};  // they are all drawn at the start

void use_preset(Settings& s) {
  if (s.preset == Preset::standard) return;
  // What the two recipes from the tutorials have in common; each then says where it differs.
  s.fresh = false;
  s.optimizer = OptimizerKind::adam;
  s.beta1 = 0.9;
  s.beta2 = 0.999;
  s.adam_eps = 1e-8;
  s.lr = 1e-4;
  s.warmup = 0;
  s.epochs = 20;
  s.steps.reset();
  s.dropout = 0.1;
  s.valid_pairs = 1'000;
  if (s.preset == Preset::tutorial) {
    s.pairs = 5'000;
    s.norm = nn::NormPlacement::post;
    s.schedule = optim::ScheduleKind::step;
    s.initializer = nn::Initializer::pytorch;
    return;
  }
  s.task = "copy";
  s.vocab = 100;
  s.min_length = s.max_length = 10;
  s.pairs = 1'000;
  s.fresh = true;
  s.no_source_marks = s.no_end_mark = true;
  s.heads = 4;
  s.layers = 2;
  s.attention_dropout = 0.0;
  s.separate_projections = true;
  s.schedule = optim::ScheduleKind::constant;
  s.clip = 0;
}

void declare_data(OptionTable& table, Settings& s) {
  table.group("Task");
  table
      .text(
          "task", s.task,
          "What the target is: " + data::Task::names() + "; functions combine as in \"copy | reverse(sort)\"")
      .called("TASK")
      .checked([](const std::string& text) { data::Task task(text); });
  table.flag("last-digit-first", s.last_digit_first,
             "Write the digits of numbers from the last to the first");
  table.integer("min-length", s.min_length,
                "Length of the shortest source, in symbols, or what the task counts", kSize);
  table.integer("max-length", s.max_length, "Length of the longest source", kSize);
  table.integer("pairs", s.pairs, "Training pairs in an epoch", kCount);
  table.integer("valid-pairs", s.valid_pairs, "Validation pairs, none of them in training", kValidation);
  table.flag("fresh", s.fresh, "Draw new training pairs in every epoch");
  table.flag("no-source-marks", s.no_source_marks, "Feed the source without start and end marks");
  table.flag("no-end-mark", s.no_end_mark,
             "Train without an end mark; outputs are then as long as their targets");
  table.path("data", s.data, "Training pairs from a file: source<TAB>target, symbols separated by spaces")
      .not_saved();
  table.path("valid", s.valid, "Validation pairs from a file").not_saved();
}

}  // namespace

void declare_recipe(OptionTable& table, Settings& settings) {
  declare_common(table, settings);
  table
      .choice(
          "preset", settings.preset, "Where the other settings begin",
          {{"default", Preset::standard}, {"tutorial", Preset::tutorial}, {"paper-copy", Preset::paper_copy}})
      .before_others([&settings] { use_preset(settings); });
  declare_data(table, settings);
  declare_optimization(table, settings);
  declare_architecture(table, settings);
  table.choice("model", settings.model,
               "Transformer, or a recurrent network with additive attention, whose width, layers and dropout "
               "these are too",
               {{"transformer", SequenceModel::transformer},
                {"gru", SequenceModel::gru},
                {"lstm", SequenceModel::lstm}});
  table.integer("vocab", settings.vocab, "Symbols, with pad 0, start 1 and end 2", {4, int64_t{1} << 24});
}

void declare_training(OptionTable& table, Settings& settings) {
  declare_recipe(table, settings);
  declare_run(table, settings);
  table.path("init", settings.init, "Begin from these weights (safetensors)").not_saved();
  table.flag("no-figures", settings.no_figures, "Draw no figures at the end").not_saved();
}

data::LoaderOptions Settings::loader_options() const {
  return {.batch_size = batch_size, .shuffle = !no_shuffle, .seed = static_cast<uint64_t>(seed)};
}

data::TaskOptions Settings::task_options() const {
  return {.task = data::Task(task),
          .min_length = min_length,
          .max_length = max_length,
          .vocab = vocab,
          .pairs = pairs,
          .valid_pairs = valid_pairs,
          .fresh = fresh,
          .last_digit_first = last_digit_first,
          .seed = static_cast<uint64_t>(seed)};
}

std::shared_ptr<const data::PairDataset> Settings::training_data() const {
  if (!data.empty()) return std::make_shared<data::TsvDataset>(data::read_tsv(data, {.vocab = vocab}));
  return std::make_shared<data::TaskDataset>(task_options(), data::Split::train);
}

std::shared_ptr<const data::PairDataset> Settings::validation_data() const {
  if (!valid.empty()) return std::make_shared<data::TsvDataset>(data::read_tsv(valid, {.vocab = vocab}));
  if (!data.empty() || valid_pairs == 0) return nullptr;
  return std::make_shared<data::TaskDataset>(task_options(), data::Split::valid);
}

void Settings::check() const {
  RunSettings::check();
  HEED_CHECK(!resume || init.empty(), ConfigError,
             "--resume and --init contradict each other: a resumed run has "
             "weights already");
  HEED_CHECK(min_length <= max_length, ConfigError, "--min-length ", min_length, " exceeds --max-length ",
             max_length);
  if (model == SequenceModel::transformer)
    model_config().check();
  else
    rnn_config().check();
}

nn::Seq2SeqRnnConfig Settings::rnn_config() const {
  return {.cell = model == SequenceModel::lstm ? CellKind::lstm : CellKind::gru,
          .source_vocabulary = vocab,
          .target_vocabulary = vocab,
          .d_model = d_model,
          .encoder_layers = encoder_layers.value_or(layers),
          .decoder_layers = decoder_layers.value_or(layers),
          .dropout = dropout};
}

void Settings::check_lengths(const data::PairDataset& pairs) const {
  check_lengths(pairs.longest_source(), pairs.longest_target());
}

void Settings::check_training_lengths(const data::PairDataset& pairs) const {
  check_lengths(pairs);
  check_random_positions(std::max(pairs.longest_source() + (no_source_marks ? 0 : 2),
                                  pairs.longest_target() + (no_end_mark ? 0 : 1)));
}

void Settings::check_lengths(int64_t longest_source, int64_t longest_target) const {
  if (model != SequenceModel::transformer || position != nn::PositionKind::learned) return;
  const auto check = [&](const char* what, int64_t symbols, int64_t added) {
    HEED_CHECK(symbols + added <= max_positions, DataError, "a ", what, " of ", symbols, " symbols",
               added > 0 ? " with its marks" : "", " is longer than the ", max_positions,
               " learned positions");
  };
  check("source", longest_source, no_source_marks ? 0 : 2);
  check("target", longest_target, no_end_mark ? 0 : 1);
}

Settings load_settings(const std::filesystem::path& directory) {
  Settings settings;
  OptionTable table("copy_reverse");
  declare_training(table, settings);
  read_trained_settings(table, directory);
  return settings;
}

std::unique_ptr<nn::Seq2SeqModel> make_model(const Settings& s) {
  if (s.model == SequenceModel::transformer) return make_model(s, s.model_config(), s.seed);
  Generator generator(static_cast<uint64_t>(s.seed), uint64_t{1} << 40);  // apart from dropout's stream
  return std::make_unique<nn::Seq2SeqRnn>(s.rnn_config(), generator);
}

std::unique_ptr<nn::Seq2SeqModel> blank_model(const Settings& s) {
  if (s.model == SequenceModel::transformer) return std::make_unique<nn::Transformer>(s.model_config());
  return std::make_unique<nn::Seq2SeqRnn>(s.rnn_config());
}

std::unique_ptr<nn::Seq2SeqModel> load_model(const Settings& settings, const std::filesystem::path& directory,
                                             Device device) {
  const std::filesystem::path file = directory / "model.safetensors";
  {  // the file of settings may claim any sizes
    const nn::ShapesOnly shapes_only;
    nn::check_weights(*blank_model(settings), file);
  }
  auto model = blank_model(settings);
  nn::load_weights(*model, file);
  nn::check_finite(*model, file);
  model->to(device);
  model->eval();
  return model;
}

}  // namespace heed::apps
