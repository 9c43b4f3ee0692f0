// Copies and fills, which check that each pointer lies where the call says.
#include <cstring>

#include <heed/kernels/simt/host/machine.h>
#include <heed/kernels/simt/host/monitor.h>
#include <heed/kernels/simt/host/runtime/device_memory.h>
#include <heed/kernels/simt/host/runtime/stream.h>

namespace heed::emulator {
namespace {

bool allowed(const void* pointer, size_t bytes, bool as_device) {
  const Placement place = placement(pointer, bytes);
  if (place.kind == MemoryKind::pinned) return place.fits;
  return place.fits && (place.kind == MemoryKind::device) == as_device;
}

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
  const auto pageable = [&](const void* pointer) {
    return placement(pointer, bytes).kind == MemoryKind::host;
  };
  if (is_capturing(stream) && (pageable(to) || pageable(from))) return refuse_in_capture(stream);
  return enqueue(stream, [=] {
    memmove(to, from, bytes);
    if (monitor) monitor->host_write(to, bytes);
  });
}

cudaError_t fill(void* to, int value, size_t bytes, cudaStream_t stream) {
  if (bytes == 0) return cudaSuccess;
  if (!allowed(to, bytes, true)) return report(cudaErrorInvalidValue);
  return enqueue(stream, [=] {
    memset(to, value, bytes);
    if (monitor) monitor->host_write(to, bytes);
  });
}

}  // namespace
}  // namespace heed::emulator

extern "C" {

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  if (const cudaError_t error = heed::emulator::check_unsafe_call(); error != cudaSuccess) return error;
  return heed::emulator::copy(to, from, bytes, kind, nullptr);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return heed::emulator::copy(to, from, bytes, kind, stream);
}
cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  return heed::emulator::fill(to, value, bytes, nullptr);
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  return heed::emulator::fill(to, value, bytes, stream);
}
cudaError_t cudaMemset2DAsync(void* to, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream) {
  for (size_t row = 0; row < height; ++row)
    if (const cudaError_t error = cudaMemsetAsync(static_cast<char*>(to) + row * pitch, value, width, stream))
      return error;
  return cudaSuccess;
}

}  // extern "C"
