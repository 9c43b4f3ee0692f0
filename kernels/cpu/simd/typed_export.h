// HWY_EXPORT for row functions that exist for float, bfloat16 and double. In the target's namespace
// HEED_TYPED(f, Args) makes f_f32, f_bf16 and f_f64 of a template f(const Args<T>&, int64_t begin,
// int64_t end); outside it HEED_EXPORT_TYPED(f) exports them and HEED_SIMD_OF(T, f) is the one for T.
#pragma once

#include <type_traits>

#include <heed/core/base/dtype.h>
#include <heed/kernels/cpu/simd/isa.h>

namespace heed::cpu {

template <class T, class F32, class BF16, class F64>
constexpr auto choose_by_type(F32 f32, BF16 bf16, F64 f64) {
  if constexpr (std::is_same_v<T, float>)
    return f32;
  else if constexpr (std::is_same_v<T, bfloat16>)
    return bf16;
  else
    return f64;
}

}  // namespace heed::cpu

#define HEED_TYPED(f, Args)                                                                      \
  void f##_f32(const Args<float>& args, int64_t begin, int64_t end) { f(args, begin, end); }     \
  void f##_bf16(const Args<bfloat16>& args, int64_t begin, int64_t end) { f(args, begin, end); } \
  void f##_f64(const Args<double>& args, int64_t begin, int64_t end) { f(args, begin, end); }
#define HEED_EXPORT_TYPED(f) \
  HWY_EXPORT(f##_f32);       \
  HWY_EXPORT(f##_bf16);      \
  HWY_EXPORT(f##_f64);
#define HEED_SIMD_OF(T, f) \
  ::heed::cpu::choose_by_type<T>(HEED_SIMD(f##_f32), HEED_SIMD(f##_bf16), HEED_SIMD(f##_f64))
