// Copies and fills, which check that each pointer lies where the call says.
#include <cstring>

#include <heed/kernels/simt/host/launch.h>
#include <heed/kernels/simt/host/machine.h>
#include <heed/kernels/simt/host/monitor.h>
#include <heed/kernels/simt/host/runtime/device_memory.h>
#include <heed/kernels/simt/host/runtime/order.h>
#include <heed/kernels/simt/host/runtime/stream.h>

namespace heed::emulator {
namespace {

bool allowed(const void* pointer, size_t bytes, bool as_device) {
  const Placement place = placement(pointer, bytes);
  if (place.kind == MemoryKind::pinned) return place.fits;
  return place.fits && (place.kind == MemoryKind::device) == as_device;
}

MemoryKind kind_of(const void* pointer, size_t bytes) { return placement(pointer, bytes).kind; }

bool kind_fits(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  switch (kind) {
    case cudaMemcpyHostToHost:
      return allowed(to, bytes, false) && allowed(from, bytes, false);
    case cudaMemcpyHostToDevice:
      return allowed(to, bytes, true) && allowed(from, bytes, false);
    case cudaMemcpyDeviceToHost:
      return allowed(to, bytes, false) && allowed(from, bytes, true);
    case cudaMemcpyDeviceToDevice:
      return allowed(to, bytes, true) && allowed(from, bytes, true);
    case cudaMemcpyDefault:
      return placement(to, bytes).fits && placement(from, bytes).fits;
  }
  return false;
}

cudaError_t copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  if (bytes == 0) return cudaSuccess;
  if (!kind_fits(to, from, bytes, kind)) return report(cudaErrorInvalidValue);
  const auto pageable = [&](const void* pointer) { return kind_of(pointer, bytes) == MemoryKind::host; };
  const bool is_pageable = pageable(to) || pageable(from);
  if (is_capturing(stream) && is_pageable) return refuse_in_capture(stream);
  const auto run = [=] {
    memmove(to, from, bytes);
    ++stats().copies;
    stats().pageable_copies += is_pageable;
    if (!monitor) return;
    monitor->range_used(from, bytes, false);
    monitor->range_used(to, bytes, true);
  };
  return enqueue(stream, run, cudaGraphNodeTypeMemcpy);
}

cudaError_t fill(void* to, int value, size_t bytes, cudaStream_t stream, bool poisons = false) {
  if (bytes == 0) return cudaSuccess;
  if (!allowed(to, bytes, true)) return report(cudaErrorInvalidValue);
  const auto run = [=] {
    memset(to, value, bytes);
    ++stats().fills;
    if (monitor) monitor->range_used(to, bytes, true);
    if (monitor && poisons) monitor->range_poisoned(to, bytes);
  };
  return enqueue(stream, run, cudaGraphNodeTypeMemset);
}

}  // namespace
}  // namespace heed::emulator

cudaError_t heed::simt::poison(void* memory, size_t bytes, cudaStream_t stream) {
  return emulator::fill(memory, 0xff, bytes, stream, true);
}

using namespace heed::emulator;

extern "C" {

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  if (const cudaError_t error = check_unsafe_call(); error != cudaSuccess) return error;
  // From pageable memory the last part may still be under way when this returns; a copy on the device is.
  std::lock_guard lock(operations_mutex());
  const MemoryKind source = kind_of(from, bytes), target = kind_of(to, bytes);
  const bool pageable_upload = source == MemoryKind::host && target == MemoryKind::device;
  const bool on_device = source == MemoryKind::device && target == MemoryKind::device;
  if (pageable_upload) stream_order().host_waits_for(number_of(nullptr));
  const cudaError_t error = copy(to, from, bytes, kind, nullptr);
  if (!pageable_upload && !on_device) stream_order().host_waits_for(number_of(nullptr));
  return error;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  std::lock_guard lock(operations_mutex());
  const cudaError_t error = copy(to, from, bytes, kind, stream);
  if (error == cudaSuccess && kind_of(to, bytes) == MemoryKind::host)  // waits for pageable memory
    stream_order().host_waits_for(number_of(stream));
  return error;
}
cudaError_t cudaMemset(void* to, int value, size_t bytes) { return fill(to, value, bytes, nullptr); }
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  return fill(to, value, bytes, stream);
}
cudaError_t cudaMemset2DAsync(void* to, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream) {
  for (size_t row = 0; row < height; ++row)
    if (const cudaError_t error = cudaMemsetAsync(static_cast<char*>(to) + row * pitch, value, width, stream))
      return error;
  return cudaSuccess;
}

}  // extern "C"
