#include <heed/core/base/check.h>
#include <heed/core/io/file.h>
#include <heed/core/io/sha256.h>
#include <heed/data/images.h>

namespace heed::data {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{1} << 32;

std::string content(const std::string& path) {
  try {
    return read_whole_file(path, kMaxBytes);
  } catch (const IoError& error) {
    throw DataError(error.what());
  }
}

std::string hash(const std::string& bytes) { return "sha256=" + to_hex(sha256(bytes.data(), bytes.size())); }

}  // namespace

ImageFile read_images(const std::string& images, const std::string& labels) {
  const std::string bytes = content(images);
  if (labels.empty()) {
    ImageFile result = parse_image_csv(bytes, images);
    result.fingerprint_ = hash(bytes);
    return result;
  }
  const std::string label_bytes = content(labels);
  ImageFile result = parse_idx(bytes, images, label_bytes, labels);
  result.fingerprint_ = hash(bytes) + ", labels " + hash(label_bytes);
  return result;
}

}  // namespace heed::data
