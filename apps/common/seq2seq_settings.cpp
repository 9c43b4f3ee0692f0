#include "apps/common/seq2seq_settings.h"

#include <algorithm>

#include <heed/optim/adam.h>
#include <heed/optim/sgd.h>

namespace heed::apps {
namespace {

constexpr IntegerRange kFromZero{0, int64_t{1} << 40};
constexpr IntegerRange kSize{1, int64_t{1} << 20};
constexpr NumberRange kRate{0, 1, false, true};  // [0, 1)

}  // namespace

void declare_optimization(OptionTable& table, OptimizationSettings& s) {
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

void declare_architecture(OptionTable& table, ArchitectureSettings& s) {
  table.group("Model");
  table.integer("d-model", s.d_model, "Width", kSize);
  table.integer("heads", s.heads, "Attention heads", kSize);
  table.integer("layers", s.layers, "Encoder layers and decoder layers", {0, 1024});
  table.integer("encoder-layers", s.encoder_layers, "Encoder layers, where they differ", {0, 1024});
  table.integer("decoder-layers", s.decoder_layers, "Decoder layers, where they differ", {0, 1024});
  table.integer("d-ff", s.d_ff, "Width of the feed-forward network", kSize);
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

nn::TransformerConfig ArchitectureSettings::config(int64_t source_vocabulary,
                                                   int64_t target_vocabulary) const {
  nn::TransformerConfig config;
  config.source_vocabulary = source_vocabulary;
  config.target_vocabulary = target_vocabulary;
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

int64_t OptimizationSettings::last_step(int64_t steps_per_epoch) const {
  const bool endless = last_epoch() >= (int64_t{1} << 40);
  return std::min(steps.value_or(INT64_MAX), endless ? INT64_MAX : last_epoch() * steps_per_epoch);
}

optim::Schedule OptimizationSettings::rate_schedule(int64_t steps_per_epoch) const {
  optim::Schedule result{.kind = schedule,
                         .rate = lr,
                         .warmup = warmup,
                         .total = std::max(last_step(steps_per_epoch), warmup + 1),
                         .step_size = std::max<int64_t>(1, step_epochs * steps_per_epoch),
                         .gamma = gamma};
  result.check();
  return result;
}

std::unique_ptr<nn::Transformer> make_model(const ArchitectureSettings& settings,
                                            const nn::TransformerConfig& config, int64_t seed) {
  Generator generator(static_cast<uint64_t>(seed), uint64_t{1} << 40);  // apart from dropout's stream
  auto model = std::make_unique<nn::Transformer>(config, generator);
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

std::unique_ptr<optim::Optimizer> make_optimizer(const OptimizationSettings& s, nn::Module& model) {
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

}  // namespace heed::apps
