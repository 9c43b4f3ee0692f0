// The settings of a sequence-to-sequence model.
#pragma once

#include <memory>
#include <optional>

#include <heed/nn/init.h>
#include <heed/nn/models/transformer.h>

#include "apps/common/options/options.h"

namespace heed::apps {

/// What a model looks like, and its first values.
struct ArchitectureSettings {
  int64_t d_model = 128, heads = 8, layers = 3;
  std::optional<int64_t> encoder_layers, decoder_layers;
  int64_t d_ff = 512, max_positions = 512;
  nn::NormPlacement norm = nn::NormPlacement::pre;
  nn::FeedForwardKind activation = nn::FeedForwardKind::relu;
  nn::PositionKind position = nn::PositionKind::sinusoidal;
  int64_t random_positions = 0;
  double dropout = 0;
  std::optional<double> attention_dropout;
  nn::Initializer initializer = nn::Initializer::xavier_uniform;
  std::optional<double> embedding_std;
  bool separate_projections = false;

  nn::TransformerConfig config(int64_t source_vocabulary, int64_t target_vocabulary) const;
  /// ConfigError where --random-positions has no meaning, or no room for training on sequences of so many
  /// tokens.
  void check_random_positions(int64_t longest) const;
};

/// The group "Model".
void declare_architecture(OptionTable& table, ArchitectureSettings& settings);

/// The model as its constructor and --initializer make it, drawn from the seed.
std::unique_ptr<nn::Transformer> make_model(const ArchitectureSettings& settings,
                                            const nn::TransformerConfig& config, int64_t seed);

}  // namespace heed::apps
