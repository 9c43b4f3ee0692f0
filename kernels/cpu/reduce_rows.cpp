#include <limits>

#include <hwy/cache_control.h>

#include <heed/kernels/cpu/reduce_rows.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/kernels/cpu/reduce_rows.cpp"
#include <heed/kernels/cpu/simd.h>
// The -inl headers follow simd.h, which includes this file once per instruction set.
#include <heed/kernels/cpu/math-inl.h>
#include <heed/kernels/cpu/tail-inl.h>

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

using kernels::ReduceOp;
using Floats = Tag<float>;
using Doubles = Tag<double>;

constexpr int64_t kLineBytes = 64;
constexpr int64_t kRowsAhead = 8;  // of columns, which lie too far apart for the processor's own prefetching

/// What a reduction keeps, of which a row has kRowLanes side by side, whatever the vector's length.
/// A vector of floats is two of doubles: sums are kept in double.
template <ReduceOp kOp>
struct Sums {
  using A = double;
  static constexpr int64_t kRowLanes = 32;
  static constexpr int64_t kVectors = 2;
  using V = Vec<Doubles>;

  static HWY_INLINE V identity() { return hn::Zero(Doubles()); }
  template <class D>
  static HWY_INLINE Vec<D> join(D, Vec<D> a, Vec<D> b) {
    return hn::Add(a, b);
  }
  static HWY_INLINE void lift(Vec<Floats> x, Vec<Floats> centre, V (&out)[kVectors]) {
    const Doubles d;
    const hn::Half<Floats> half;
    if constexpr (kOp == ReduceOp::sum_exponential) x = exp(Floats(), hn::Sub(x, centre));
    out[0] = hn::PromoteTo(d, hn::LowerHalf(half, x));
    out[1] = hn::PromoteTo(d, hn::UpperHalf(half, x));
    if constexpr (kOp == ReduceOp::sum_squared_gap) {
      out[0] = hn::Sub(out[0], hn::PromoteTo(d, hn::LowerHalf(half, centre)));
      out[1] = hn::Sub(out[1], hn::PromoteTo(d, hn::UpperHalf(half, centre)));
    }
    if constexpr (kOp == ReduceOp::norm || kOp == ReduceOp::sum_squared_gap) {
      for (V& v : out) v = hn::Mul(v, v);
    }
  }
};

template <bool kLargest>
struct Extremum {
  using A = float;
  static constexpr int64_t kRowLanes = 64;
  static constexpr int64_t kVectors = 1;
  using V = Vec<Floats>;

  static HWY_INLINE V identity() {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    return hn::Set(Floats(), kLargest ? -kInfinity : kInfinity);
  }
  template <class D>
  static HWY_INLINE Vec<D> join(D, Vec<D> a, Vec<D> b) {
    return hn::IfThenElse(hn::Or(kLargest ? hn::Gt(a, b) : hn::Lt(a, b), hn::IsNaN(a)), a, b);
  }
  static HWY_INLINE void lift(Vec<Floats> x, Vec<Floats>, V (&out)[kVectors]) { out[0] = x; }
};

