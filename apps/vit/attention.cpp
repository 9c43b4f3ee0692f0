// What the class token attends to, drawn over the picture.
#include <algorithm>

#include <heed/core/attention.h>
#include <heed/core/ops.h>
#include <heed/core/serialize.h>
#include <heed/nn/attention/attention_statistics.h>
#include <heed/nn/detail/evaluation.h>

#include "apps/common/figures/presentation.h"
#include "apps/vit/commands.h"

namespace heed::apps {
namespace {

// The class token's weights on the patches, [rows, columns of patches], as large as the picture.
Matrix over_pixels(const Tensor& weights, const nn::VisionTransformerConfig& config) {
  const Size2d grid = config.grid(), patch = config.patch;
  const std::vector<float> values = weights.to_vector<float>();
  Matrix result{config.image.height, config.image.width, {}};
  for (int64_t y = 0; y < result.rows; ++y)
    for (int64_t x = 0; x < result.cols; ++x)
      result.values.push_back(values[static_cast<size_t>(y / patch.height * grid.width + x / patch.width)]);
  return result;
}

// The picture as the weights light it: each pixel times its patch's weight, of the largest.
Matrix lit(Matrix weights, const Matrix& picture) {
  const float most = *std::max_element(weights.values.begin(), weights.values.end());
  for (size_t i = 0; i < weights.values.size(); ++i)
    weights.values[i] = picture.values[i] * weights.values[i] / std::max(most, 1e-30f);
  return weights;
}

Heatmap panel(std::string title, Matrix values, ColorMap colors) {
  Heatmap map;
  map.title = std::move(title);
  map.row_axis = map.column_axis = "";
  map.values = std::move(values);
  map.colors = colors;
  return map;
}

Tensor of_class_token(const Tensor& weights) {  // [tokens, tokens]
  return weights.select(0, 0).slice(0, 1, weights.size(1)).contiguous();
}

struct Maps {
  Matrix picture;              // the mean of its channels
  std::vector<Tensor> layers;  // [heads, tokens, tokens]
  Tensor rollout;              // [tokens, tokens]
  int64_t predicted = 0;
};

Maps maps_of(const Trained& trained, nn::VisionTransformer& model, const data::LabeledImage& image) {
  const data::ImageSize size = trained.pictures->image_size();
  const Tensor pixels = to_batch({&image, 1}, size).inputs.tensors[0];
  const nn::Evaluation evaluation(model);
  const AttentionRecord record;
  Maps maps;
  maps.picture = to_matrix(mean(pixels, {.axes = {0, 1}}));
  maps.predicted = argmax(model(pixels.to(trained.device)), 1).item<int64_t>();
  for (const std::string& name : record.names()) maps.layers.push_back(record.weights(name, 0).to(kCpu));
  HEED_CHECK(!maps.layers.empty(), ConfigError, "the model has no layers, and so no attention");
  maps.rollout = nn::attention_rollout(maps.layers);
  return maps;
}

// The picture, its rollout and the heads of one layer over it; and the weights alone, all heads of all
// layers.
void draw(Presentation& presentation, const Maps& maps, const nn::VisionTransformerConfig& config,
          int64_t layer, const std::string& title) {
  HeatmapGrid over{concat(title, ": what the class token attends to"), 3, {}, false};
  over.panels.push_back(panel("Picture", maps.picture, ColorMap::viridis));
  const auto add = [&](const std::string& name, const Tensor& weights) {
    over.panels.push_back(
        panel(name, lit(over_pixels(of_class_token(weights), config), maps.picture), ColorMap::viridis));
  };
  add("Rollout of all layers", maps.rollout);
  for (int64_t h = 0; h < config.heads; ++h)
    add(concat("Layer ", layer, ", head ", h), maps.layers[static_cast<size_t>(layer)].select(0, h));
  for (Heatmap& each : over.panels) {
    each.range = std::pair(0.0, 1.0);
    each.color_label = "Brightness";
  }
  presentation.figure(over, "attention");

  HeatmapGrid heads{concat(title, ": weights of the class token on the patches"),
                    static_cast<int>(std::min<int64_t>(config.heads, 8)),
                    {},
                    false};
  for (size_t i = 0; i < maps.layers.size(); ++i)
    for (int64_t h = 0; h < config.heads; ++h)
      heads.panels.push_back(panel(concat("Layer ", i, ", head ", h),
                                   over_pixels(of_class_token(maps.layers[i].select(0, h)), config),
                                   ColorMap::blues));
  presentation.figure(heads, "attention-heads");
}

}  // namespace

void attention(const AttentionSettings& s) {
  const Trained trained = open_model(s);
  nn::VisionTransformer& model = trained.classifier.vision_transformer();
  const nn::VisionTransformerConfig& config = model.config();
  const int64_t number = s.picture.value_or(trained.settings.test_every - 1),
                layer = s.layer.value_or(config.layers - 1), count = trained.pictures->size();
  HEED_CHECK(number < count, ConfigError, "--picture ", number, ": the file has pictures 0 to ", count - 1);
  HEED_CHECK(layer < config.layers, ConfigError, "--layer ", layer, ": the model has layers 0 to ",
             config.layers - 1);
  const data::LabeledImage image = trained.pictures->get(0, number);
  const Maps maps = maps_of(trained, model, image);

  const std::filesystem::path out = s.out.empty() ? s.model : s.out;
  Presentation presentation(s.json, out);
  const std::string title = concat("Picture ", number, ", a ", image.label, " taken for a ", maps.predicted);
  presentation.line(title);
  draw(presentation, maps, config, layer, title);
  NamedTensors tensors{{"rollout", maps.rollout}};
  for (size_t i = 0; i < maps.layers.size(); ++i) tensors.emplace_back(concat("layers.", i), maps.layers[i]);
  save_tensors(out / "attention.safetensors", tensors);
  presentation.value("picture", number);
  presentation.value("label", image.label);
  presentation.value("predicted", maps.predicted);
  presentation.value("file", (out / "attention.safetensors").string());
  presentation.finish();
}

}  // namespace heed::apps
