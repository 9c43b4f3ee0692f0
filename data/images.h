// Labelled pictures from files.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <heed/data/dataset.h>

namespace heed::data {

struct LabeledImage {
  std::vector<float> pixels;  // [channels, height, width]
  int64_t label = 0;
};

struct ImageSize {
  int64_t channels = 1, height = 0, width = 0;

  int64_t pixels() const { return channels * height * width; }
  friend bool operator==(const ImageSize&, const ImageSize&) = default;
};

/// Pictures of one size, with labels from 0 on.
class ImageDataset : public Dataset<LabeledImage> {
 public:
  virtual ImageSize image_size() const = 0;
  /// One more than the largest label.
  virtual int64_t classes() const = 0;
};

/// The pictures of a file, in its order, with its numbers.
class ImageFile final : public ImageDataset {
 public:
  int64_t size() const override { return static_cast<int64_t>(labels_.size()); }
  LabeledImage get(int64_t epoch, int64_t index) const override;
  std::string fingerprint() const override { return fingerprint_; }
  ImageSize image_size() const override { return image_size_; }
  int64_t classes() const override { return classes_; }
  /// The brightest pixel of all.
  float largest() const;

 private:
  friend ImageFile parse_image_csv(std::string_view, std::string_view);
  friend ImageFile parse_idx(std::string_view, std::string_view, std::string_view, std::string_view);
  friend ImageFile read_images(const std::string&, const std::string&);

  ImageSize image_size_;
  std::vector<uint8_t> pixels_;  // of all pictures
  std::vector<uint8_t> labels_;
  int64_t classes_ = 0;
  std::string fingerprint_;
};

/// A picture a line: its pixels, row by row, and its label, whole numbers from 0 to 255 separated by commas.
/// Pictures are square, of one channel. `file` stands in messages. DataError with the line for anything else.
ImageFile parse_image_csv(std::string_view text, std::string_view file);

/// The IDX files of MNIST (LeCun et al., 1998): pictures [count, height, width] and labels [count], bytes.
/// DataError for anything else, or numbers that do not agree with the files' sizes.
ImageFile parse_idx(std::string_view images, std::string_view images_file, std::string_view labels,
                    std::string_view labels_file);

/// Reads and parses regular files: with `labels` two IDX files, without one CSV. DataError if one cannot be
/// read; the fingerprint is the hash of what they hold.
ImageFile read_images(const std::string& images, const std::string& labels = {});

/// Every `every`-th picture of a data set, from the every-th on, or all the others.
class EveryNth final : public ImageDataset {
 public:
  /// ConfigError unless every is at least 2, DataError if a part is empty.
  EveryNth(std::shared_ptr<const ImageDataset> images, int64_t every, bool others);
  int64_t size() const override;
  LabeledImage get(int64_t epoch, int64_t index) const override;
  std::string fingerprint() const override;
  ImageSize image_size() const override { return images_->image_size(); }
  int64_t classes() const override { return images_->classes(); }
  /// Its number among all.
  int64_t number(int64_t index) const;

 private:
  std::shared_ptr<const ImageDataset> images_;
  int64_t every_;
  bool others_;
};

struct ImageTransform {
  float white = 1;    // pixels are divided by it
  int64_t shift = 0;  // each epoch each picture moves by up to so many pixels in each direction, 0 coming in
  uint64_t seed = 42;
};

/// The pictures of another set, changed: the same in any order and on any thread.
class TransformedImages final : public ImageDataset {
 public:
  /// ConfigError unless white is positive and finite and the shift smaller than the pictures.
  TransformedImages(std::shared_ptr<const ImageDataset> images, const ImageTransform& transform);
  int64_t size() const override { return images_->size(); }
  LabeledImage get(int64_t epoch, int64_t index) const override;
  std::string fingerprint() const override { return images_->fingerprint(); }
  ImageSize image_size() const override { return images_->image_size(); }
  int64_t classes() const override { return images_->classes(); }

 private:
  std::shared_ptr<const ImageDataset> images_;
  ImageTransform transform_;
};

}  // namespace heed::data
