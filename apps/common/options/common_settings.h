// The settings that every command of every program has.
#pragma once

#include <cstdint>
#include <string>

#include <heed/core/base/device.h>
#include <heed/core/base/dtype.h>

#include "apps/common/options/options.h"

namespace heed::apps {

/// Of every command.
struct CommonSettings {
  std::string device = "auto";
  int64_t threads = 0;  // 0: all that the process may use
  int64_t seed = 42;
  bool json = false;
};

/// The options --device, --threads, --seed, --json.
void declare_common(OptionTable& table, CommonSettings& settings);

/// The option --dtype, f32 or bf16.
void declare_dtype(OptionTable& table, DType& dtype);

/// Chooses threads, seed and device. DeviceError for one that is not there.
Device apply(const CommonSettings& settings);

}  // namespace heed::apps
