// The one header that a kernel source includes for CUDA: nvcc gets thin wrappers around PTX, any other
// compiler the emulator with the same functions.
//
//   - Launch with simt::launch(kernel, grid, block, shared_bytes, stream, arguments...).
//   - Shared memory: auto& s = simt::shared<Struct>() for a fixed size; simt::Arena for one known at launch,
//   whose
//     size the host computes with simt::SharedLayout by the same sequence of calls.
//   - PTX only through the functions of simt::; spin loops call simt::spin_pause().
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

template <class T>
__host__ __device__ constexpr T ceil_div(T a, T b) {
  return (a + b - 1) / b;
}

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
