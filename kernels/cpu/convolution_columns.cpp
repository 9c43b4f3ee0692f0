#include <heed/kernels/cpu/convolution_columns.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/kernels/cpu/convolution_columns.cpp"
#include <heed/kernels/cpu/simd/simd.h>

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

template <class A>
HWY_INLINE void copy_run(const A* from, int64_t step, int64_t count, A* to) {
  const Tag<A> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  if (step == 1) {
    for (int64_t i = 0; i < count; i += lanes) hn::StoreU(hn::LoadU(d, from + i), d, to + i);
  } else if (step == 2) {
    for (int64_t i = 0; i < count; i += lanes) {
      const auto low = hn::LoadU(d, from + 2 * i), high = hn::LoadU(d, from + 2 * i + lanes);
      hn::StoreU(hn::ConcatEven(d, high, low), d, to + i);
    }
  } else {
    for (int64_t i = 0; i < count; ++i) to[i] = from[i * step];
  }
}

template <class A>
HWY_INLINE void fill(const Columns<A> args) {
  A* out = args.out;
  for (int64_t c = 0; c < args.channels; ++c)
    for (int64_t t = 0; t < args.taps; ++t, out += args.width) {
      const A* const image = args.image + c * args.plane + args.tap[t];
      for (int64_t r = 0; r < args.run_count; ++r) {
        const PixelRun run = args.runs[r];
        copy_run(image + run.from, args.step, run.count, out + run.to);
      }
    }
}

/// Every step-th element, n of them at least; by steps of 1 and 2 whole vectors are read.
template <class A>
HWY_INLINE Vec<Tag<A>> load_steps(const A* from, int64_t step, int64_t n) {
  const Tag<A> d;
  if (step == 1) return hn::LoadU(d, from);
  if (step == 2) return hn::ConcatEven(d, hn::LoadU(d, from + hn::Lanes(d)), hn::LoadU(d, from));
  alignas(64) A values[hn::MaxLanes(d)] = {};
  for (int64_t i = 0; i < n; ++i) values[i] = from[i * step];
  return hn::Load(d, values);
}

template <class A>
HWY_INLINE void sum(const ColumnSums<A> args) {
  const Tag<A> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t r = 0; r < args.run_count; ++r) {
    const PixelRun run = args.runs[r];
    for (int64_t i = 0; i < run.count; i += lanes) {
      const int64_t n = HWY_MIN(lanes, run.count - i);
      A* const out = args.out + run.to + i;
      auto sum = args.added ? load_n(d, out, n) : hn::Zero(d);
      for (int64_t t = 0; t < args.taps; ++t)
        sum = hn::MulAdd(hn::Set(d, args.weight[t]),
                         load_steps(args.image + args.tap[t] + run.from + i * args.step, args.step, n), sum);
      store_n(sum, d, out, n);
    }
  }
}

void sum_f32(const ColumnSums<float>& args) { sum(args); }
void sum_f64(const ColumnSums<double>& args) { sum(args); }
void fill_f32(const Columns<float>& args) { fill(args); }
void fill_f64(const Columns<double>& args) { fill(args); }

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::cpu {

HWY_EXPORT(fill_f32);
HWY_EXPORT(fill_f64);
HWY_EXPORT(sum_f32);
HWY_EXPORT(sum_f64);

template <>
void fill_columns(const Columns<float>& args) {
  HEED_SIMD(fill_f32)(args);
}
template <>
void fill_columns(const Columns<double>& args) {
  HEED_SIMD(fill_f64)(args);
}

template <>
void sum_columns(const ColumnSums<float>& args) {
  HEED_SIMD(sum_f32)(args);
}
template <>
void sum_columns(const ColumnSums<double>& args) {
  HEED_SIMD(sum_f64)(args);
}

}  // namespace heed::cpu
#endif
