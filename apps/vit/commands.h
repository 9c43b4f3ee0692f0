// The commands of vit. Each throws on error; run_program turns that into an exit code.
#pragma once

#include "apps/vit/classifier.h"

namespace heed::apps {

/// What the commands that use a trained model share.
struct ModelSettings : CommonSettings {
  std::filesystem::path model = "runs/vit", data, labels;
};

struct EvalSettings : ModelSettings {
  bool all = false;
};

struct PredictSettings : ModelSettings {
  std::vector<std::string> numbers;  // of pictures in the file
};

struct AttentionSettings : ModelSettings {
  std::optional<int64_t> picture;
  std::optional<int64_t> layer;
  std::filesystem::path out;  // empty: the model's folder
};

/// A trained model and the pictures that are asked about.
struct Trained {
  Settings settings;
  std::shared_ptr<const data::ImageDataset> pictures;  // all of --data, their brightest 1
  Classifier classifier;
  Device device;
};
Trained open_model(const ModelSettings& settings);

/// A resumed run takes what the options leave open from its checkpoint.
void train(Settings& settings, OptionTable& table);
void evaluate(const EvalSettings& settings);
void predict(const PredictSettings& settings);
void attention(const AttentionSettings& settings);

}  // namespace heed::apps
