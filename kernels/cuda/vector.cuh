// Loads and stores of several neighbouring elements at once.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include <heed/core/base/dtype.h>
#include <heed/kernels/simt/simt.h>

namespace heed::cuda {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kLog2OfE = 1.4426950409f;

/// Elements of T in one 16-byte access.
template <class T>
inline constexpr int kVectorWidth = 16 / static_cast<int>(sizeof(T));

/// Whether rows of `cols` elements starting at each of the pointers (null ones aside) can be accessed 16
/// bytes at a time.
template <class T, class... Pointers>
bool vectorizable(int64_t cols, const Pointers*... pointers) {
  return cols % kVectorWidth<T> == 0 && ((reinterpret_cast<uintptr_t>(pointers) % 16 == 0) && ...);
}

/// Whether kWidth elements of T can be accessed at once from `pointer` on; null can.
template <int kWidth, class T>
bool aligned_for(const T* pointer) {
  constexpr size_t kBytes = kWidth * sizeof(T) < 16 ? kWidth * sizeof(T) : 16;
  return reinterpret_cast<uintptr_t>(pointer) % kBytes == 0;
}

/// Elements whose value does not matter: the unsigned type of their size.
template <size_t kBytes>
using unsigned_of_size = std::conditional_t<
    kBytes == 8, uint64_t,
    std::conditional_t<kBytes == 4, uint32_t, std::conditional_t<kBytes == 2, uint16_t, uint8_t>>>;

/// The unit in which kBytes bytes are accessed.
template <int kBytes>
using Word = std::conditional_t<
    kBytes % 16 == 0, uint4,
    std::conditional_t<
        kBytes == 8, uint2,
        std::conditional_t<kBytes == 4, uint32_t, std::conditional_t<kBytes == 2, uint16_t, uint8_t>>>>;

/// kWidth neighbouring elements as they are, at an address aligned to their size or to 16 bytes.
template <int kWidth, class T>
__device__ __forceinline__ void load_raw(T (&out)[kWidth], const T* from) {
  using W = Word<kWidth* static_cast<int>(sizeof(T))>;
  constexpr int kStep = static_cast<int>(sizeof(W) / sizeof(T));
#pragma unroll
  for (int i = 0; i < kWidth; i += kStep) {
    const W word = simt::load_as<W>(from + i);
    memcpy(static_cast<void*>(out + i), &word, sizeof word);
  }
}

template <int kWidth, class T>
__device__ __forceinline__ void store_raw(T* to, const T (&values)[kWidth]) {
  using W = Word<kWidth* static_cast<int>(sizeof(T))>;
  constexpr int kStep = static_cast<int>(sizeof(W) / sizeof(T));
#pragma unroll
  for (int i = 0; i < kWidth; i += kStep) {
    W word;
    memcpy(&word, values + i, sizeof word);
    simt::store_as(to + i, word);
  }
}

/// Elements in the type of computation, and back.
template <int kWidth, class T>
__device__ __forceinline__ void widen(math_t<T> (&out)[kWidth], const T (&raw)[kWidth]) {
  if constexpr (std::is_same_v<T, bfloat16> && kWidth % 2 == 0) {
#pragma unroll
    for (int i = 0; i < kWidth; i += 2) {  // one instruction for each half of a word
      uint32_t pair;
      memcpy(&pair, raw + i, sizeof pair);
      out[i] = __uint_as_float(pair << 16);
      out[i + 1] = __uint_as_float(pair & 0xffff0000u);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) out[i] = raw[i];
  }
}

template <int kWidth, class T>
__device__ __forceinline__ void narrow(T (&raw)[kWidth], const math_t<T> (&values)[kWidth]) {
  if constexpr (std::is_same_v<T, math_t<T>> || kWidth == 1) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) raw[i] = T(values[i]);
  } else {
#pragma unroll
    for (int i = 0; i + 1 < kWidth; i += 2) {
      const __nv_bfloat162 pair = __floats2bfloat162_rn(values[i], values[i + 1]);
      memcpy(static_cast<void*>(raw + i), &pair, sizeof pair);
    }
  }
}

/// load_raw and store_raw of elements that are converted.
template <int kWidth, class T>
__device__ __forceinline__ void load(math_t<T> (&out)[kWidth], const T* from) {
  T raw[kWidth];
  load_raw(raw, from);
  widen(out, raw);
}

template <int kWidth, class T>
__device__ __forceinline__ void store(T* to, const math_t<T> (&values)[kWidth]) {
  T raw[kWidth];
  narrow(raw, values);
  store_raw(to, raw);
}

}  // namespace heed::cuda
