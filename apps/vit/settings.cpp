#include "apps/vit/settings.h"

namespace heed::apps {
namespace {

constexpr IntegerRange kSize{1, int64_t{1} << 20};

}  // namespace

Settings::Settings() {
  out = "runs/vit";
  epochs = 120;
  optimizer = OptimizerKind::adamw;
  adam_eps = 1e-8;
  lr = 3e-3;
  weight_decay = 0.05;
  label_smoothing = 0.1;
}

void Settings::take_from(const data::ImageFile& images) {
  if (!classes) classes = std::max<int64_t>(2, images.classes());
  if (!white) white = std::max(images.largest(), 1.0f);
  HEED_CHECK(images.classes() <= *classes, ConfigError, "--classes ", *classes, ": a picture has the label ",
             images.classes() - 1);
}

void declare_training(OptionTable& table, Settings& s) {
  declare_common(table, s);
  table.group("Data");
  table
      .path("data", s.data,
            "Pictures: CSV (pixels and label, a picture a line), or with --labels an IDX file as MNIST's")
      .not_saved();
  table.path("labels", s.labels, "IDX file of labels").not_saved();
  table.integer("test-every", s.test_every, "Every so many-th picture is for testing", {2, 1 << 20});
  table.integer("classes", s.classes, "Classes; by default those that the data have", {2, 256});
  table.number("white", s.white, "Pixels are divided by it; by default by the brightest",
               {0, 1e9, true, false});
  table.integer("shift", s.shift, "In training pictures move by up to so many pixels in each direction",
                {0, 1 << 16});
  declare_optimization(table, s);
  table.group("Model");
  table.choice("model", s.model, "Vision Transformer or convolutional network",
               {{"vit", ClassifierKind::vit}, {"cnn", ClassifierKind::cnn}});
  table.integer("patch", s.patch, "vit: side of a patch in pixels", kSize);
  table.integer("d-model", s.d_model, "vit: width", kSize);
  table.integer("heads", s.heads, "vit: attention heads", kSize);
  table.integer("layers", s.layers, "vit: layers", {0, 1024});
  table.integer("d-ff", s.d_ff, "vit: width of the feed-forward network", kSize);
  table.number("dropout", s.dropout, "vit: rate of all dropouts", {0, 1, false, true});
  declare_run(table, s);
  table.flag("no-figures", s.no_figures, "Draw no figures at the end").not_saved();
}

Settings load_settings(const std::filesystem::path& directory) {
  Settings settings;
  OptionTable table("vit");
  declare_training(table, settings);
  read_trained_settings(table, directory);
  return settings;
}

std::shared_ptr<const data::ImageFile> read_pictures(const PictureSettings& s) {
  HEED_CHECK(!s.data.empty(), ConfigError, "--data FILE is missing: the pictures");
  return std::make_shared<data::ImageFile>(data::read_images(s.data.string(), s.labels.string()));
}

}  // namespace heed::apps
