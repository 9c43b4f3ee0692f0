#include <heed/core/io/detail/json_scanner.h>
#include <heed/core/io/file.h>
#include <heed/core/io/safetensors.h>
#include <heed/nn/pretrained/detail/name_table.h>
#include <heed/nn/pretrained/detail/settings_file.h>

namespace heed::nn::detail {
namespace {

constexpr size_t kMaxShards = 512;
constexpr uint64_t kMaxIndexBytes = 64 << 20;

StoredTensor stored_tensor(const std::shared_ptr<const SafetensorsReader>& reader, const TensorEntry& entry) {
  return {.shape = entry.shape,
          .type = entry.stored_name(),
          .readable = entry.readable() && is_floating(entry.dtype),
          .dtype = entry.dtype,
          .verify = [reader, &entry] { reader->check_digest(entry); },
          .read =
              [reader, &entry](int64_t first, const Tensor& out) {
                reader->read_elements(entry, static_cast<uint64_t>(first), static_cast<uint64_t>(out.numel()),
                                      out.raw_data());
              }};
}

}  // namespace

WeightFiles open_safetensors(const std::string& path) {
  const auto reader = std::make_shared<const SafetensorsReader>(path);
  WeightFiles files{path, {}};
  for (const TensorEntry& entry : reader->header().tensors)
    files.tensors.emplace(entry.name, stored_tensor(reader, entry));
  return files;
}

std::map<std::string, std::set<std::string>> parse_index(std::string_view text, const std::string& path) {
  const heed::detail::Json index = parse_json_object(text, path);
  const heed::detail::Json* const found = index.find("weight_map");
  const auto* const map = found ? found->as<heed::detail::JsonObject>() : nullptr;
  HEED_CHECK(map, CheckpointError, "'", path, "' has no weight_map");
  std::map<std::string, std::set<std::string>> files;
  for (size_t i = 0; i < map->keys.size(); ++i) {
    const auto* const file = map->values[i].as<std::string>();
    HEED_CHECK(file, CheckpointError, "'", path, "': the file of ", heed::detail::quoted(map->keys[i]),
               " is no text");
    HEED_CHECK(!file->empty() && file->front() != '.' &&
                   file->find_first_of(std::string_view("/\\\0", 3)) == file->npos,
               CheckpointError, "'", path, "': ", heed::detail::quoted(*file),
               " is no name of a file beside it");
    files[*file].insert(map->keys[i]);
    HEED_CHECK(files.size() <= kMaxShards, CheckpointError, "'", path, "' lists more than ", kMaxShards,
               " files");
  }
  return files;
}

WeightFiles open_shards(const std::string& index) {
  WeightFiles files{index, {}};
  const size_t slash = index.rfind('/');
  const std::string folder = slash == index.npos ? "" : index.substr(0, slash + 1);
  for (const auto& shard : parse_index(read_whole_file(index, kMaxIndexBytes), index)) {
    WeightFiles one = open_safetensors(folder + shard.first);
    for (const std::string& name : shard.second)
      HEED_CHECK(one.tensors.contains(name), CheckpointError, "'", index, "' says that '", shard.first,
                 "' has ", heed::detail::quoted(name), ", which it has not");
    for (const auto& tensor : one.tensors)
      HEED_CHECK(shard.second.contains(tensor.first), CheckpointError, "'", one.path, "' has ",
                 heed::detail::quoted(tensor.first), ", which '", index, "' does not list there");
    files.tensors.merge(one.tensors);
  }
  return files;
}

WeightFiles open_gguf(const std::shared_ptr<const GgufReader>& reader) {
  WeightFiles files{reader->path(), {}};
  for (const GgufTensor& tensor : reader->tensors())
    files.tensors.emplace(tensor.name, StoredTensor{.shape = tensor.shape,
                                                    .type = tensor.type_name(),
                                                    .readable = tensor.readable(),
                                                    .dtype = DType::f32,
                                                    .verify = [] {},
                                                    .read =
                                                        [reader, &tensor](int64_t first, const Tensor& out) {
                                                          reader->read(tensor, first, out.numel(),
                                                                       out.data<float>());
                                                        }});
  return files;
}

}  // namespace heed::nn::detail
