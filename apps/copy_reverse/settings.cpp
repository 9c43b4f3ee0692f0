#include "apps/copy_reverse/settings.h"

#include <algorithm>

#include <heed/data/tsv.h>
#include <heed/nn/inspection.h>
#include <heed/nn/parameter.h>
#include <heed/nn/weights.h>
#include <heed/optim/adam.h>
#include <heed/optim/sgd.h>

namespace heed::apps {
namespace {

constexpr IntegerRange kCount{1, int64_t{1} << 40};
constexpr IntegerRange kFromZero{0, int64_t{1} << 40};
constexpr IntegerRange kSize{1, int64_t{1} << 20};
constexpr IntegerRange kValidation{0, int64_t{1} << 20};  // they are all drawn at the start
constexpr NumberRange kRate{0, 1, false, true};           // [0, 1)

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
  s.task = data::Task::copy;
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
  table.choice("task", s.task, "What the target is",
               {{"copy_reverse", data::Task::copy_reverse},
                {"copy", data::Task::copy},
                {"reverse", data::Task::reverse},
                {"sort", data::Task::sort},
                {"add", data::Task::add}});
  table.integer("min-length", s.min_length, "Symbols of the shortest source", kSize);
  table.integer("max-length", s.max_length, "Symbols of the longest source", kSize);
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

void declare_optimization(OptionTable& table, Settings& s) {
  table.group("Training");
  table.integer("epochs", s.epochs, "Times through the training pairs", kFromZero);
  table.integer("steps", s.steps,
                "Optimizer steps; with --epochs whichever ends first; 0 only writes the model", kFromZero);
  table.integer("batch-size", s.batch_size, "Pairs in a batch", kSize);
  table.integer("accumulate", s.accumulate,
                "Batches a step, whose gradients are added as those of one; by default 1", {1, 1 << 16});
  table.flag("no-shuffle", s.no_shuffle, "Batches in the order of the pairs, unsorted");
  table.choice("optimizer", s.optimizer, "Optimizer",
               {{"adam", OptimizerKind::adam}, {"adamw", OptimizerKind::adamw}, {"sgd", OptimizerKind::sgd}});
  table.number("beta1", s.beta1, "Adam: decay of the first moment; sgd: momentum", kRate);
  table.number("beta2", s.beta2, "Adam: decay of the second moment", kRate);
  table.number("adam-eps", s.adam_eps, "Adam: added to the root of the second moment", {0, 1, true, false});
  table.number("lr", s.lr, "Learning rate at its highest", {0, 1e6, true, false});
  table.number("weight-decay", s.weight_decay, "Weight decay", {0, 1e6, false, false});
  table.choice("schedule", s.schedule, "Course of the learning rate",
               {{"constant", optim::ScheduleKind::constant},
                {"step", optim::ScheduleKind::step},
                {"noam", optim::ScheduleKind::noam},
                {"cosine", optim::ScheduleKind::cosine},
                {"linear", optim::ScheduleKind::linear}});
  table.integer("warmup", s.warmup, "Steps over which the rate rises", kFromZero);
  table.integer("step-epochs", s.step_epochs, "Epochs between falls of --schedule step", kSize);
  table.number("gamma", s.gamma, "Factor of each fall", {0, 1, true, false});
  table.number("clip", s.clip, "Largest norm of the gradients; 0: no clipping", {0, 1e30, false, false});
  table.number("label-smoothing", s.label_smoothing, "Part of each target spread over all symbols", kRate);
}

void declare_model(OptionTable& table, Settings& s) {
  table.group("Model");
  table.integer("d-model", s.d_model, "Width", kSize);
  table.integer("heads", s.heads, "Attention heads", kSize);
  table.integer("layers", s.layers, "Encoder layers and decoder layers", {0, 1024});
  table.integer("encoder-layers", s.encoder_layers, "Encoder layers, where they differ", {0, 1024});
  table.integer("decoder-layers", s.decoder_layers, "Decoder layers, where they differ", {0, 1024});
  table.integer("d-ff", s.d_ff, "Width of the feed-forward network", kSize);
  table.integer("vocab", s.vocab, "Symbols, with pad 0, start 1 and end 2", {4, int64_t{1} << 24});
  table.integer("max-positions", s.max_positions, "Rows of a learned position table", kSize);
  table.choice("norm", s.norm, "Where layers normalise",
               {{"pre", nn::NormPlacement::pre}, {"post", nn::NormPlacement::post}});
  table.choice("activation", s.activation, "Feed-forward activation",
               {{"relu", nn::FeedForwardKind::relu},
                {"gelu", nn::FeedForwardKind::gelu},
                {"gelu_tanh", nn::FeedForwardKind::gelu_tanh},
                {"silu", nn::FeedForwardKind::silu},
                {"swiglu", nn::FeedForwardKind::swiglu}});
  table.choice("position", s.position, "How positions enter",
               {{"sinusoidal", nn::PositionKind::sinusoidal},
                {"learned", nn::PositionKind::learned},
                {"alibi", nn::PositionKind::alibi},
                {"relative", nn::PositionKind::relative},
                {"none", nn::PositionKind::none}});
  table.number("dropout", s.dropout, "Rate of all dropouts", kRate);
  table.number("attention-dropout", s.attention_dropout, "Rate on attention weights, where it differs",
               kRate);
  table.choice("initializer", s.initializer, "First values of the matrices",
               {{"pytorch", nn::Initializer::pytorch},
                {"xavier_uniform", nn::Initializer::xavier_uniform},
                {"xavier_normal", nn::Initializer::xavier_normal},
                {"kaiming_uniform", nn::Initializer::kaiming_uniform},
                {"kaiming_normal", nn::Initializer::kaiming_normal},
                {"normal", nn::Initializer::normal}});
  table.number("embedding-std", s.embedding_std, "Standard deviation of the first embeddings",
               {0, 1e3, false, false});
  table.flag("separate-projections", s.separate_projections,
             "Draw the matrices of queries, keys and values apart, not as one");
}

void declare_output(OptionTable& table, Settings& s) {
  table.group("Run");
  table.choice("dtype", s.dtype, "Element type of parameters and activations",
               {{"f32", DType::f32}, {"bf16", DType::bf16}});
  table.path("init", s.init, "Begin from these weights (safetensors)").not_saved();
  table.flag("resume", s.resume, "Go on from the last checkpoint in --out, with its settings").not_saved();
  table
      .integer("save-every", s.save_every, "Steps between checkpoints; 0: one at the end of each epoch",
               kFromZero)
      .not_saved();
  table.flag("force", s.force, "Overwrite what --out holds").not_saved();
  table.path("out", s.out, "Folder of the model, its settings, metrics and figures").not_saved();
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
  declare_model(table, settings);
}

void declare_training(OptionTable& table, Settings& settings) {
  declare_recipe(table, settings);
  declare_output(table, settings);
}

nn::TransformerConfig Settings::model_config() const {
  nn::TransformerConfig config;
  config.source_vocabulary = config.target_vocabulary = vocab;
  config.d_model = d_model;
  config.heads = heads;
  config.d_ff = d_ff;
  config.encoder_layers = encoder_layers.value_or(layers);
  config.decoder_layers = decoder_layers.value_or(layers);
  config.norm = norm;
  config.activation = activation;
  config.position = position;
  config.max_length = max_positions;
  config.set_dropout(dropout);
  config.attention_dropout = attention_dropout.value_or(dropout);
  return config;
}

data::LoaderOptions Settings::loader_options() const {
  return {.batch_size = batch_size,
          .shuffle = !no_shuffle,
          .marks = marks(),
          .seed = static_cast<uint64_t>(seed)};
}

data::TaskOptions Settings::task_options() const {
  return {.task = task,
          .min_length = min_length,
          .max_length = max_length,
          .vocab = vocab,
          .pairs = pairs,
          .valid_pairs = valid_pairs,
          .fresh = fresh,
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

int64_t Settings::last_step(int64_t steps_per_epoch) const {
  const bool endless = last_epoch() >= (int64_t{1} << 40);
  return std::min(steps.value_or(INT64_MAX), endless ? INT64_MAX : last_epoch() * steps_per_epoch);
}

optim::Schedule Settings::rate_schedule(int64_t steps_per_epoch) const {
  optim::Schedule result{.kind = schedule,
                         .rate = lr,
                         .warmup = warmup,
                         .total = std::max(last_step(steps_per_epoch), warmup + 1),
                         .step_size = std::max<int64_t>(1, step_epochs * steps_per_epoch),
                         .gamma = gamma,
                         .d_model = d_model};
  result.check();
  return result;
}

void Settings::check() const {
  HEED_CHECK(!resume || !force, ConfigError,
             "--resume and --force contradict each other: one goes on with what "
             "--out holds, the other replaces it");
  HEED_CHECK(!resume || init.empty(), ConfigError,
             "--resume and --init contradict each other: a resumed run has "
             "weights already");
  HEED_CHECK(min_length <= max_length, ConfigError, "--min-length ", min_length, " exceeds --max-length ",
             max_length);
  model_config().check();
}

void Settings::check_lengths(const data::PairDataset& pairs) const {
  check_lengths(pairs.longest_source(), pairs.longest_target());
}

void Settings::check_lengths(int64_t longest_source, int64_t longest_target) const {
  if (position != nn::PositionKind::learned) return;
  const auto check = [&](const char* what, int64_t symbols, int64_t added) {
    HEED_CHECK(symbols + added <= max_positions, DataError, "a ", what, " of ", symbols, " symbols",
               added > 0 ? " with its marks" : "", " is longer than the ", max_positions,
               " learned positions");
  };
  check("source", longest_source, no_source_marks ? 0 : 2);
  check("target", longest_target, no_end_mark ? 0 : 1);
}

Settings load_settings(const std::filesystem::path& directory) {
  std::error_code ignored;
  HEED_CHECK(std::filesystem::exists(directory / "config.toml", ignored), CheckpointError,
             "there is no trained model in ", directory.string(), ": config.toml is missing");
  Settings settings;
  OptionTable table("copy_reverse");
  declare_training(table, settings);
  table.read_file(directory / "config.toml");
  return settings;
}

std::unique_ptr<nn::Transformer> make_model(const Settings& settings) {
  Generator generator(static_cast<uint64_t>(settings.seed),
                      uint64_t{1} << 40);  // apart from dropout's stream
  auto model = std::make_unique<nn::Transformer>(settings.model_config(), generator);
  if (settings.initializer != nn::Initializer::pytorch) {
    std::vector<nn::InitRule> rules = nn::matrix_rules(settings.initializer);
    if (settings.separate_projections)
      rules.insert(rules.begin(), {"*in_proj_weight", settings.initializer, 0.02, 3});
    nn::initialize(*model, rules, generator);
  }
  if (settings.embedding_std)
    nn::initialize(*model, {{"*_embedding.weight", nn::Initializer::normal, *settings.embedding_std}},
                   generator);
  return model;
}

std::unique_ptr<optim::Optimizer> make_optimizer(const Settings& s, nn::Module& model) {
  const optim::AdamOptions adam{
      .rate = s.lr, .beta1 = s.beta1, .beta2 = s.beta2, .eps = s.adam_eps, .weight_decay = s.weight_decay};
  switch (s.optimizer) {
    case OptimizerKind::adam:
      return std::make_unique<optim::Adam>(model.parameters(), adam);
    case OptimizerKind::adamw:
      return std::make_unique<optim::AdamW>(model.parameters(), adam);
    case OptimizerKind::sgd:
      break;
  }
  return std::make_unique<optim::Sgd>(
      model.parameters(),
      optim::SgdOptions{.rate = s.lr, .momentum = s.beta1, .weight_decay = s.weight_decay});
}

std::unique_ptr<nn::Transformer> load_model(const Settings& settings, const std::filesystem::path& directory,
                                            Device device) {
  const std::filesystem::path file = directory / "model.safetensors";
  {  // the file of settings may claim any sizes
    const nn::ShapesOnly shapes_only;
    nn::Transformer shapes(settings.model_config());
    nn::check_weights(shapes, file);
  }
  auto model = std::make_unique<nn::Transformer>(settings.model_config());
  nn::load_weights(*model, file);
  nn::check_finite(*model, file);
  model->to(device);
  model->eval();
  return model;
}

}  // namespace heed::apps
