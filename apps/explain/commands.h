// The commands of explain: each shows one thing about Transformers with numbers and figures.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include <heed/nn/models/transformer_config.h>

#include "apps/common/options/common_settings.h"

namespace heed::apps {

struct ExplainSettings : CommonSettings {
  std::filesystem::path out = "runs/explain";  // of the figures
  bool no_figures = false;
};

struct AttentionSettings : ExplainSettings {
  std::string sentence = "The cat sat";
};

struct ScaleSettings : ExplainSettings {
  int64_t draws = 500, keys = 16;
};

struct HeadsSettings : ExplainSettings {
  std::string sentence = "The cat sat on the mat";
  int64_t steps = 400;
};

struct SizesSettings : ExplainSettings {
  int64_t vocabulary = 1000, d_model = 64, heads = 4, layers = 2, d_ff = 256;
  bool tree = false;
};

struct PositionsSettings : ExplainSettings {
  int64_t length = 100, d_model = 128;
};

/// One encoder layer.
struct BlockSettings : ExplainSettings {
  int64_t d_model = 512, heads = 8, d_ff = 2048;
  nn::NormPlacement norm = nn::NormPlacement::post;
  nn::FeedForwardKind activation = nn::FeedForwardKind::relu;
  bool no_qkv_bias = false;

  BlockSettings() = default;
  BlockSettings(nn::NormPlacement norm, nn::FeedForwardKind activation, bool no_qkv_bias)
      : norm(norm), activation(activation), no_qkv_bias(no_qkv_bias) {}
  /// Without dropout: all that is shown is of evaluation mode. ConfigError.
  nn::LayerConfig layer() const;
};

struct EncoderSettings : BlockSettings {
  int64_t batch = 4, length = 20;
  std::string sentence = "Dog bites man";
};

struct GradientsSettings : BlockSettings {
  GradientsSettings() : BlockSettings(nn::NormPlacement::pre, nn::FeedForwardKind::gelu, true) {}

  int64_t length = 5;
  int64_t deepest = 24;  // blocks of the stack whose gradients are shown over depth
  int64_t steps = 200;   // of the training whose gradients are shown over time
};

struct InitializationSettings : BlockSettings {
  InitializationSettings() : BlockSettings(nn::NormPlacement::pre, nn::FeedForwardKind::gelu, true) {}

  int64_t length = 10, draws = 5;
  int64_t deepest = 48, stack_d_model = 128;  // of the stack; its feed-forward network is four times as wide
};

struct TransformerSettings : ExplainSettings {
  int64_t d_model = 512, heads = 8, layers = 6, d_ff = 2048, vocabulary = 10'000;
  int64_t batch = 2, source_length = 10, target_length = 8;

  /// Pre-norm, without dropout.
  nn::TransformerConfig model() const;
};

struct SparseSettings : ExplainSettings {
  int64_t length = 1024;     // of the patterns that are drawn
  int64_t longest = 16'384;  // that is counted
};

void explain_attention(const AttentionSettings& settings);
void explain_scale(const ScaleSettings& settings);
void explain_heads(const HeadsSettings& settings);
void explain_sizes(const SizesSettings& settings);
void explain_positions(const PositionsSettings& settings);
void explain_encoder(const EncoderSettings& settings);
void explain_gradients(const GradientsSettings& settings);
void explain_initialization(const InitializationSettings& settings);
void explain_transformer(const TransformerSettings& settings);
void explain_sparse(const SparseSettings& settings);

}  // namespace heed::apps
