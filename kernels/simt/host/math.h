// Scalar functions that exist only in device code. Approximate ones are computed exactly here: compare with a
// GPU's results by tolerance.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace heed::emulator {

// As fmax does: a number rather than NaN. Of two zeros the positive one is the greater.
template <class T>
constexpr bool is_greater(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a) || std::isnan(b)) return std::isnan(b);
    if (a == b) return std::signbit(b) && !std::signbit(a);
  }
  return a > b;
}

// Rounded already: out of range clamps, and NaN is 0.
inline int saturated(float value) {
  constexpr float kEnd = 2147483648.0f;
  if (!(value >= -kEnd)) return std::isnan(value) ? 0 : std::numeric_limits<int>::min();
  return value < kEnd ? static_cast<int>(value) : std::numeric_limits<int>::max();
}

}  // namespace heed::emulator

template <class A, class B>
constexpr std::common_type_t<A, B> max(A a, B b) {
  using C = std::common_type_t<A, B>;
  return heed::emulator::is_greater(static_cast<C>(a), static_cast<C>(b)) ? static_cast<C>(a)
                                                                          : static_cast<C>(b);
}
template <class A, class B>
constexpr std::common_type_t<A, B> min(A a, B b) {
  using C = std::common_type_t<A, B>;
  if constexpr (std::is_floating_point_v<C>) return -max(-static_cast<C>(a), -static_cast<C>(b));
  return static_cast<C>(b) < static_cast<C>(a) ? static_cast<C>(b) : static_cast<C>(a);
}

inline float __expf(float x) { return expf(x); }
inline float __exp10f(float x) { return powf(10.0f, x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __powf(float x, float y) { return exp2f(y * log2f(x)); }  // NaN for x < 0
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __tanhf(float x) { return tanhf(x); }
inline float __fdividef(float a, float b) {
  const bool is_huge = fabsf(b) > 0x1p126f && !std::isinf(b);  // its reciprocal is flushed to zero
  return is_huge ? a * copysignf(0.0f, b) : a / b;
}
inline float __frcp_rn(float a) { return 1.0f / a; }
inline float __fsqrt_rn(float a) { return sqrtf(a); }
inline float __frsqrt_rn(float a) { return static_cast<float>(1.0 / sqrt(double{a})); }
inline float rsqrtf(float a) { return 1.0f / sqrtf(a); }
inline double rsqrt(double a) { return 1.0 / sqrt(a); }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __saturatef(float a) { return a > 0.0f ? (a < 1.0f ? a : 1.0f) : 0.0f; }

inline unsigned __float_as_uint(float value) {
  unsigned bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}
inline int __float_as_int(float value) { return static_cast<int>(__float_as_uint(value)); }
inline float __uint_as_float(unsigned bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}
inline float __int_as_float(int bits) { return __uint_as_float(static_cast<unsigned>(bits)); }
inline int __float2int_rn(float value) { return heed::emulator::saturated(nearbyintf(value)); }
inline int __float2int_rd(float value) { return heed::emulator::saturated(floorf(value)); }
inline int __float2int_rz(float value) { return heed::emulator::saturated(truncf(value)); }

inline int __popc(unsigned value) { return __builtin_popcount(value); }
inline int __popcll(unsigned long long value) { return __builtin_popcountll(value); }
inline int __clz(int value) { return value ? __builtin_clz(static_cast<unsigned>(value)) : 32; }
inline int __clzll(long long value) {
  return value ? __builtin_clzll(static_cast<unsigned long long>(value)) : 64;
}
inline int __ffs(int value) { return __builtin_ffs(value); }
inline int __ffsll(long long value) { return __builtin_ffsll(value); }
inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>((uint64_t{a} * b) >> 32); }
inline unsigned __brev(unsigned value) {
  unsigned out = 0;
  for (int i = 0; i < 32; ++i) out |= ((value >> i) & 1u) << (31 - i);
  return out;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  const uint64_t both = uint64_t{high} << 32 | low;
  return static_cast<unsigned>((both << (shift & 31)) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  const uint64_t both = uint64_t{high} << 32 | low;
  return static_cast<unsigned>(both >> (shift & 31));
}
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const uint64_t both = uint64_t{y} << 32 | x;
  unsigned out = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned pick = (selector >> (4 * i)) & 7;  // the fourth bit, PTX's sign, is not for CUDA
    out |= (static_cast<unsigned>(both >> (8 * pick)) & 255) << (8 * i);
  }
  return out;
}

// Rounded once: a float in between would round twice.
inline __nv_bfloat162 __hfma2(__nv_bfloat162 a, __nv_bfloat162 b, __nv_bfloat162 c) {
  const float2 x = __bfloat1622float2(a), y = __bfloat1622float2(b), z = __bfloat1622float2(c);
  return {__double2bfloat16(fma(double{x.x}, double{y.x}, double{z.x})),
          __double2bfloat16(fma(double{x.y}, double{y.y}, double{z.y}))};
}
inline __half2 __hfma2(__half2 a, __half2 b, __half2 c) {
  const float2 x = __half22float2(a), y = __half22float2(b), z = __half22float2(c);
  return {__double2half(fma(double{x.x}, double{y.x}, double{z.x})),
          __double2half(fma(double{x.y}, double{y.y}, double{z.y}))};
}
