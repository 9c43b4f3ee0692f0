// An index on disk: a safetensors file with checksums.
#include <filesystem>

#include <heed/core/io/file.h>
#include <heed/core/ops.h>
#include <heed/core/serialize.h>

#include "apps/embed/index.h"

namespace heed::apps {
namespace {

constexpr char kKind[] = "heed search index 1";

Tensor bytes_of(const std::string& text) {
  Tensor result = empty({std::ssize(text)}, {.dtype = DType::i32});
  for (size_t i = 0; i < text.size(); ++i) result.data<int32_t>()[i] = static_cast<unsigned char>(text[i]);
  return result;
}

// Each file's path after the other, each followed by a NUL, which no path has.
std::string joined_paths(const std::vector<FileStamp>& files) {
  std::string text;
  for (const FileStamp& file : files) (text += file.path) += '\0';
  return text;
}

// The tensors of a file by name, with what is expected of them.
class Fields {
 public:
  explicit Fields(const std::filesystem::path& file) : file_(file.string()), tensors_(load_tensors(file_)) {}

  Tensor take(const char* name, DType dtype, int rank) const {
    for (const auto& [found, tensor] : tensors_) {
      if (found != name) continue;
      require(tensor.dtype() == dtype && tensor.rank() == rank);
      return tensor;
    }
    throw CheckpointError(concat("'", file_, "' is no search index: it has no ", name));
  }

  void require(bool holds) const {
    HEED_CHECK(holds, CheckpointError, "'", file_,
               "' is no sound search index; remove it, or use another with --index");
  }

 private:
  std::string file_;
  NamedTensors tensors_;
};

}  // namespace

SearchIndex load_index(const std::filesystem::path& file) {
  SearchIndex index;
  if (!std::filesystem::exists(file)) return index;
  const Fields fields(file);
  index.vectors = fields.take("vectors", DType::f32, 2);
  index.probe = fields.take("probe", DType::f32, 2);
  const Tensor paths = fields.take("paths", DType::i32, 1), stamps = fields.take("stamps", DType::i64, 2),
               places = fields.take("places", DType::i64, 2);
  fields.require(index.probe.size(0) == 1 && index.probe.size(1) == index.vectors.size(1) &&
                 stamps.size(1) == 2 && places.size(1) == 3 && places.size(0) == index.vectors.size(0));
  std::string path;
  for (int64_t i = 0; i < paths.numel(); ++i) {
    const int32_t byte = paths.data<int32_t>()[i];
    fields.require(byte >= 0 && byte < 256);
    if (byte != 0) {
      path += static_cast<char>(byte);
      continue;
    }
    const int64_t number = std::ssize(index.files);
    fields.require(number < stamps.size(0));
    // A path leads to a file of the folder, whatever the index says.
    const std::filesystem::path relative(path);
    bool inside = relative.is_relative() && !path.empty();
    for (const auto& part : relative) inside = inside && part != "..";
    fields.require(inside);
    const int64_t* const stamp = stamps.data<int64_t>() + 2 * number;
    index.files.push_back({std::move(path), stamp[0], stamp[1]});
    path.clear();
  }
  fields.require(path.empty() && std::ssize(index.files) == stamps.size(0));
  for (int64_t i = 0; i < places.size(0); ++i) {
    const int64_t* const place = places.data<int64_t>() + 3 * i;
    fields.require(place[0] >= 0 && place[0] < std::ssize(index.files) && place[1] >= 1 &&
                   place[1] <= place[2]);
    index.places.push_back({place[0], place[1], place[2]});
  }
  return index;
}

void save_index(const SearchIndex& index, const std::filesystem::path& file) {
  Tensor stamps = empty({std::ssize(index.files), 2}, {.dtype = DType::i64});
  for (size_t i = 0; i < index.files.size(); ++i) {
    stamps.data<int64_t>()[2 * i] = index.files[i].size;
    stamps.data<int64_t>()[2 * i + 1] = index.files[i].modified;
  }
  Tensor places = empty({index.size(), 3}, {.dtype = DType::i64});
  for (size_t i = 0; i < index.places.size(); ++i) {
    int64_t* const place = places.data<int64_t>() + 3 * i;
    place[0] = index.places[i].file;
    place[1] = index.places[i].first_line;
    place[2] = index.places[i].last_line;
  }
  save_tensors(file.string(),
               {{"vectors", index.vectors},
                {"probe", index.probe},
                {"paths", bytes_of(joined_paths(index.files))},
                {"stamps", stamps},
                {"places", places}},
               {{"kind", kKind}});
}

}  // namespace heed::apps
