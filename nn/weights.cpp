#include <algorithm>

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

std::vector<TensorSpec> expected_tensors(const Parameters& parameters) {
  std::vector<TensorSpec> result;
  for (const Parameter& parameter : parameters)
    for (const std::string& name : names_of(parameter)) {
      const Shape& shape = parameter.tensor.shape();
      result.push_back({name, DType::f32, {shape.begin(), shape.end()}});
    }
  return result;
}

// Of what the model expects, the part that the file has; fills the report with the rest.
std::vector<TensorSpec> common_tensors(const SafetensorsHeader& header,
                                       const std::vector<TensorSpec>& expected, LoadReport& report) {
  std::vector<TensorSpec> common;
  for (const TensorSpec& spec : expected) {
    if (header.find(spec.name))
      common.push_back(spec);
    else
      report.missing.push_back(spec.name);
  }
  for (const TensorEntry& entry : header.tensors)
    if (std::none_of(expected.begin(), expected.end(),
                     [&](const TensorSpec& s) { return s.name == entry.name; }))
      report.unexpected.push_back(entry.name);
  return common;
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

void save_weights(Module& module, const std::string& path,
                  const std::map<std::string, std::string>& metadata) {
  NamedTensors tensors;
  for (const Parameter& parameter : module.parameters()) {
    const Tensor value = parameter.tensor.detach().to(DType::f32);
    for (const std::string& name : names_of(parameter)) tensors.emplace_back(name, value);
  }
  save_tensors(path, tensors, metadata);
}

LoadReport load_weights(Module& module, const std::string& path, const LoadOptions& options) {
  const SafetensorsReader reader(path);
  const Parameters parameters = module.parameters();
  const std::vector<TensorSpec> expected = expected_tensors(parameters);
  LoadReport report;
  const std::vector<TensorSpec> common = common_tensors(reader.header(), expected, report);
  if (options.strict) match_tensors(reader.header(), expected, path);

  // Everything is read and checked before the first parameter changes.
  std::vector<std::pair<Tensor, Tensor>> loaded;  // parameter, value
  for (const Parameter& parameter : parameters) {
    Tensor value;
    for (const std::string& name : names_of(parameter)) {
      const TensorEntry* entry = reader.header().find(name);
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
