// Loads and stores that stop at the end of a row.
#if defined(HEED_KERNELS_CPU_TAIL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_CPU_TAIL_INL_H_
#undef HEED_KERNELS_CPU_TAIL_INL_H_
#else
#define HEED_KERNELS_CPU_TAIL_INL_H_
#endif

#include <heed/kernels/cpu/simd/simd.h>

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

/// A vector from p, of which only the first n elements exist if n is less than a vector.
template <class D, class T>
HWY_INLINE Vec<D> load_up_to(D d, const T* p, int64_t n) {
  return n >= static_cast<int64_t>(hn::Lanes(d)) ? load(d, p) : load_n(d, p, n);
}

template <class D, class T>
HWY_INLINE void store_up_to(Vec<D> v, D d, T* p, int64_t n) {
  if (n >= static_cast<int64_t>(hn::Lanes(d)))
    store(v, d, p);
  else
    store_n(v, d, p, n);
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
