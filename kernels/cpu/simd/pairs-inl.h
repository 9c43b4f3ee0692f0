// Products of pairs of bf16, for processors that have them.
#if defined(HEED_KERNELS_CPU_PAIRS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_CPU_PAIRS_INL_H_
#undef HEED_KERNELS_CPU_PAIRS_INL_H_
#else
#define HEED_KERNELS_CPU_PAIRS_INL_H_
#endif

#include <cstring>

#include <heed/kernels/cpu/simd/simd.h>

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

/// Whether the processor may have the dot product of bf16 pairs, which Highway 1.0.3 does not know.
constexpr bool kHasPairs = HWY_TARGET == HWY_AVX3;

/// sum + a b; with Pairs each element of a and b is two bf16, and both products are added (subnormal numbers
/// are zero to it).
template <bool Pairs, class V>
HWY_INLINE V multiply_add(V a, V b, V sum) {
  if constexpr (Pairs) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "v"(b.raw));
    return sum;
  } else {
    return hn::MulAdd(a, b, sum);
  }
}

/// All lanes an element of A, which may be a pair in the memory of bf16.
template <class D>
HWY_INLINE Vec<D> broadcast(D d, const hn::TFromD<D>* a) {
  hn::TFromD<D> element;
  std::memcpy(&element, a, sizeof element);
  return hn::Set(d, element);
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
