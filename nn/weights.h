// A model's parameters in a file that PyTorch reads too.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <heed/nn/module.h>

namespace heed::nn {

/// Writes all parameters as f32 safetensors under their names; a tied one under each of its names. IoError.
void save_weights(Module& module, const std::string& path,
                  const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

struct LoadOptions {
  bool strict = true;  // the file must have every parameter, and nothing else
};

struct LoadReport {
  std::vector<std::string> missing;     // parameters that the file lacks: they keep their values
  std::vector<std::string> unexpected;  // tensors that the model lacks
};

/// Reads parameters by name, converting between floating types. All or nothing: CheckpointError listing what
/// is missing, unexpected (both only if strict) or of another shape, or a tied parameter whose copies differ,
/// with nothing changed.
LoadReport load_weights(Module& module, const std::string& path, const LoadOptions& options = {});

}  // namespace heed::nn
