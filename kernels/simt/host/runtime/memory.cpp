// cudaMalloc and its relatives: host memory, filled with NaN, between redzones, and known by address.
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include <heed/kernels/simt/host/emulator.h>
#include <heed/kernels/simt/host/launch.h>
#include <heed/kernels/simt/host/machine.h>
#include <heed/kernels/simt/host/monitor.h>
#include <heed/kernels/simt/host/runtime/device_memory.h>
#include <heed/kernels/simt/host/runtime/stream.h>

namespace heed::emulator {
namespace {

#ifdef HEED_EMULATOR_ASAN
constexpr size_t kRedzone = 0;  // AddressSanitizer has its own
#else
constexpr size_t kRedzone = 1024;
#endif
constexpr size_t kAlignment = 256;
constexpr unsigned char kRedzoneByte = 0xfb;

struct Allocation {
  size_t bytes;
  MemoryKind kind;
};

struct Memory {
  std::mutex mutex;
  std::map<unsigned char*, Allocation> allocations;
  size_t device_bytes = 0;
};

Memory& memory() {
  static Memory* const all = new Memory;  // never destroyed: statics may still free
  return *all;
}

bool intact(const unsigned char* zone) {
  for (size_t i = 0; i < kRedzone; ++i)
    if (zone[i] != kRedzoneByte) return false;
  return true;
}

cudaError_t allocate(void** out, size_t bytes, MemoryKind kind) {
  if (out == nullptr) return report(cudaErrorInvalidValue);
  *out = nullptr;
  if (bytes == 0) return cudaSuccess;
  Memory& m = memory();
  std::lock_guard lock(m.mutex);
  if (kind == MemoryKind::device &&
      (bytes > config().device_memory || m.device_bytes > config().device_memory - bytes))
    return report(cudaErrorMemoryAllocation);
  void* block = nullptr;
  if (posix_memalign(&block, kAlignment, bytes + 2 * kRedzone) != 0) return report(cudaErrorMemoryAllocation);
  unsigned char* data = static_cast<unsigned char*>(block) + kRedzone;
  memset(data - kRedzone, kRedzoneByte, kRedzone);
  memset(data, 0xff, bytes);
  memset(data + bytes, kRedzoneByte, kRedzone);
  m.allocations[data] = {bytes, kind};
  if (kind == MemoryKind::device) m.device_bytes += bytes;
  if (monitor) monitor->region_added(data, bytes, kind == MemoryKind::device);
  ++stats().allocations;
  *out = data;
  return cudaSuccess;
}

cudaError_t release(void* pointer, MemoryKind kind) {
  if (pointer == nullptr) return cudaSuccess;
  Memory& m = memory();
  std::lock_guard lock(m.mutex);
  const auto found = m.allocations.find(static_cast<unsigned char*>(pointer));
  if (found == m.allocations.end() || found->second.kind != kind) return report(cudaErrorInvalidValue);
  if (kind == MemoryKind::device) m.device_bytes -= found->second.bytes;
  if (monitor) monitor->region_removed(pointer);
  memset(pointer, 0xff, found->second.bytes);  // what is used after this is NaN
  m.allocations.erase(found);
  free(static_cast<unsigned char*>(pointer) - kRedzone);
  return cudaSuccess;
}

// Calls that name no stream.
cudaError_t allocate_now(void** out, size_t bytes, MemoryKind kind) {
  const cudaError_t error = check_unsafe_call();
  return error == cudaSuccess ? allocate(out, bytes, kind) : error;
}
cudaError_t release_now(void* pointer, MemoryKind kind) {
  const cudaError_t error = check_unsafe_call();
  if (error != cudaSuccess) return error;
  wait_for_all();
  return release(pointer, kind);
}

}  // namespace

Placement placement(const void* pointer, size_t bytes) {
  Memory& m = memory();
  std::lock_guard lock(m.mutex);
  unsigned char* address = static_cast<unsigned char*>(const_cast<void*>(pointer));
  auto next = m.allocations.upper_bound(address);
  if (next == m.allocations.begin()) return {MemoryKind::host, true};
  const auto& [start, allocation] = *std::prev(next);
  const size_t offset = static_cast<size_t>(address - start);
  if (offset > allocation.bytes || (offset == allocation.bytes && bytes > 0)) return {MemoryKind::host, true};
  return {allocation.kind, bytes <= allocation.bytes - offset};
}

void check_device_redzones(Location launch) {
  Memory& m = memory();
  std::lock_guard lock(m.mutex);
  for (const auto& [start, allocation] : m.allocations) {
    const bool before = intact(start - kRedzone), after = intact(start + allocation.bytes);
    if (before && after) continue;
    memset(start - kRedzone, kRedzoneByte, kRedzone);
    memset(start + allocation.bytes, kRedzoneByte, kRedzone);
    throw Error("emulator: out-of-bounds global memory write " +
                std::string(after ? "before the start" : "past the end") + " of an allocation of " +
                std::to_string(allocation.bytes) + " bytes, kernel launched at " + text(launch));
  }
}

void check_pointer_argument(const void* pointer, int number, Location at) {
  if (pointer == nullptr || placement(pointer, 0).kind != MemoryKind::host) return;
  throw Error("emulator: argument " + std::to_string(number) +
              " of the kernel is a pointer to host memory at " + text(at));
}

}  // namespace heed::emulator

using heed::emulator::MemoryKind;

extern "C" {

cudaError_t cudaMalloc(void** out, size_t bytes) {
  return heed::emulator::allocate_now(out, bytes, MemoryKind::device);
}
cudaError_t cudaFree(void* pointer) { return heed::emulator::release_now(pointer, MemoryKind::device); }
// There are no memory nodes in the emulator's graphs.
cudaError_t cudaMallocAsync(void** out, size_t bytes, cudaStream_t stream) {
  if (heed::emulator::is_capturing(stream)) return heed::emulator::refuse_in_capture(stream);
  return heed::emulator::allocate(out, bytes, MemoryKind::device);
}
cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
  if (heed::emulator::is_capturing(stream)) return heed::emulator::refuse_in_capture(stream);
  return heed::emulator::release(pointer, MemoryKind::device);
}
cudaError_t cudaMallocHost(void** out, size_t bytes) {
  return heed::emulator::allocate_now(out, bytes, MemoryKind::pinned);
}
cudaError_t cudaHostAlloc(void** out, size_t bytes, unsigned) { return cudaMallocHost(out, bytes); }
cudaError_t cudaFreeHost(void* pointer) { return heed::emulator::release_now(pointer, MemoryKind::pinned); }

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  auto& m = heed::emulator::memory();
  std::lock_guard lock(m.mutex);
  *total_bytes = heed::emulator::config().device_memory;
  *free_bytes = *total_bytes - m.device_bytes;
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* out, const void* pointer) {
  *out = {};
  const MemoryKind kind = heed::emulator::placement(pointer, 0).kind;
  if (kind == MemoryKind::host) {
    out->type = cudaMemoryTypeUnregistered;
    out->device = cudaInvalidDeviceId;
    return cudaSuccess;
  }
  out->type = kind == MemoryKind::device ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
  out->device = 0;
  out->devicePointer = const_cast<void*>(pointer);
  if (kind == MemoryKind::pinned) out->hostPointer = const_cast<void*>(pointer);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  if (device != 0) return heed::emulator::report(cudaErrorInvalidDevice);
  *pool = reinterpret_cast<cudaMemPool_t>(&heed::emulator::memory());
  return cudaSuccess;
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return cudaSuccess; }
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) { return cudaSuccess; }

}  // extern "C"
