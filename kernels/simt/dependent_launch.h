// Programmatic dependent launch: which kernels may be on the device before the one in front of them has
// ended. Both sides of simt.h include this.
#pragma once

#include <type_traits>

#include <cuda_runtime.h>

namespace heed::simt {

template <class T>
class Dependent;  // simt.h

template <class T>
inline constexpr bool kIsDependent = false;
template <class T>
inline constexpr bool kIsDependent<Dependent<T>> = true;

/// Whether a kernel with these parameters waits itself for what comes before it. Then it has no other way to
/// what lies in memory.
template <class... Parameters>
constexpr bool waits_itself() {
  constexpr bool waits = (kIsDependent<Parameters> || ...);
  static_assert(!waits || ((kIsDependent<Parameters> || std::is_arithmetic_v<Parameters>)&&...),
                "launch: beside Dependent ones a kernel has numbers as its arguments, and nothing else");
  return waits;
}

/// False: no kernel begins early, to compare. Not to be changed while kernels are launched.
inline bool allows_dependent_launch = true;

/// Whether `kernel`, which waits itself, may begin before the kernel in front of it has ended, if it is
/// launched now: in a capture, where all that it depends on is one kernel, and if the code for this device
/// holds the wait, which depends on the virtual architecture that it was compiled for.
inline cudaError_t may_begin_early(bool& may, const void* kernel, cudaStream_t stream) {
  may = false;
  if (!allows_dependent_launch) return cudaSuccess;
  cudaStreamCaptureStatus status;
  const cudaGraphNode_t* before = nullptr;
  const cudaGraphEdgeData* edges = nullptr;
  size_t count = 0;
  if (const cudaError_t error =
          cudaStreamGetCaptureInfo(stream, &status, nullptr, nullptr, &before, &edges, &count);
      error != cudaSuccess)
    return error;
  if (status != cudaStreamCaptureStatusActive || count != 1) return cudaSuccess;
  cudaGraphNodeType type;
  if (const cudaError_t error = cudaGraphNodeGetType(before[0], &type); error != cudaSuccess) return error;
  if (type != cudaGraphNodeTypeKernel) return cudaSuccess;
  cudaFuncAttributes code;
  if (const cudaError_t error = cudaFuncGetAttributes(&code, kernel); error != cudaSuccess) return error;
  may = code.ptxVersion >= 90;
  return cudaSuccess;
}

}  // namespace heed::simt
