// What the emulated device has allocated. Internal to the emulator.
#pragma once

#include <cstddef>

#include <cuda_runtime.h>

#include <heed/kernels/simt/host/location.h>

namespace heed::emulator {

enum class MemoryKind { host, device, pinned };

/// The kind of memory at [pointer, pointer + bytes); `fits` is false where that runs over an allocation's
/// end.
struct Placement {
  MemoryKind kind;
  bool fits;
};
Placement placement(const void* pointer, size_t bytes);

/// Throws Error if something was written just before or after an allocation.
void check_device_redzones(Location launch);

/// Shared memory of a kernel for which cudaFuncSetAttribute allowed none: static and dynamic together.
inline constexpr size_t kSharedWithoutAsking = 48 * 1024;
bool dynamic_shared_is_set(const void* kernel);
/// The most dynamic shared memory that the kernel may have.
size_t dynamic_shared_limit(const void* kernel);

/// Keeps an error for cudaGetLastError and returns it.
cudaError_t report(cudaError_t error);

}  // namespace heed::emulator
