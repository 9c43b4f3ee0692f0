#include <set>
#include <string_view>

#include <heed/core/autograd/autograd.h>
#include <heed/core/creation.h>
#include <heed/core/io/safetensors.h>
#include <heed/core/ops.h>
#include <heed/core/serialize.h>
#include <heed/nn/weights.h>

namespace heed::nn {
namespace {

std::vector<std::string> names_of(const Parameter& parameter) {
  std::vector<std::string> names{parameter.name};
  names.insert(names.end(), parameter.aliases.begin(), parameter.aliases.end());
  return names;
}

// What a file has of a module: its parameters, and its buffers as if they were some.
std::vector<Parameter> stored_parts(Module& module) {
  std::vector<Parameter> parts = module.named_parameters();
  for (const auto& [name, buffer] : module.named_buffers()) parts.push_back({name, {}, buffer});
  return parts;
}

DType stored_type(const Tensor& tensor) { return is_floating(tensor.dtype()) ? DType::f32 : tensor.dtype(); }

// As they are to stand in the file.
std::vector<TensorSpec> expected_tensors(const std::vector<Parameter>& parts, const std::string& prefix) {
  std::vector<TensorSpec> result;
  for (const Parameter& part : parts)
    for (const std::string& name : names_of(part)) {
      const Shape& shape = part.tensor.shape();
      result.push_back({prefix + name, stored_type(part.tensor), {shape.begin(), shape.end()}});
    }
  return result;
}

// The part of a header whose names begin with the prefix.
SafetensorsHeader part_of(const SafetensorsHeader& header, const std::string& prefix,
                          const std::string& path) {
  if (prefix.empty()) return header;
  SafetensorsHeader part;
  for (const uint32_t i : header.by_name)
    if (header.tensors[i].name.compare(0, prefix.size(), prefix) == 0) {
      part.by_name.push_back(static_cast<uint32_t>(part.tensors.size()));
      part.tensors.push_back(header.tensors[i]);
    }
  HEED_CHECK(!part.tensors.empty(), CheckpointError, path, ": no tensor has a name that begins with '",
             prefix, "'; the first of its ", header.tensors.size(), " is '",
             header.tensors.empty() ? "" : header.tensors[0].name, "'");
  return part;
}

LoadReport compare(const SafetensorsHeader& header, const std::vector<TensorSpec>& expected,
                   const std::string& prefix) {
  LoadReport report;
  std::set<std::string_view> names;
  for (const TensorSpec& spec : expected) {
    names.insert(spec.name);
    if (!header.find(spec.name)) report.missing.push_back(spec.name.substr(prefix.size()));
  }
  for (const TensorEntry& entry : header.tensors)
    if (!names.contains(entry.name)) report.unexpected.push_back(entry.name);
  return report;
}

Tensor read_tensor(const SafetensorsReader& reader, const TensorEntry& entry) {
  const Tensor tensor = empty(Shape(std::span<const int64_t>(entry.shape)), {entry.dtype, kCpu});
  reader.read(entry, tensor.raw_data(), entry.bytes());
  return tensor;
}

void check_entry(const TensorEntry& entry, const Tensor& expected, const std::string& path) {
  const Shape got{std::span<const int64_t>(entry.shape)};
  const bool fits =
      is_floating(expected.dtype()) ? is_floating(entry.dtype) : entry.dtype == expected.dtype();
  HEED_CHECK(got == expected.shape() && fits, CheckpointError, path, ": '", entry.name, "' is ", entry.dtype,
             " ", got, ", the model's is ", stored_type(expected), " ", expected.shape());
}

}  // namespace

void save_weights(Module& module, const std::string& path, const SaveWeightsOptions& options) {
  NamedTensors tensors;
  for (const Parameter& part : stored_parts(module)) {
    const DType dtype = is_floating(part.tensor.dtype()) ? options.dtype : part.tensor.dtype();
    const Tensor value = part.tensor.detach().to(dtype);
    for (const std::string& name : names_of(part)) tensors.emplace_back(options.prefix + name, value);
  }
  save_tensors(path, tensors, options.metadata);
}

void check_weights(Module& module, const std::string& path) {
  match_tensors(SafetensorsReader(path).header(), expected_tensors(stored_parts(module), ""), path);
}

LoadReport load_weights(Module& module, const std::string& path, const LoadOptions& options) {
  const SafetensorsReader reader(path);
  const std::vector<Parameter> parts = stored_parts(module);
  const std::vector<TensorSpec> expected = expected_tensors(parts, options.prefix);
  const SafetensorsHeader header = part_of(reader.header(), options.prefix, path);
  LoadReport report = compare(header, expected, options.prefix);
  if (options.strict) match_tensors(header, expected, path);

  // Everything is read and checked before anything changes.
  std::vector<std::pair<Tensor, Tensor>> loaded;  // what it is for, value
  for (const Parameter& part : parts) {
    Tensor value;
    for (const std::string& name : names_of(part)) {
      const TensorEntry* entry = reader.header().find(options.prefix + name);
      if (!entry) continue;
      check_entry(*entry, part.tensor, path);
      const Tensor copy = read_tensor(reader, *entry);
      HEED_CHECK(!value.defined() || array_equal(value, copy), CheckpointError, path, ": '", name, "' and '",
                 part.name, "' are one parameter of the model, but differ in the file");
      value = copy;
    }
    if (value.defined()) loaded.emplace_back(part.tensor, value);
  }
  NoGrad no_grad;
  for (const auto& entry : loaded) entry.first.copy_(entry.second);
  return report;
}

}  // namespace heed::nn
