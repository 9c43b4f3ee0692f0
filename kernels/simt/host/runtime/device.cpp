// The one emulated device, its properties, and errors.
#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include <heed/kernels/simt/host/emulator.h>
#include <heed/kernels/simt/host/runtime/device_memory.h>
#include <heed/kernels/simt/host/runtime/stream.h>

namespace heed::emulator {
namespace {

thread_local cudaError_t last_error = cudaSuccess;

constexpr int kMultiprocessors = 4;

struct Named {
  cudaError_t error;
  const char *name, *text;
};
constexpr Named kErrors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorIllegalState, "cudaErrorIllegalState",
     "the operation cannot be performed in the present state"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureMerge, "cudaErrorStreamCaptureMerge",
     "operation would result in a merge of separate capture sequences"},
    {cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched",
     "capture was not ended in the same stream as it began"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined", "capturing stream has unjoined work"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
    {cudaErrorStreamCaptureImplicit, "cudaErrorStreamCaptureImplicit",
     "operation would make the legacy stream depend on a capturing blocking stream"},
};

// Of kernels that may have more than all may.
std::map<const void*, size_t>& dynamic_shared_limits() {
  static std::map<const void*, size_t> limits;
  return limits;
}

const Named* find(cudaError_t error) {
  for (const Named& known : kErrors)
    if (known.error == error) return &known;
  return nullptr;
}

}  // namespace

bool dynamic_shared_is_set(const void* kernel) { return dynamic_shared_limits().count(kernel) > 0; }

size_t dynamic_shared_limit(const void* kernel) {
  const auto found = dynamic_shared_limits().find(kernel);
  return found == dynamic_shared_limits().end() ? kSharedWithoutAsking : found->second;
}

cudaError_t report(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

}  // namespace heed::emulator

using namespace heed::emulator;

extern "C" {

cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return last_error; }
const char* cudaGetErrorName(cudaError_t error) {
  const Named* known = find(error);
  return known ? known->name : "cudaErrorUnknown";
}
const char* cudaGetErrorString(cudaError_t error) {
  const Named* known = find(error);
  return known ? known->text : "unknown error";
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = config().driver == Driver::right;
  if (*count == 1) return cudaSuccess;
  return report(config().driver == Driver::old ? cudaErrorInsufficientDriver : cudaErrorNoDevice);
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) { return device == 0 ? cudaSuccess : report(cudaErrorInvalidDevice); }
cudaError_t cudaDeviceSynchronize() {
  if (const cudaError_t error = check_unsafe_call(); error != cudaSuccess) return error;
  ++stats().synchronizations;
  wait_for_all();
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) { return cudaDriverGetVersion(version); }

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* out, int device) {
  if (device != 0) return report(cudaErrorInvalidDevice);
  *out = {};
  strcpy(out->name, "emulated CUDA device");
  out->totalGlobalMem = config().device_memory;
  out->sharedMemPerBlock = 48 * 1024;
  out->sharedMemPerBlockOptin = shared_limit();
  out->sharedMemPerMultiprocessor = shared_limit() + 1024;
  out->regsPerBlock = 65536;
  out->warpSize = 32;
  out->maxThreadsPerBlock = 1024;
  std::fill(out->maxThreadsDim, out->maxThreadsDim + 2, 1024);
  out->maxThreadsDim[2] = 64;
  out->maxGridSize[0] = 0x7fffffff;
  out->maxGridSize[1] = out->maxGridSize[2] = 65535;
  out->major = config().compute_capability / 10;
  out->minor = config().compute_capability % 10;
  out->multiProcessorCount = kMultiprocessors;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp properties;
  if (const cudaError_t error = cudaGetDeviceProperties(&properties, device); error != cudaSuccess)
    return error;
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = properties.multiProcessorCount;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
      *value = properties.major;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = properties.minor;
      return cudaSuccess;
    case cudaDevAttrWarpSize:
      *value = properties.warpSize;
      return cudaSuccess;
    case cudaDevAttrMaxThreadsPerBlock:
      *value = properties.maxThreadsPerBlock;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = static_cast<int>(properties.sharedMemPerBlock);
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(properties.sharedMemPerBlockOptin);
      return cudaSuccess;
    case cudaDevAttrMemoryPoolsSupported:
      *value = 1;
      return cudaSuccess;
    default:
      return report(cudaErrorInvalidValue);
  }
}

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  std::lock_guard lock(operations_mutex());
  ++stats().function_attributes;
  if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize)
    dynamic_shared_limits()[kernel] = static_cast<size_t>(value);
  return cudaSuccess;
}

// Kernels are as if they were compiled for the very device.
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* out, const void* kernel) {
  *out = {};
  out->maxThreadsPerBlock = 1024;
  out->maxDynamicSharedSizeBytes = static_cast<int>(dynamic_shared_limit(kernel));
  out->ptxVersion = out->binaryVersion = config().compute_capability;
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int threads, size_t) {
  *blocks = std::max(1, 2048 / std::max(threads, 1));
  return cudaSuccess;
}

}  // extern "C"
