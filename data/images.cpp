#include <algorithm>
#include <cmath>

#include <heed/core/base/check.h>
#include <heed/core/base/philox.h>
#include <heed/data/images.h>

namespace heed::data {
namespace {

// A line of numbers separated by commas.
class NumberLine {
 public:
  NumberLine(std::string_view text, std::string_view file, int64_t line)
      : text_(text), file_(file), line_(line) {}

  bool at_end() const { return at_ == text_.size(); }
  uint8_t next() {
    if (at_ > 0) {
      HEED_CHECK(text_[at_] == ',', DataError, where(), "expected a comma");
      ++at_;
    }
    const size_t first = at_;
    int number = 0;
    for (; !at_end() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_)
      number = std::min(number * 10 + (text_[at_] - '0'), 1000);
    HEED_CHECK(at_ > first && number <= 255, DataError, where(), "expected a whole number from 0 to 255");
    return static_cast<uint8_t>(number);
  }

 private:
  std::string where() const { return concat(file_, ":", line_, ":", at_ + 1, ": "); }

  std::string_view text_, file_;
  int64_t line_;
  size_t at_ = 0;
};

int64_t classes_of(const std::vector<uint8_t>& labels) {
  return labels.empty() ? 0 : 1 + *std::max_element(labels.begin(), labels.end());
}

// The side of a square of so many pixels.
int64_t side_of(int64_t pixels, std::string_view file, int64_t line) {
  const auto side = static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(pixels))));
  HEED_CHECK(pixels > 0 && side * side == pixels, DataError, file, ":", line, ": ", pixels,
             " pixels before the label are no square");
  return side;
}

uint32_t big_endian(std::string_view bytes, size_t at) {
  uint32_t number = 0;
  for (size_t i = 0; i < 4; ++i) number = number << 8 | static_cast<uint8_t>(bytes[at + i]);
  return number;
}

// The sizes in the header of an IDX file of bytes, whose data then follow.
std::vector<int64_t> idx_sizes(std::string_view bytes, size_t axes, std::string_view file) {
  HEED_CHECK(bytes.size() >= 4 + 4 * axes && big_endian(bytes, 0) == 0x0800 + axes, DataError, file,
             ": this is no IDX file of bytes with ", axes, axes == 1 ? " axis" : " axes");
  std::vector<int64_t> sizes;
  uint64_t rest = bytes.size() - 4 - 4 * axes, count = 1;
  for (size_t i = 0; i < axes; ++i) {
    sizes.push_back(big_endian(bytes, 4 + 4 * i));
    HEED_CHECK(sizes.back() > 0, DataError, file, ": it has an axis of size 0");
    count = std::min(count, rest + 1) * static_cast<uint64_t>(sizes.back());
  }
  HEED_CHECK(count == rest, DataError, file, ": its header speaks of other than the ", rest,
             " bytes that follow");
  return sizes;
}

}  // namespace

LabeledImage ImageFile::get(int64_t, int64_t index) const {
  HEED_CHECK(index >= 0 && index < size(), IndexError, "there is no picture ", index, " of ", size());
  const auto first = pixels_.begin() + index * image_size_.pixels();
  return {std::vector<float>(first, first + image_size_.pixels()), labels_[static_cast<size_t>(index)]};
}

float ImageFile::largest() const { return *std::max_element(pixels_.begin(), pixels_.end()); }

ImageFile parse_image_csv(std::string_view text, std::string_view file) {
  ImageFile images;
  int64_t number = 0;
  while (!text.empty()) {
    ++number;
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() && text.empty()) break;
    NumberLine numbers(line, file, number);
    const auto before = std::ssize(images.pixels_);
    do images.pixels_.push_back(numbers.next());
    while (!numbers.at_end());
    images.labels_.push_back(images.pixels_.back());
    images.pixels_.pop_back();
    const int64_t pixels = std::ssize(images.pixels_) - before;
    if (number == 1) images.image_size_.height = images.image_size_.width = side_of(pixels, file, number);
    HEED_CHECK(pixels == images.image_size_.pixels(), DataError, file, ":", number, ": ", pixels,
               " pixels, the first line has ", images.image_size_.pixels());
  }
  HEED_CHECK(!images.labels_.empty(), DataError, file, ": there are no pictures");
  images.classes_ = classes_of(images.labels_);
  return images;
}

