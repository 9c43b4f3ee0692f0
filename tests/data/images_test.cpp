#include <set>

#include <gtest/gtest.h>

#include <heed/core/base/check.h>
#include <heed/data/images.h>

#include "../support/expect_error.h"
#include "../support/temporary_folder.h"

namespace heed::data {
namespace {

using test::expect_error;
using Pixels = std::vector<float>;

TEST(ImageCsv, ReadsPicturesInOrder) {
  const ImageFile images = parse_image_csv("1,2,3,4,0\r\n0,16,0,255,7\n", "f");
  ASSERT_EQ(images.size(), 2);
  EXPECT_EQ(images.image_size(), (ImageSize{1, 2, 2}));
  EXPECT_EQ(images.classes(), 8);
  EXPECT_EQ(images.largest(), 255);
  EXPECT_EQ(images.get(0, 0).pixels, (Pixels{1, 2, 3, 4}));
  EXPECT_EQ(images.get(3, 1).pixels, (Pixels{0, 16, 0, 255}));
  EXPECT_EQ(images.get(0, 1).label, 7);
  expect_error<IndexError>([&] { images.get(0, 2); }, {"no picture 2 of 2"});
}

TEST(ImageCsv, Errors) {
  const auto refused = [](const std::string& text, const char* message) {
    expect_error<DataError>([&] { parse_image_csv(text, "f"); }, {message});
  };
  refused("", "f: there are no pictures");
  refused("1,2,3,4,0\n1,2,3,256,0", "f:2:10: expected a whole number from 0 to 255");
  refused("1,2,3,4,0\n1,2,-3,4,0", "f:2:5: expected a whole number");
  refused("1,2,3,4 ,0", "f:1:8: expected a comma");
  refused("1,2,3,4,", "f:1:9: expected a whole number");
  refused("1,2,3,0", "f:1: 3 pixels before the label are no square");
  refused("5", "f:1: 0 pixels before the label");
  refused("1,2,3,4,0\n1,0", "f:2: 1 pixels, the first line has 4");
  refused("1,2,3,4,0\n\n1,2,3,4,0", "f:2:1: expected a whole number");
  refused(std::string("1,2,3,4\0,0", 10), "expected a comma");
}

std::string number(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 255);
  return bytes;
}
const std::string kImages =
    number(0x803) + number(2) + number(1) + number(3) + std::string("\x01\x02\x03\x00\xff\x05", 6);
const std::string kLabels = number(0x801) + number(2) + std::string("\x04\x00", 2);

TEST(Idx, ReadsPicturesAndLabels) {
  const ImageFile images = parse_idx(kImages, "i", kLabels, "l");
  ASSERT_EQ(images.size(), 2);
  EXPECT_EQ(images.image_size(), (ImageSize{1, 1, 3}));
  EXPECT_EQ(images.classes(), 5);
  EXPECT_EQ(images.get(0, 1).pixels, (Pixels{0, 255, 5}));
  EXPECT_EQ(images.get(0, 0).label, 4);
}

TEST(Idx, Errors) {
  const auto refused = [](const std::string& images, const std::string& labels, const char* message) {
    expect_error<DataError>([&] { parse_idx(images, "i", labels, "l"); }, {message});
  };
  refused("", kLabels, "i: this is no IDX file of bytes with 3 axes");
  refused(kLabels, kLabels, "i: this is no IDX file");
  refused(kImages, kImages, "l: this is no IDX file of bytes with 1 axis");
  refused(kImages + "x", kLabels, "i: its header speaks of other than the 7 bytes that follow");
  refused(kImages.substr(0, 21), kLabels, "than the 5 bytes");
  refused(number(0x803) + number(2) + number(0) + number(3), kLabels, "i: it has an axis of size 0");
  // Sizes whose product wraps around to that of the data.
  refused(number(0x803) + number(1u << 31) + number(1u << 31) + number(4), kLabels, "than the 0 bytes");
  refused(kImages, number(0x801) + number(1) + "x", "i has 2 pictures, l 1 labels");
}

TEST(Images, FilesHaveTheHashOfTheirContent) {
  const test::TemporaryFolder folder;
  const std::string file = folder.path() + "/f.csv";
  folder.put("f.csv", "1,2,3,4,0\n");
  const ImageFile images = read_images(file);
  EXPECT_EQ(images.size(), 1);
  EXPECT_TRUE(images.fingerprint().starts_with("sha256="));
  folder.put("f.csv", "1,2,3,5,0\n");
  EXPECT_NE(read_images(file).fingerprint(), images.fingerprint());
  expect_error<DataError>([&] { read_images(folder.path() + "/none"); }, {"none"});
}

std::shared_ptr<const ImageFile> numbered(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += concat(i, ",0,0,0,", i % 3, "\n");
  return std::make_shared<ImageFile>(parse_image_csv(text, "f"));
}

TEST(Images, EveryNthAndTheOthersAreAll) {
  const auto all = numbered(12);
  const EveryNth test(all, 5, false), train(all, 5, true);
  EXPECT_EQ(test.size(), 2);
  EXPECT_EQ(test.get(0, 0).pixels[0], 4);
  EXPECT_EQ(test.get(0, 1).pixels[0], 9);
  std::set<int64_t> seen{4, 9};
  ASSERT_EQ(train.size(), 10);
  for (int64_t i = 0; i < train.size(); ++i) {
    EXPECT_EQ(train.get(0, i).pixels[0], static_cast<float>(train.number(i)));
    EXPECT_TRUE(seen.insert(train.number(i)).second) << i;
  }
  EXPECT_EQ(seen.size(), 12u);
  EXPECT_NE(test.fingerprint(), train.fingerprint());
  expect_error<ConfigError>([&] { EveryNth(all, 1, true); }, {"at least 2, got 1"});
  expect_error<DataError>([&] { EveryNth(all, 13, false); }, {"of 12 pictures there is no 13th"});
}

TEST(Images, ShiftsMoveByUpToThatManyPixels) {
  const auto image = std::make_shared<ImageFile>(parse_image_csv("0,0,0,0,8,0,0,0,0,1", "f"));
  const TransformedImages moved(image, {.white = 16, .shift = 1, .seed = 3});
  std::set<Pixels> places;
  for (int64_t epoch = 0; epoch < 200; ++epoch) {
    const Pixels pixels = moved.get(epoch, 0).pixels;
    EXPECT_EQ(std::count(pixels.begin(), pixels.end(), 0.5f), 1) << epoch;
    EXPECT_EQ(pixels, moved.get(epoch, 0).pixels);
    places.insert(pixels);
  }
  EXPECT_EQ(places.size(), 9u);
  // What goes over the edge is gone.
  const auto corner = std::make_shared<ImageFile>(parse_image_csv("8,0,0,0,0,0,0,0,0,1", "f"));
  const TransformedImages shifted(corner, {.shift = 1, .seed = 3});
  std::set<Pixels> of_corner;
  for (int64_t epoch = 0; epoch < 200; ++epoch) of_corner.insert(shifted.get(epoch, 0).pixels);
  EXPECT_EQ(of_corner.size(), 5u);  // four places and none
  expect_error<ConfigError>([&] { TransformedImages(image, {.white = 0}); }, {"white"});
  expect_error<ConfigError>([&] { TransformedImages(image, {.shift = 3}); }, {"a shift by 3 pixels"});
}

}  // namespace
}  // namespace heed::data
