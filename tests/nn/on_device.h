// Modules and tokens where a test wants them.
#pragma once

#include <heed/nn/decoding/tokens.h>
#include <heed/nn/models/transformer.h>

namespace heed::test {

inline nn::Tokens on(Device device, const nn::Tokens& tokens) {
  return {tokens.ids.to(device), tokens.segments};
}

inline void move(nn::Module& module, DType dtype, Device device) {
  module.to(dtype);
  module.to(device);
}

}  // namespace heed::test
