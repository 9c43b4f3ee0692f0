// Non-temporal stores, for results too large to stay in the caches: a plain store would first read the line
// that it overwrites. And software prefetch, for passes over large arrays.
#if defined(HEED_KERNELS_CPU_STREAMING_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_CPU_STREAMING_INL_H_
#undef HEED_KERNELS_CPU_STREAMING_INL_H_
#else
#define HEED_KERNELS_CPU_STREAMING_INL_H_
#endif

#include <hwy/cache_control.h>

#include <heed/kernels/cpu/simd/simd.h>

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

/// Like Whole, with non-temporal stores: where uses_nontemporal_stores() allows it, and followed by
/// hwy::FlushStream().
template <class T>
struct NonTemporal : Whole<T> {
  using V = Vec<Tag<T>>;
  HWY_INLINE void store(V v, T* p) const {
    const Tag<T> d;
    if constexpr (std::is_same_v<T, bfloat16>) {
      const hn::Rebind<uint16_t, Tag<T>> d16;
      if constexpr (hn::MaxLanes(d16) * sizeof(T) >= 16) {  // the least that a non-temporal store takes
        hn::Stream(to_bfloat16(d, v), d16, &p->bits);
      } else {
        HWY_NAMESPACE::store(v, d, p);
      }
    } else {
      hn::Stream(v, d, p);
    }
  }
};

/// Software prefetch `bytes` beyond p, for passes over large arrays: the hardware's own ends with each page.
/// Not a multiple of the page size: rows and arrays often are, and what is prefetched would share the cache
/// sets of what is read.
constexpr int64_t kAhead = 4608;
template <class T>
HWY_INLINE void prefetch_ahead(const T* p, int64_t bytes = kAhead) {
  hwy::Prefetch(reinterpret_cast<const char*>(p) + bytes);
}

/// Whether a result of rows x cols elements from `out` on is to be written with NonTemporal: the pass reads
/// and writes `matrices` of that size, more than a cache holds, and each row is whole aligned vectors.
template <class T>
HWY_INLINE bool uses_nontemporal_stores(const T* out, int64_t rows, int64_t cols, int64_t matrices) {
  constexpr int64_t kCaches = int64_t{32} << 20;
  constexpr int64_t kAlignment = 64;
  const int64_t row = cols * static_cast<int64_t>(sizeof(T));
  return matrices * rows * row > kCaches && row % kAlignment == 0 &&
         reinterpret_cast<uintptr_t>(out) % kAlignment == 0;
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
