// What norms of a sum with a residual share; included like simd.h.
#ifndef HEED_KERNELS_CPU_RESIDUAL_SIMD_ONCE_
#define HEED_KERNELS_CPU_RESIDUAL_SIMD_ONCE_
#include <cstdint>

namespace heed::cpu {

template <class T>
constexpr T* shifted(T* p, int64_t by) {
  return p == nullptr ? nullptr : p + by;
}

}  // namespace heed::cpu
#endif

#include <heed/kernels/cpu/dropout_simd.h>
// The -inl headers follow simd.h.
#include <heed/kernels/cpu/simd/streaming-inl.h>

#if defined(HEED_KERNELS_CPU_RESIDUAL_SIMD_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_CPU_RESIDUAL_SIMD_H_
#undef HEED_KERNELS_CPU_RESIDUAL_SIMD_H_
#else
#define HEED_KERNELS_CPU_RESIDUAL_SIMD_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

/// Elements whose random bits are drawn at a time: few, so that prefetches made before are served meanwhile.
constexpr int64_t kChunk = 128;

/// Hands the gradient of the sum, a row of it, on to residual and x.
template <class T>
struct StoreGradients {
  const T* gsum;
  T *gresidual, *gx;
  bool accumulate_residual, accumulate_x;
  const Dropout* dropout;
  const uint8_t* keep_mask;  // a bit a column; null where nothing is dropped

  template <class Io>
  HWY_INLINE void operator()(int64_t c, Vec<Tag<T>> v, Io io) const {
    if (gsum != nullptr) v = hn::Add(io.load(gsum + c), v);
    if (gresidual != nullptr)
      io.store(accumulate_residual ? hn::Add(io.load(gresidual + c), v) : v, gresidual + c);
    if (gx != nullptr) {
      if (keep_mask != nullptr) v = apply_dropout(Tag<T>(), v, keep_mask, c, *dropout);
      io.store(accumulate_x ? hn::Add(io.load(gx + c), v) : v, gx + c);
    }
  }
};

/// Whether a gradient, if it is wanted, may be written by non-temporal stores.
template <class T, class Args>
HWY_INLINE bool may_stream(const T* gradient, bool accumulate, const Args& args) {
  return gradient == nullptr || (!accumulate && uses_nontemporal_stores(gradient, args.rows, args.cols, 4));
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
