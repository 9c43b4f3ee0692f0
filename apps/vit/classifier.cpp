#include "apps/vit/classifier.h"

#include <algorithm>
#include <cmath>

#include <heed/core/ops.h>
#include <heed/nn/detail/evaluation.h>
#include <heed/nn/inspection.h>
#include <heed/nn/layers/channel_norm.h>
#include <heed/nn/layers/linear.h>
#include <heed/nn/parameter.h>
#include <heed/nn/sequential.h>
#include <heed/nn/weights.h>

#include "apps/common/program.h"

namespace heed::apps {
namespace {

nn::VisionTransformerConfig vit_config(const Settings& s, const data::ImageSize& size) {
  nn::VisionTransformerConfig config;
  config.image = {size.height, size.width};
  config.patch = s.patch;
  config.channels = size.channels;
  config.classes = *s.classes;
  config.d_model = s.d_model;
  config.heads = s.heads;
  config.layers = s.layers;
  config.d_ff = s.d_ff;
  config.set_dropout(s.dropout);
  return config;
}

// Three convolutions, of which two halve the picture.
std::unique_ptr<nn::Sequential> make_cnn(const data::ImageSize& size, int64_t classes, Generator& random) {
  HEED_CHECK(size.height >= 4 && size.width >= 4, ConfigError,
             "--model cnn takes pictures of 4 x 4 and more, got ", size.height, " x ", size.width);
  const Convolution2dOptions same{.padding = 1};
  auto model = std::make_unique<nn::Sequential>();
  model->add<nn::Conv2d>(size.channels, 16, 3, same, false, random).add<nn::BatchNorm2d>(16).add(relu);
  model->add<nn::Conv2d>(16, 32, 3, same, false, random).add<nn::BatchNorm2d>(32).add(relu);
  model->add<nn::MaxPool2d>(2);
  model->add<nn::Conv2d>(32, 64, 3, same, false, random).add<nn::BatchNorm2d>(64).add(relu);
  model->add<nn::MaxPool2d>(2);
  const int64_t columns = 64 * (size.height / 4) * (size.width / 4);
  model->add([columns](const Tensor& x) { return x.reshape({x.size(0), columns}); });
  model->add<nn::Linear>(columns, classes, true, random);
  return model;
}

}  // namespace

Classifier::Classifier(const Settings& s, const data::ImageSize& size) {
  Generator random(static_cast<uint64_t>(s.seed), uint64_t{1} << 40);  // apart from dropout's stream
  if (s.model == ClassifierKind::vit) {
    auto model = std::make_unique<nn::VisionTransformer>(vit_config(s, size), random);
    vit_ = model.get();
    logits_ = [vit = vit_](const Tensor& x) { return (*vit)(x); };
    module_ = std::move(model);
  } else {
    auto model = make_cnn(size, *s.classes, random);
    logits_ = [cnn = model.get()](const Tensor& x) { return (*cnn)(x); };
    module_ = std::move(model);
  }
}

nn::VisionTransformer& Classifier::vision_transformer() const {
  HEED_CHECK(vit_ != nullptr, ConfigError, "this model is a convolutional network: it has no attention");
  return *vit_;
}

Classifier load_classifier(const Settings& settings, const data::ImageSize& size,
                           const std::filesystem::path& directory, Device device) {
  HEED_CHECK(settings.classes && settings.white, CheckpointError, directory.string(),
             "/config.toml: classes and white are missing");
  const std::filesystem::path file = directory / "model.safetensors";
  {  // the file of settings may claim any sizes
    const nn::ShapesOnly shapes_only;
    const Classifier shapes(settings, size);
    nn::check_weights(shapes.module(), file);
  }
  Classifier classifier(settings, size);
  nn::load_weights(classifier.module(), file);
  nn::check_finite(classifier.module(), file);
  classifier.module().to(device);
  classifier.module().eval();
  return classifier;
}

train::Batch to_batch(std::span<const data::LabeledImage> samples, const data::ImageSize& size) {
  const auto count = std::ssize(samples);
  const Tensor pictures = empty({count, size.channels, size.height, size.width}),
               labels = empty({count}, {.dtype = DType::i64});
  for (int64_t i = 0; i < count; ++i) {
    const data::LabeledImage& sample = samples[static_cast<size_t>(i)];
    std::copy(sample.pixels.begin(), sample.pixels.end(), pictures.data<float>() + i * size.pixels());
    labels.data<int64_t>()[i] = sample.label;
  }
  return {{{pictures, labels}, {}}, count, count};
}

int64_t Judgement::right() const {
  return std::ranges::count_if(pictures, [](const Judged& p) { return p.label == p.predicted; });
}

Judgement grade(const Classifier& classifier, const data::ImageDataset& pictures) {
  constexpr int64_t kBatch = 256;
  const nn::Evaluation evaluation(classifier.module());
  const Parameters parameters = classifier.module().parameters();
  const DType dtype = parameters[0].tensor.dtype();
  Judgement result;
  for (int64_t first = 0; first < pictures.size(); first += kBatch) {
    throw_if_stopped();
    std::vector<data::LabeledImage> samples;
    for (int64_t i = first; i < std::min(first + kBatch, pictures.size()); ++i)
      samples.push_back(pictures.get(0, i));
    const train::Batch batch = to_batch(samples, pictures.image_size());
    const Tensor logits =
        classifier(batch.inputs.tensors[0].to(dtype).to(parameters.device())).to(DType::f32);
    nn::check_finite(logits, "the logits");
    result.loss +=
        cross_entropy(logits, batch.inputs.tensors[1].to(logits.device()), {.reduction = Reduction::sum})
            .item<double>();
    const Tensor all = softmax(logits);
    const std::vector<int64_t> predicted = argmax(all, 1).to_vector<int64_t>();
    const std::vector<float> probability = max(all, {.axes = {1}}).to_vector<float>();
    for (size_t i = 0; i < samples.size(); ++i)
      result.pictures.push_back({samples[i].label, predicted[i], probability[i]});
  }
  result.loss /= static_cast<double>(pictures.size());
  return result;
}

}  // namespace heed::apps