/// Joins the lanes of a vector, in the same tree of halves for every instruction set.
template <class Op, class D>
HWY_INLINE hn::TFromD<D> join_lanes(D d, Vec<D> v) {
  if constexpr (hn::MaxLanes(d) == 1) {
    return hn::GetLane(v);
  } else {
    const hn::Half<D> half;
    return join_lanes<Op>(half, Op::join(half, hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}

template <class Op, class T>
typename Op::A reduce_row(const T* x, int64_t n, float centre) {
  const Floats d;
  const Tag<typename Op::A> da;
  constexpr int64_t kFloats = hn::MaxLanes(d), kLanes = hn::MaxLanes(da);
  const auto centres = hn::Set(d, centre);
  typename Op::V results[Op::kRowLanes / kLanes], lifted[Op::kVectors];
  for (auto& result : results) result = Op::identity();
  int64_t i = 0;
  for (; i + Op::kRowLanes <= n; i += Op::kRowLanes) {
    for (int64_t v = 0; v < Op::kRowLanes / kFloats; ++v) {
      Op::lift(load(d, x + i + v * kFloats), centres, lifted);
      for (int64_t j = 0; j < Op::kVectors; ++j) {
        auto& result = results[v * Op::kVectors + j];
        result = Op::join(da, result, lifted[j]);
      }
    }
  }
  for (int64_t v = 0; i < n; ++v, i += kFloats) {
    Op::lift(load_up_to(d, x + i, n - i), centres, lifted);
    for (int64_t j = 0; j < Op::kVectors; ++j) {
      const int64_t count = HWY_MIN(HWY_MAX(n - i - j * kLanes, 0), kLanes);
      auto& result = results[v * Op::kVectors + j];
      const auto joined = Op::join(da, result, lifted[j]);
      result = hn::IfThenElse(hn::FirstN(da, static_cast<size_t>(count)), joined, result);
    }
  }
  for (int64_t vectors = Op::kRowLanes / kLanes / 2; vectors > 0; vectors /= 2) {
    for (int64_t v = 0; v < vectors; ++v) results[v] = Op::join(da, results[v], results[v + vectors]);
  }
  return join_lanes<Op>(da, results[0]);
}

/// The columns of kFloatVectors vectors, of which only the first `n` exist if kPartial.
template <class Op, int64_t kFloatVectors, bool kPartial, class T>
HWY_INLINE void reduce_strip(typename Op::A* results, const T* x, int64_t rows, int64_t step, int64_t n,
                             const float* centres) {
  const Floats d;
  const Tag<typename Op::A> da;
  constexpr int64_t kFloats = hn::MaxLanes(d), kLanes = hn::MaxLanes(da);
  constexpr int64_t kResults = kFloatVectors * Op::kVectors, kLine = kLineBytes / int64_t{sizeof(T)};
  const auto load_floats = [&](const auto* p) HWY_ATTR { return kPartial ? load_n(d, p, n) : load(d, p); };
  typename Op::V all[kResults], lifted[Op::kVectors];
  for (int64_t j = 0; j < kResults; ++j) {
    if (!kPartial)
      all[j] = load(da, results + j * kLanes);
    else
      all[j] = n > j * kLanes ? load_up_to(da, results + j * kLanes, n - j * kLanes) : Op::identity();
  }
  for (int64_t i = 0; i < rows; ++i, x += step) {
    if (!kPartial) {
      for (int64_t c = 0; c < kFloatVectors * kFloats; c += kLine) hwy::Prefetch(x + kRowsAhead * step + c);
    }
    for (int64_t v = 0; v < kFloatVectors; ++v) {
      Op::lift(load_floats(x + v * kFloats), load_floats(centres + v * kFloats), lifted);
      for (int64_t j = 0; j < Op::kVectors; ++j) {
        auto& result = all[v * Op::kVectors + j];
        result = Op::join(da, result, lifted[j]);
      }
    }
  }
  for (int64_t j = 0; j < kResults; ++j) {
    if (!kPartial)
      store(all[j], da, results + j * kLanes);
    else if (n > j * kLanes)
      store_up_to(all[j], da, results + j * kLanes, n - j * kLanes);
  }
}

template <class Op, class T>
void reduce_columns(typename Op::A* results, const T* x, int64_t rows, int64_t step, int64_t columns,
                    const float* centres) {
  constexpr int64_t kFloats = hn::MaxLanes(Floats()), kStrip = 4;
  int64_t c = 0;
  for (; c + kStrip * kFloats <= columns; c += kStrip * kFloats)
    reduce_strip<Op, kStrip, false>(results + c, x + c, rows, step, 0, centres + c);
  for (; c + kFloats <= columns; c += kFloats)
    reduce_strip<Op, 1, false>(results + c, x + c, rows, step, 0, centres + c);
  if (c < columns) reduce_strip<Op, 1, true>(results + c, x + c, rows, step, columns - c, centres + c);
}

template <class T>
HWY_INLINE ReduceRows<T, double> sums_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::norm:
      return {reduce_row<Sums<ReduceOp::norm>, T>, reduce_columns<Sums<ReduceOp::norm>, T>};
    case ReduceOp::sum_squared_gap:
      return {reduce_row<Sums<ReduceOp::sum_squared_gap>, T>,
              reduce_columns<Sums<ReduceOp::sum_squared_gap>, T>};
    case ReduceOp::sum_exponential:
      return {reduce_row<Sums<ReduceOp::sum_exponential>, T>,
              reduce_columns<Sums<ReduceOp::sum_exponential>, T>};
    default:
      return {reduce_row<Sums<ReduceOp::sum>, T>, reduce_columns<Sums<ReduceOp::sum>, T>};
  }
}

template <class T>
HWY_INLINE ReduceRows<T, float> extremum_of(ReduceOp op) {
  if (op == ReduceOp::maximum) return {reduce_row<Extremum<true>, T>, reduce_columns<Extremum<true>, T>};
  return {reduce_row<Extremum<false>, T>, reduce_columns<Extremum<false>, T>};
}

auto sums_f32(ReduceOp op) { return sums_of<float>(op); }
auto sums_bf16(ReduceOp op) { return sums_of<bfloat16>(op); }
auto extremum_f32(ReduceOp op) { return extremum_of<float>(op); }
auto extremum_bf16(ReduceOp op) { return extremum_of<bfloat16>(op); }

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::cpu {

HWY_EXPORT(sums_f32);
HWY_EXPORT(sums_bf16);
HWY_EXPORT(extremum_f32);
HWY_EXPORT(extremum_bf16);

template <>
ReduceRows<float, double> reduce_rows(kernels::ReduceOp op) {
  return HEED_SIMD(sums_f32)(op);
}
template <>
ReduceRows<bfloat16, double> reduce_rows(kernels::ReduceOp op) {
  return HEED_SIMD(sums_bf16)(op);
}
template <>
ReduceRows<float, float> reduce_rows(kernels::ReduceOp op) {
  return HEED_SIMD(extremum_f32)(op);
}
template <>
ReduceRows<bfloat16, float> reduce_rows(kernels::ReduceOp op) {
  return HEED_SIMD(extremum_bf16)(op);
}

}  // namespace heed::cpu
#endif
