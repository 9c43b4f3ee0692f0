// Passes over the columns of a row, and software pipelining: the last pass over a row together with the first
// pass over the next.
#if defined(HEED_KERNELS_CPU_COLUMNS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_CPU_COLUMNS_INL_H_
#undef HEED_KERNELS_CPU_COLUMNS_INL_H_
#else
#define HEED_KERNELS_CPU_COLUMNS_INL_H_
#endif

#include <heed/kernels/cpu/simd/simd.h>

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

/// A pass of its own.
struct NoPipeline {
  HWY_INLINE void step() {}
  HWY_INLINE void rest() {}
};

/// for (c = begin; c < end; c += lanes) { body.step(c); pipelined.step(); }
///
/// body.step<I>(c, io): Io is Whole or NonTemporal, and I alternates between 0 and 1, so that sums can be
/// kept in two parts. Prefetches of the one pass alternate with stores of the other, which keeps memory
/// busiest.
template <class T, class Io = Whole<T>, class Body, class Pipelined>
HWY_INLINE void for_columns(int64_t begin, int64_t end, Body& body, Pipelined& pipelined) {
  constexpr int64_t kLanes = hn::MaxLanes(Tag<T>());
  int64_t c = begin;
  for (; c + 2 * kLanes <= end; c += 2 * kLanes) {
    body.template step<0>(c, Io());
    pipelined.step();
    body.template step<1>(c + kLanes, Io());
    pipelined.step();
  }
  if (c + kLanes <= end) {
    body.template step<0>(c, Io());
    c += kLanes;
  }
  if (c < end) body.template step<1>(c, Partial<T>{end - c});
}
template <class T, class Io = Whole<T>, class Body>
HWY_INLINE void for_columns(int64_t begin, int64_t end, Body& body) {
  NoPipeline nothing;
  for_columns<T, Io>(begin, end, body, nothing);
}

/// The last pass over a row of n columns, a vector at a time during the first pass over the next row: memory
/// is read and written at the same time.
template <class T, class Io, class Body>
struct PipelinedPass {
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
