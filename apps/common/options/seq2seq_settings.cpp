#include "apps/common/options/seq2seq_settings.h"

namespace heed::apps {
namespace {

constexpr IntegerRange kSize{1, int64_t{1} << 20};
constexpr NumberRange kRate{0, 1, false, true};  // [0, 1)

}  // namespace

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
                {"rotary", nn::PositionKind::rotary},
                {"t5", nn::PositionKind::t5},
                {"none", nn::PositionKind::none}});
  table.integer("random-positions", s.random_positions,
                "Train with random rising positions below this, so that longer sequences than the training's "
                "are known too; 0: 0, 1, 2, …",
                {0, int64_t{1} << 20});
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

void ArchitectureSettings::check_random_positions(int64_t longest) const {
  if (random_positions == 0) return;
  HEED_CHECK(nn::takes_position_ids(position), ConfigError,
             "--random-positions needs sinusoidal, learned or rotary positions, not ", nn::name(position));
  HEED_CHECK(position != nn::PositionKind::learned || random_positions <= max_positions, ConfigError,
             "--random-positions ", random_positions, " exceeds --max-positions ", max_positions);
  HEED_CHECK(longest <= random_positions, ConfigError, "--random-positions ", random_positions,
             " are too few for sequences of ", longest, " tokens");
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
  if (position == nn::PositionKind::t5) config.relative_limit = 128;  // T5's
  config.max_length = max_positions;
  config.set_dropout(dropout);
  config.attention_dropout = attention_dropout.value_or(dropout);
  if (initializer == nn::Initializer::pytorch) config.embedding_deviation = 1;  // nn.Embedding's
  return config;
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

}  // namespace heed::apps
