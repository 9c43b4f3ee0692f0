// What a kind of device can do, and the calls that reach its memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <heed/core/base/device.h>
#include <heed/core/base/memory/allocator.h>

namespace heed {

/// One for each DeviceType. Whatever heed asks about a device it asks here; only HEED_DISPATCH, which calls
/// kernels by their names, looks at the type itself.
struct Backend {
  // ---- what it can do

  bool
      host_memory;  // the host reads and writes its memory itself, and a kernel is done when its call returns
  bool f64;         // has kernels for f64
  bool repeats_steps;        // records what a step does and repeats it (core/runtime/captured_step.h)
  bool saves_dropout_masks;  // forward kernels can leave their masks to those of the backward
  bool inverts_post_norms;   // the backward of a post-norm takes y in place of the sum where it can
  int64_t row_alignment;     // bytes at whose multiples rows should begin, for fast products

  // ---- its devices and their memory; DeviceError for a device that is not there

  int (*device_count)();
  std::string (*device_name)(int index);
  Allocator& (*allocator)(int index);
  /// On the device's stream. copy_to_host returns when the bytes are there; the others may still run.
  void (*copy_from_host)(int index, void* to, const void* from, int64_t bytes);
  void (*copy_to_host)(int index, void* to, const void* from, int64_t bytes);
  void (*copy)(int index, void* to, const void* from, int64_t bytes);
  void (*fill)(int index, void* to, int value, int64_t bytes);
  void (*synchronize)(int index);
  /// Where memory comes from while this thread records a step; null otherwise.
  std::shared_ptr<Allocator> (*capture_memory)(int index);
};

namespace detail {
extern const Backend backends[2];  // by DeviceType
}

/// That of a kind of device that the build lacks has no devices; its other calls throw.
inline const Backend& backend(Device device) { return detail::backends[static_cast<int>(device.type)]; }

/// While one lives on a thread, operations there compute what their fused kernels would from simple
/// operations, as on a device that lacks the kernel: to tell whether a kernel is at fault. Attention then
/// draws other dropout masks, and no AttentionRecord sees it.
class NoFusedKernels {
 public:
  [[nodiscard]] NoFusedKernels() : previous_(active_) { active_ = true; }
  ~NoFusedKernels() { active_ = previous_; }
  NoFusedKernels(const NoFusedKernels&) = delete;
  NoFusedKernels& operator=(const NoFusedKernels&) = delete;

  /// Whether one lives on this thread.
  static bool active() { return active_; }

 private:
  static inline constinit thread_local bool active_ = false;
  bool previous_;
};

}  // namespace heed
