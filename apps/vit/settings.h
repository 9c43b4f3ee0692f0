// What can be set about a classifier of pictures, its data and its training.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include <heed/data/images.h>

#include "apps/common/options/common_settings.h"
#include "apps/common/options/training_settings.h"

namespace heed::apps {

enum class ClassifierKind { vit, cnn };

/// Pictures in files, and which of them are for testing.
struct PictureSettings {
  std::filesystem::path data, labels;
  int64_t test_every = 5;
  // What the training data have, unless given: later data may lack a class or be darker.
  std::optional<int64_t> classes;
  std::optional<double> white;
};

struct Settings : CommonSettings, OptimizationSettings, RunSettings, PictureSettings {
  Settings();

  int64_t shift = 1;

  ClassifierKind model = ClassifierKind::vit;
  int64_t patch = 4, d_model = 96, heads = 4, layers = 2, d_ff = 256;
  double dropout = 0.1;
  bool no_figures = false;

  /// Takes what is not given from the data. ConfigError where the data contradict what is.
  void take_from(const data::ImageFile& images);
};

/// Data, optimization, model, and where a run leaves its results.
void declare_training(OptionTable& table, Settings& settings);

/// The settings of a trained model: DIR/config.toml. CheckpointError where there is none, ConfigError.
Settings load_settings(const std::filesystem::path& directory);

/// The pictures of --data. ConfigError without one, DataError.
std::shared_ptr<const data::ImageFile> read_pictures(const PictureSettings& settings);

}  // namespace heed::apps
