// Named tensors to and from safetensors files.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <heed/core/tensor.h>

namespace heed {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

/// Writes the tensors, from any device, contiguous or not, to a safetensors file that appears whole or not at
/// all. ConfigError for a bad name, IoError where the file cannot be written.
void save_tensors(const std::string& path, const NamedTensors& tensors,
                  const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

/// All tensors of a safetensors file, on the CPU, in the file's order. CheckpointError where the file is not
/// sound.
NamedTensors load_tensors(const std::string& path);

}  // namespace heed
