#include <heed/core/creation.h>
#include <heed/core/io/safetensors.h>
#include <heed/core/serialize.h>

namespace heed {

void save_tensors(const std::string& path, const NamedTensors& tensors,
                  const std::map<std::string, std::string>& metadata) {
  std::vector<Tensor> host;
  std::vector<TensorData> data;
  for (const auto& entry : tensors) {
    host.push_back(entry.second.detach().to(kCpu).contiguous());
    const Tensor& tensor = host.back();
    data.push_back(
        {{entry.first, tensor.dtype(), {tensor.shape().begin(), tensor.shape().end()}}, tensor.raw_data()});
  }
  save_safetensors(path, data, {.metadata = metadata});
}

NamedTensors load_tensors(const std::string& path) {
  const SafetensorsReader reader(path);
  NamedTensors result;
  for (const TensorEntry& entry : reader.header().tensors) {
    const Tensor tensor = empty(Shape(std::span<const int64_t>(entry.shape)), {entry.dtype, kCpu});
    reader.read(entry, tensor.raw_data(), entry.bytes());
    result.emplace_back(entry.name, tensor);
  }
  return result;
}

}  // namespace heed
