// Stores around the caches, for results too large to stay in them: a usual store reads the line it
// overwrites.
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

/// Like Whole, but stores go around the caches: where streams() allows it, and to be ended by
/// hwy::FlushStream().
template <class T>
struct Streaming : Whole<T> {
  using V = Vec<Tag<T>>;
  HWY_INLINE void store(V v, T* p) const {
    const Tag<T> d;
    if constexpr (std::is_same_v<T, bfloat16>) {
      const hn::Rebind<uint16_t, Tag<T>> d16;
      if constexpr (hn::MaxLanes(d16) * sizeof(T) >= 16) {  // the least that can be streamed
        hn::Stream(to_bfloat16(d, v), d16, &p->bits);
      } else {
        HWY_NAMESPACE::store(v, d, p);
      }
    } else {
      hn::Stream(v, d, p);
    }
  }
};

/// Asks for what a pass over a large array that is at p needs soon, some `bytes` on. The processor's own
/// prefetching ends with each page. Not a whole number of pages, since rows and arrays often are: it would be
/// the same place of another one that is asked for, and the caches have few places for such lines.
constexpr int64_t kAhead = 4608;
template <class T>
HWY_INLINE void prefetch_ahead(const T* p, int64_t bytes = kAhead) {
  hwy::Prefetch(reinterpret_cast<const char*>(p) + bytes);
}

/// Whether a result of rows x cols elements from `out` on is to be written with Streaming: the `matrices` of
/// that size which the pass reads and writes would not stay in a cache, and each row consists of whole
/// aligned vectors.
template <class T>
HWY_INLINE bool streams(const T* out, int64_t rows, int64_t cols, int64_t matrices) {
  constexpr int64_t kCaches = int64_t{32} << 20;
  constexpr int64_t kAlignment = 64;
  const int64_t row = cols * static_cast<int64_t>(sizeof(T));
  return matrices * rows * row > kCaches && row % kAlignment == 0 &&
         reinterpret_cast<uintptr_t>(out) % kAlignment == 0;
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
