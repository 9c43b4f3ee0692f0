// The Vision Transformer: an image as a sequence of patches.
#pragma once

#include <map>
#include <mutex>

#include <heed/nn/layers/convolution.h>
#include <heed/nn/models/transformer.h>

namespace heed::nn {

/// ViT-Base for images of 224 x 224 (Dosovitskiy et al., arXiv 2010.11929) unless changed, without dropout.
/// Positions are learned.
struct VisionTransformerConfig : LayerConfig {
  Size2d image = 224;
  Size2d patch = 16;
  int64_t channels = 3;
  int64_t classes = 1000;
  int64_t layers = 12;
  double embedding_dropout = 0;

  VisionTransformerConfig() {
    d_model = 768;
    heads = 12;
    d_ff = 3072;
    norm = NormPlacement::pre;
    activation = FeedForwardKind::gelu;
    attention_dropout = activation_dropout = residual_dropout = 0;
    position = PositionKind::learned;
    eps = 1e-6;
  }
  /// Sets all four rates.
  void set_dropout(double rate) {
    attention_dropout = activation_dropout = residual_dropout = embedding_dropout = rate;
  }
  /// Patches down and across the image.
  Size2d grid() const { return {image.height / patch.height, image.width / patch.width}; }
  /// Tokens of an image: the class token and its patches, row by row.
  int64_t tokens() const { return 1 + grid().height * grid().width; }
  /// ConfigError with the name and value of the first setting that cannot be.
  void check() const;
};

/// Patches by a convolution whose stride is its kernel, a class token before them, positions, layers, and a
/// linear layer on the class token's state. As in the paper's program matrices begin by Xavier, patches as a
/// convolution does, class token and positions N(0, 0.02), biases 0. Parameters: patch_embedding.weight,
/// class_token, position.weight, layers.0.self_attn.in_proj_weight, …, norm.weight, head.weight, and the
/// biases.
class VisionTransformer : public Module {
 public:
  explicit VisionTransformer(const VisionTransformerConfig& config,
                             Generator& generator = default_generator());

  /// Images [batch, channels, height, width] → logits [batch, classes]. ShapeError.
  Tensor operator()(const Tensor& images) const;
  /// The states of the class token and the patches, [batch, tokens, d_model].
  Tensor states(const Tensor& images) const;

  const VisionTransformerConfig& config() const { return config_; }
  void visit(Visitor& v) override;
  std::string describe() const override;

  Conv2d patch_embedding;
  Tensor class_token;  // [d_model]
  PositionTable position;
  Encoder layers;
  Linear head;

 private:
  Segments segments(int64_t batch) const;

  VisionTransformerConfig config_;
  mutable std::mutex mutex_;
  mutable std::map<int64_t, Segments> segments_;  // by the batch: captured steps know their addresses
};

}  // namespace heed::nn
