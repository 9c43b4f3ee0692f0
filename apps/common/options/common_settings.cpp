#include "apps/common/options/common_settings.h"

#include <heed/core/base/threads/parallel_for.h>
#include <heed/core/generator.h>
#include <heed/core/storage.h>

namespace heed::apps {

void declare_common(OptionTable& table, CommonSettings& settings) {
  table.group("Common");
  table.text("device", settings.device, "auto, cpu, cuda or cuda:N").not_saved();
  table.integer("threads", settings.threads, "Threads; 0: as many as the process may use", {0, 1024})
      .not_saved();
  table.integer("seed", settings.seed, "Seed of all random numbers", {0, INT64_MAX});
  table.flag("json", settings.json, "One JSON object a line on standard output, all else on standard error")
      .not_saved();
}

void declare_dtype(OptionTable& table, DType& dtype) {
  table.choice("dtype", dtype, "Element type of parameters and activations",
               {{"f32", DType::f32}, {"bf16", DType::bf16}});
}

Device apply(const CommonSettings& settings) {
  if (settings.threads > 0) set_thread_count(static_cast<int>(settings.threads));
  manual_seed(static_cast<uint64_t>(settings.seed));
  if (settings.device == "auto")
    return kCpu;  // CUDA only where asked for: it has not run on real hardware yet
  const Device device = parse_device(settings.device);
  try {
    device_name(device);
  } catch (const DeviceError& error) {
    throw DeviceError(concat("--device ", settings.device, ": ", error.what()));
  }
  return device;
}

}  // namespace heed::apps
