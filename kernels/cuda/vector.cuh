// Loads and stores of several neighbouring elements at once, converted to and from float.
#pragma once

#include <cstdint>
#include <cstring>

#include <heed/core/base/bfloat16.h>
#include <heed/kernels/simt/simt.h>

namespace heed::cuda {

/// Elements of T in one 16-byte access.
template <class T>
inline constexpr int kVectorWidth = 16 / static_cast<int>(sizeof(T));

/// Whether rows of `cols` elements starting at each of the pointers (null ones aside) can be accessed 16
/// bytes at a time.
template <class T, class... Pointers>
bool vectorizable(int64_t cols, const Pointers*... pointers) {
  return cols % kVectorWidth<T> == 0 && ((reinterpret_cast<uintptr_t>(pointers) % 16 == 0) && ...);
}

/// One element, or kVectorWidth<T> of them at a 16-byte boundary (floats may be stored by any multiple of
/// four).
template <int kWidth>
__device__ __forceinline__ void load(float (&out)[kWidth], const float* from) {
  if constexpr (kWidth == 1) {
    out[0] = *from;
  } else {
    static_assert(kWidth == 4);
    const float4 v = simt::load_as<float4>(from);
    out[0] = v.x, out[1] = v.y, out[2] = v.z, out[3] = v.w;
  }
}

template <int kWidth>
__device__ __forceinline__ void load(float (&out)[kWidth], const bfloat16* from) {
  if constexpr (kWidth == 1) {
    out[0] = *from;
  } else {
    static_assert(kWidth == 8);
    const uint4 v = simt::load_as<uint4>(from);
    const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      out[2 * i] = __uint_as_float(words[i] << 16);
      out[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
    }
  }
}

template <int kWidth>
__device__ __forceinline__ void store(float* to, const float (&values)[kWidth]) {
  if constexpr (kWidth == 1) {
    *to = values[0];
  } else {
    static_assert(kWidth % 4 == 0);
#pragma unroll
    for (int i = 0; i < kWidth; i += 4)
      simt::store_as(to + i, float4{values[i], values[i + 1], values[i + 2], values[i + 3]});
  }
}

template <int kWidth>
__device__ __forceinline__ void store(bfloat16* to, const float (&values)[kWidth]) {
  if constexpr (kWidth == 1) {
    *to = bfloat16(values[0]);
  } else {
    uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const __nv_bfloat162 pair = __floats2bfloat162_rn(values[2 * i], values[2 * i + 1]);
      memcpy(&words[i], &pair, sizeof pair);
    }
    simt::store_as(to, uint4{words[0], words[1], words[2], words[3]});
  }
}

}  // namespace heed::cuda
