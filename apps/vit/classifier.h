// Classifiers of pictures: what they are made of, trained with and judged by.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include <heed/nn/models/vision_transformer.h>
#include <heed/train/trainer.h>

#include "apps/vit/settings.h"

namespace heed::apps {

/// Pictures [batch, channels, height, width] → logits [batch, classes].
class Classifier {
 public:
  /// As the settings say, which have the number of classes; drawn from the seed.
  Classifier(const Settings& settings, const data::ImageSize& size);

  Tensor operator()(const Tensor& pictures) const { return logits_(pictures); }
  nn::Module& module() const { return *module_; }
  /// ConfigError for a model without attention.
  nn::VisionTransformer& vision_transformer() const;

 private:
  std::unique_ptr<nn::Module> module_;
  std::function<Tensor(const Tensor&)> logits_;
  nn::VisionTransformer* vit_ = nullptr;
};

/// The trained model of DIR, in evaluation mode.
Classifier load_classifier(const Settings& settings, const data::ImageSize& size,
                           const std::filesystem::path& directory, Device device);

/// Pictures and their labels, i64, as a training step takes them.
train::Batch to_batch(std::span<const data::LabeledImage> samples, const data::ImageSize& size);

struct Judged {
  int64_t label = 0, predicted = 0;
  double probability = 0;  // of what was predicted
};

/// What the model says of each picture, in evaluation mode, and the mean cross-entropy.
struct Judgement {
  std::vector<Judged> pictures;
  double loss = 0;
  int64_t right() const;
  double accuracy() const { return static_cast<double>(right()) / static_cast<double>(pictures.size()); }
};

/// NumericError where the model answers with NaN; Stopped after a signal.
Judgement grade(const Classifier& classifier, const data::ImageDataset& pictures);

}  // namespace heed::apps
