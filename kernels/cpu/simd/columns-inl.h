// Passes over the columns of a row, and the last one over a row beside the first one over the next.
#if defined(HEED_KERNELS_CPU_COLUMNS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_CPU_COLUMNS_INL_H_
#undef HEED_KERNELS_CPU_COLUMNS_INL_H_
#else
#define HEED_KERNELS_CPU_COLUMNS_INL_H_
#endif

#include <heed/kernels/cpu/simd/simd.h>

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

/// Where no other pass is taken along.
struct NothingBeside {
  HWY_INLINE void step() {}
  HWY_INLINE void rest() {}
};

/// The vectors of columns [begin, end): body.step<I>(c, io) for each, Io being Whole or Streaming and I 0 and
/// 1 by turns. After each a vector of `beside` is taken along: where the one asks memory for lines and the
/// other writes some, that is done by turns, which memory is quickest with.
template <class T, class Io = Whole<T>, class Body, class Beside>
HWY_INLINE void for_columns(int64_t begin, int64_t end, Body& body, Beside& beside) {
  constexpr int64_t kLanes = hn::MaxLanes(Tag<T>());
  int64_t c = begin;
  for (; c + 2 * kLanes <= end; c += 2 * kLanes) {
    body.template step<0>(c, Io());
    beside.step();
    body.template step<1>(c + kLanes, Io());
    beside.step();
  }
  if (c + kLanes <= end) {
    body.template step<0>(c, Io());
    c += kLanes;
  }
  if (c < end) body.template step<1>(c, Partial<T>{end - c});
}
template <class T, class Io = Whole<T>, class Body>
HWY_INLINE void for_columns(int64_t begin, int64_t end, Body& body) {
  NothingBeside nothing;
  for_columns<T, Io>(begin, end, body, nothing);
}

/// The last pass over a row of n columns, which goes beside the first pass over the next row, so that memory
/// is read and written at the same time.
template <class T, class Io, class Body>
struct LastPass {
  Body body;
  const int64_t n;
  int64_t done = 0;

  HWY_INLINE void step() {
    constexpr int64_t kLanes = hn::MaxLanes(Tag<T>());
    if (done + kLanes > n) return;
    body.template step<0>(done, Io());
    done += kLanes;
  }
  HWY_INLINE void rest() { for_columns<T, Io>(done, n, body); }
};

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
