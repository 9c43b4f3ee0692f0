#include <heed/core/creation.h>
#include <heed/core/ops.h>
#include <heed/nn/init.h>
#include <heed/nn/layers/dropout.h>
#include <heed/nn/models/vision_transformer.h>
#include <heed/nn/parameter.h>

namespace heed::nn {
namespace {

std::string text(Size2d size) { return concat(size.height, " x ", size.width); }

const VisionTransformerConfig& checked(const VisionTransformerConfig& config) {
  config.check();
  return config;
}

}  // namespace

void VisionTransformerConfig::check() const {
  const auto positive = [](int64_t value, const char* what) {
    HEED_CHECK(value > 0, ConfigError, "VisionTransformer: ", what, " must be positive, got ", value);
  };
  positive(channels, "channels");
  positive(classes, "classes");
  positive(d_model, "d_model");
  positive(heads, "heads");
  positive(d_ff, "d_ff");
  for (const Size2d& size : {image, patch}) {
    positive(size.height, "a height");
    positive(size.width, "a width");
  }
  HEED_CHECK(image.height % patch.height == 0 && image.width % patch.width == 0, ConfigError,
             "VisionTransformer: patches of ", text(patch), " do not divide an image of ", text(image));
  HEED_CHECK(layers >= 0, ConfigError, "VisionTransformer: ", layers, " layers");
  HEED_CHECK(position == PositionKind::learned || position == PositionKind::none, ConfigError,
             "VisionTransformer: positions are learned or none, got ", name(position));
  head_layout().of(d_model);
  check_dropout_rate(embedding_dropout, "VisionTransformer");
}

VisionTransformer::VisionTransformer(const VisionTransformerConfig& config, Generator& random)
    : patch_embedding(checked(config).channels, config.d_model, config.patch, {.stride = config.patch}, true,
                      random),
      class_token(make_parameter({config.d_model}, [&](const Tensor& x) { normal_(x, 0, 0.02, random); })),
      position(config.position, config.d_model, {.max_length = config.tokens()}, random),
      layers(config, config.layers, config.norm == NormPlacement::pre, random),
      head(config.d_model, config.classes, true, random),
      config_(config) {
  for (size_t i = 0; i < layers.layers.size(); ++i)
    layers.layers[i]->self_attn.name = concat("layers.", i, ".self_attn");
  if (!parameters_have_values()) return;
  std::vector<InitRule> rules = matrix_rules(Initializer::xavier_uniform);
  for (const char* name : {"patch_embedding.weight", "position.weight"})
    rules.insert(rules.begin(), {.pattern = name, .initializer = Initializer::pytorch, .optional = true});
  initialize(*this, rules, random);
}

Segments VisionTransformer::segments(int64_t batch) const {
  const std::lock_guard lock(mutex_);
  const auto [found, missing] = segments_.try_emplace(batch);
  if (missing) found->second = Segments::dense(batch, config_.tokens());
  return found->second;
}

Tensor VisionTransformer::states(const Tensor& images) const {
  const VisionTransformerConfig& c = config_;
  HEED_CHECK(images.rank() == 4 && images.size(1) == c.channels && images.size(2) == c.image.height &&
                 images.size(3) == c.image.width,
             ShapeError, "VisionTransformer: images are ", images.shape(), ", expected [batch, ", c.channels,
             ", ", c.image.height, ", ", c.image.width, "]");
  const int64_t batch = images.size(0), tokens = c.tokens();
  const Tensor patches = patch_embedding(images).reshape({batch, c.d_model, tokens - 1}).transpose(1, 2);
  Tensor x = cat({class_token.view({1, 1, c.d_model}).expand({batch, 1, c.d_model}), patches}, 1);
  const Tensor table = position.table(tokens, x.dtype(), x.device());
  if (table.defined()) x = x + table;
  x = dropout(x, {.p = training() ? c.embedding_dropout : 0});
  return layers(x.reshape({batch * tokens, c.d_model}), segments(batch)).view({batch, tokens, c.d_model});
}

Tensor VisionTransformer::operator()(const Tensor& images) const {
  return head(states(images).select(1, 0).contiguous());
}

void VisionTransformer::visit(Visitor& v) {
  v("patch_embedding", patch_embedding);
  v("class_token", class_token);
  v("position", position);
  v.unnamed(layers);
  v("head", head);
}

std::string VisionTransformer::describe() const {
  return concat("VisionTransformer(", text(config_.image), " in patches of ", text(config_.patch), ", ",
                config_.d_model, ", heads ", config_.heads, ", ", config_.layers, " layers, d_ff ",
                config_.d_ff, ", ", name(config_.norm), "-norm)");
}

}  // namespace heed::nn
