// The limit of a kernel's dynamic shared memory, which a launch with much of it has to raise first.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <utility>

#include <cuda_runtime.h>

namespace heed::simt {

/// Lets `kernel` have `bytes` of dynamic shared memory on the current device. Asks the runtime only where
/// they are more than before.
inline cudaError_t allow_dynamic_shared(const void* kernel, size_t bytes) {
  constexpr size_t kAlwaysAllowed = 16 * 1024;  // of 48 KiB, in which static shared memory counts too
  if (bytes <= kAlwaysAllowed) return cudaSuccess;
  int device = 0;
  if (const cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) return error;
  static auto& mutex = *new std::mutex;
  static auto& allowed = *new std::map<std::pair<int, const void*>, size_t>;
  const std::lock_guard lock(mutex);
  size_t& most = allowed[{device, kernel}];
  if (bytes <= most) return cudaSuccess;
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  if (error == cudaSuccess) most = bytes;
  return error;
}

}  // namespace heed::simt
