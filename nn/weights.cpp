#include <set>
#include <string_view>

#include <heed/core/autograd.h>
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

// As they are to stand in the file.
std::vector<TensorSpec> expected_tensors(const std::vector<Parameter>& parameters,
                                         const std::string& prefix) {
  std::vector<TensorSpec> result;
  for (const Parameter& parameter : parameters)
    for (const std::string& name : names_of(parameter)) {
      const Shape& shape = parameter.tensor.shape();
      result.push_back({prefix + name, DType::f32, {shape.begin(), shape.end()}});
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

void check_shape(const TensorEntry& entry, const Shape& expected, const std::string& path) {
  const Shape got{std::span<const int64_t>(entry.shape)};
  HEED_CHECK(got == expected && is_floating(entry.dtype), CheckpointError, path, ": '", entry.name, "' is ",
             entry.dtype, " ", got, ", the model's is ", expected);
}

}  // namespace

void save_weights(Module& module, const std::string& path, const SaveWeightsOptions& options) {
  NamedTensors tensors;
  for (const Parameter& parameter : module.named_parameters()) {
    const Tensor value = parameter.tensor.detach().to(DType::f32);
    for (const std::string& name : names_of(parameter)) tensors.emplace_back(options.prefix + name, value);
  }
  save_tensors(path, tensors, options.metadata);
}

void check_weights(Module& module, const std::string& path) {
  match_tensors(SafetensorsReader(path).header(), expected_tensors(module.named_parameters(), ""), path);
}

LoadReport load_weights(Module& module, const std::string& path, const LoadOptions& options) {
  const SafetensorsReader reader(path);
  const std::vector<Parameter> parameters = module.named_parameters();
  const std::vector<TensorSpec> expected = expected_tensors(parameters, options.prefix);
  const SafetensorsHeader header = part_of(reader.header(), options.prefix, path);
  LoadReport report = compare(header, expected, options.prefix);
  if (options.strict) match_tensors(header, expected, path);

  // Everything is read and checked before the first parameter changes.
  std::vector<std::pair<Tensor, Tensor>> loaded;  // parameter, value
  for (const Parameter& parameter : parameters) {
    Tensor value;
    for (const std::string& name : names_of(parameter)) {
      const TensorEntry* entry = reader.header().find(options.prefix + name);
      if (!entry) continue;
      check_shape(*entry, parameter.tensor.shape(), path);
      const Tensor copy = read_tensor(reader, *entry);
      HEED_CHECK(!value.defined() || equal_all(value, copy), CheckpointError, path, ": '", name, "' and '",
                 parameter.name, "' are one parameter of the model, but differ in the file");
      value = copy;
    }
    if (value.defined()) loaded.emplace_back(parameter.tensor, value);
  }
  NoGrad no_grad;
  for (const auto& entry : loaded) entry.first.copy_(entry.second);
  return report;
}

}  // namespace heed::nn
