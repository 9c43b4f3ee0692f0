// The one header that a kernel source includes for CUDA: nvcc gets thin wrappers around PTX, any other
// compiler the emulator with the same functions.
//
//   - Launch with simt::launch(kernel, grid, block, shared_bytes, stream, arguments...).
//   - Shared memory: auto& s = simt::shared<Struct>() for a fixed size; simt::Arena for one known at launch,
//   whose
//     size the host computes with simt::SharedLayout by the same sequence of calls.
//   - PTX only through the functions of simt::; spin loops call simt::spin_pause().
//   - A kernel whose arguments are a simt::Dependent may begin before the one in front of it has ended.
//   - Everything else is ordinary CUDA C++.
#pragma once

#include <cstddef>
#include <cstdint>

#ifdef __CUDACC__
#include <heed/kernels/simt/ptx.h>
#else
#include <heed/kernels/simt/host/host.h>
#endif

namespace heed::simt {

/// The size of what a kernel takes from its Arena: the same sequence of calls, on the host.
struct SharedLayout {
  size_t bytes = 0;

  template <class T>
  constexpr SharedLayout& add(size_t count, size_t alignment = alignof(T)) {
    bytes = (bytes + alignment - 1) / alignment * alignment + count * sizeof(T);
    return *this;
  }
};

#ifdef __CUDACC__
/// Fills memory of the device with 0xff bytes: NaN, and -1. For the race checker nobody has written it then.
inline cudaError_t poison(void* memory, size_t bytes, cudaStream_t stream) {
  return cudaMemsetAsync(memory, 0xff, bytes, stream);
}
#endif

template <class T>
__host__ __device__ constexpr T ceil_div(T a, T b) {
  return (a + b - 1) / b;
}

/// The arguments of a kernel that may begin before the kernel in front of it in a captured graph has ended
/// (programmatic dependent launch), which hides the time that a launch takes. They are to be had only by
/// waiting, so the kernel cannot touch memory that others still use. A kernel's parameters are one of these,
/// and numbers.
template <class T>
class Dependent {
 public:
  Dependent(const T& arguments) : arguments_(arguments) {}

  /// Waits until all that comes before the kernel is over. Each thread calls it, before anything else: so a
  /// kernel is over only when those before it are, and who waits for it has waited for them. After that the
  /// next kernel may begin, and wait in its turn.
  __device__ __forceinline__ const T& wait() const {
    griddepcontrol_wait();
    griddepcontrol_launch_dependents();
    return arguments_;
  }

 private:
  T arguments_;
};

/// The sum over the lanes of a full warp, the same bits in every lane.
template <class T>
__device__ __forceinline__ T warp_sum(T value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) value += __shfl_xor_sync(0xffffffffu, value, offset);
  return value;
}

/// The largest value over the lanes of a full warp.
__device__ __forceinline__ float warp_max(float value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1)
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, offset));
  return value;
}

}  // namespace heed::simt
