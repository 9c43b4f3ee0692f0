// A model's parameters and buffers in a file that PyTorch reads too.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <heed/nn/module.h>

namespace heed::nn {

struct SaveWeightsOptions {
  std::string prefix = {};  // what names in the file begin with: "net." makes net.0.weight of 0.weight
  std::map<std::string, std::string> metadata = {{"format", "pt"}};
  DType dtype = DType::f32;  // of the file's tensors but integers
};

/// Writes all parameters of a model, or of a part of one, as safetensors under their names; a tied one under
/// each of its names. Buffers too, of integers in their own type. IoError.
void save_weights(Module& module, const std::string& path, const SaveWeightsOptions& options = {});

struct LoadOptions {
  bool strict = true;  // the file must have every parameter and buffer, and nothing else that has the prefix
  std::string prefix = {};  // what names in the file begin with; tensors without it are passed over
};

struct LoadReport {
  std::vector<std::string> missing;     // parameters and buffers that the file lacks: they keep their values
  std::vector<std::string> unexpected;  // tensors that the model lacks
};

/// CheckpointError unless the header of a file has exactly the tensors of a model, in name, shape and kind,
/// as load_weights would find out. Nothing is read but the header, and a model made under ShapesOnly will do:
/// so sizes that a file of settings claims are checked before memory is asked for them.
void check_weights(Module& module, const std::string& path);

/// Reads the parameters and buffers of a model, or of a part of one, by name, converting between floating
/// types. All or nothing: CheckpointError listing what is missing, unexpected (both only if strict) or of
/// another shape, or a prefix that no tensor has, or a tied parameter whose copies differ, with nothing
/// changed.
LoadReport load_weights(Module& module, const std::string& path, const LoadOptions& options = {});

}  // namespace heed::nn