ImageFile parse_idx(std::string_view images, std::string_view images_file, std::string_view labels,
                    std::string_view labels_file) {
  const std::vector<int64_t> sizes = idx_sizes(images, 3, images_file),
                             count = idx_sizes(labels, 1, labels_file);
  HEED_CHECK(sizes[0] == count[0], DataError, images_file, " has ", sizes[0], " pictures, ", labels_file, " ",
             count[0], " labels");
  ImageFile result;
  result.image_size_ = {1, sizes[1], sizes[2]};
  const std::string_view pixels = images.substr(16), classes = labels.substr(8);
  result.pixels_.assign(pixels.begin(), pixels.end());
  result.labels_.assign(classes.begin(), classes.end());
  result.classes_ = classes_of(result.labels_);
  return result;
}

EveryNth::EveryNth(std::shared_ptr<const ImageDataset> images, int64_t every, bool others)
    : images_(std::move(images)), every_(every), others_(others) {
  HEED_CHECK(every >= 2, ConfigError, "every n-th picture: n must be at least 2, got ", every);
  HEED_CHECK(size() > 0, DataError, "of ", images_->size(), " pictures there is no ", every, "th");
}

int64_t EveryNth::size() const {
  const int64_t chosen = images_->size() / every_;
  return others_ ? images_->size() - chosen : chosen;
}

int64_t EveryNth::number(int64_t index) const {
  return others_ ? index + index / (every_ - 1) : (index + 1) * every_ - 1;
}

LabeledImage EveryNth::get(int64_t epoch, int64_t index) const { return images_->get(epoch, number(index)); }

std::string EveryNth::fingerprint() const {
  return concat(images_->fingerprint(), others_ ? ", but every " : ", every ", every_, "th");
}

TransformedImages::TransformedImages(std::shared_ptr<const ImageDataset> images,
                                     const ImageTransform& transform)
    : images_(std::move(images)), transform_(transform) {
  const ImageSize size = images_->image_size();
  HEED_CHECK(std::isfinite(transform.white) && transform.white > 0, ConfigError,
             "white must be positive and finite, got ", transform.white);
  HEED_CHECK(transform.shift >= 0 && transform.shift < std::min(size.height, size.width), ConfigError,
             "a shift by ", transform.shift, " pixels of pictures of ", size.height, " x ", size.width);
}

LabeledImage TransformedImages::get(int64_t epoch, int64_t index) const {
  LabeledImage image = images_->get(epoch, index);
  for (float& pixel : image.pixels) pixel /= transform_.white;
  if (transform_.shift == 0) return image;
  const auto range = static_cast<uint32_t>(2 * transform_.shift + 1);
  const Philox4 random =
      philox(static_cast<uint32_t>(index), static_cast<uint32_t>(epoch), static_cast<uint32_t>(epoch >> 32),
             0, static_cast<uint32_t>(transform_.seed), static_cast<uint32_t>(transform_.seed >> 32));
  const int64_t down = int64_t{random.word[0] % range} - transform_.shift,
                right = int64_t{random.word[1] % range} - transform_.shift;
  const ImageSize size = images_->image_size();
  std::vector<float> moved(image.pixels.size(), 0.0f);
  for (int64_t c = 0; c < size.channels; ++c)
    for (int64_t y = std::max<int64_t>(0, down); y < std::min(size.height, size.height + down); ++y)
      for (int64_t x = std::max<int64_t>(0, right); x < std::min(size.width, size.width + right); ++x)
        moved[static_cast<size_t>((c * size.height + y) * size.width + x)] =
            image.pixels[static_cast<size_t>((c * size.height + y - down) * size.width + x - right)];
  image.pixels = std::move(moved);
  return image;
}

}  // namespace heed::data
