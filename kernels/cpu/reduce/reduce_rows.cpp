#include <algorithm>
#include <limits>

#include <hwy/cache_control.h>

#include <heed/kernels/cpu/reduce/reduce_rows.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/kernels/cpu/reduce/reduce_rows.cpp"
#include <heed/kernels/cpu/simd/simd.h>
// The -inl headers follow simd.h, which includes this file once per instruction set.
#include <heed/kernels/cpu/simd/math-inl.h>
#include <heed/kernels/cpu/simd/streaming-inl.h>
#include <heed/kernels/cpu/simd/tail-inl.h>

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

using kernels::ReduceOp;
using Floats = Tag<float>;
using Doubles = Tag<double>;

constexpr int64_t kLineBytes = 64;
constexpr int64_t kRowsTogether = 8;  // whose columns are added, and as many are prefetched

/// What a reduction keeps, of which a row has kRowLanes side by side, whatever the vector's length. It takes
/// kTogether vectors at a time, kRowLanes apart in a row or one from each of as many rows of columns. A
/// vector of floats is two of doubles: sums are kept in double. Converting to it takes longer than adding, so
/// four elements are added as floats before, in two roundings.
template <ReduceOp kOp>
struct Sums {
  using A = double;
  using V = Vec<Doubles>;
  static constexpr int64_t kTogether = kOp == ReduceOp::sum || kOp == ReduceOp::sum_exponential ? 4 : 1;
  static constexpr int64_t kRowLanes = kTogether > 1 ? 16 : 32;
  static constexpr int64_t kVectors = 2;

  static HWY_INLINE V identity() { return hn::Zero(Doubles()); }
  template <class D>
  static HWY_INLINE Vec<D> join(D, Vec<D> a, Vec<D> b) {
    return hn::Add(a, b);
  }
  /// The result with one more term. Squares of floats are exact in double, with FMA or without.
  static HWY_INLINE V add(V result, V term) {
    return kOp == ReduceOp::norm ? hn::MulAdd(term, term, result) : hn::Add(result, term);
  }
  template <int64_t kCount>
  static HWY_INLINE void lift(Vec<Floats> (&x)[kCount], Vec<Floats> centre, V (&out)[kVectors]) {
    const Doubles d;
    const Floats df;
    const hn::Half<Floats> half;
    if constexpr (kOp == ReduceOp::sum_exponential) {
      for (auto& v : x) v = hn::Sub(v, centre);
      exp_fast(df, x);
    }
    for (int64_t step = 1; step < kCount; step *= 2) {
      for (int64_t i = 0; i < kCount; i += 2 * step) x[i] = hn::Add(x[i], x[i + step]);
    }
    out[0] = hn::PromoteTo(d, hn::LowerHalf(half, x[0]));
    out[1] = hn::PromoteTo(d, hn::UpperHalf(half, x[0]));
    if constexpr (kOp == ReduceOp::sum_squared_gap) {
      out[0] = hn::Sub(out[0], hn::PromoteTo(d, hn::LowerHalf(half, centre)));
      out[1] = hn::Sub(out[1], hn::PromoteTo(d, hn::UpperHalf(half, centre)));
      for (V& v : out) v = hn::Mul(v, v);
    }
  }
};

template <bool kLargest>
struct Extremum {
  using A = float;
  using V = Vec<Floats>;
  static constexpr int64_t kTogether = 1;
  static constexpr int64_t kRowLanes = 64;
  static constexpr int64_t kVectors = 1;

  static HWY_INLINE V identity() {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    return hn::Set(Floats(), kLargest ? -kInfinity : kInfinity);
  }
  template <class D>
  static HWY_INLINE Vec<D> join(D, Vec<D> a, Vec<D> b) {
    return hn::IfThenElse(hn::Or(kLargest ? hn::Gt(a, b) : hn::Lt(a, b), hn::IsNaN(a)), a, b);
  }
  static HWY_INLINE V add(V result, V term) { return join(Floats(), result, term); }
  static HWY_INLINE void lift(Vec<Floats> (&x)[1], Vec<Floats>, V (&out)[kVectors]) { out[0] = x[0]; }
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
  constexpr int64_t kFloats = hn::MaxLanes(d), kLanes = hn::MaxLanes(da),
                    kStep = Op::kRowLanes * Op::kTogether;
  const auto centres = hn::Set(d, centre);
  typename Op::V results[Op::kRowLanes / kLanes], lifted[Op::kVectors];
  for (auto& result : results) result = Op::identity();
  int64_t i = 0;
  for (; i + kStep <= n; i += kStep) {
    for (int64_t v = 0; v < Op::kRowLanes / kFloats; ++v) {
      Vec<Floats> together[Op::kTogether];
      for (int64_t t = 0; t < Op::kTogether; ++t) {
        const T* const from = x + i + t * Op::kRowLanes + v * kFloats;
        prefetch_ahead(from);
        together[t] = load(d, from);
      }
      Op::lift(together, centres, lifted);
      for (int64_t j = 0; j < Op::kVectors; ++j) {
        auto& result = results[v * Op::kVectors + j];
        result = Op::add(result, lifted[j]);
      }
    }
  }
  for (; i < n; i += Op::kRowLanes) {
    for (int64_t v = 0; v < Op::kRowLanes / kFloats; ++v) {  // unrolled, so that results stay in registers
      const int64_t left = n - i - v * kFloats;
      if (left <= 0) break;
      Vec<Floats> last[1];
      last[0] = load_up_to(d, x + i + v * kFloats, left);
      Op::lift(last, centres, lifted);
      for (int64_t j = 0; j < Op::kVectors; ++j) {
        const int64_t count = HWY_MIN(HWY_MAX(left - j * kLanes, 0), kLanes);
        auto& result = results[v * Op::kVectors + j];
        const auto joined = Op::add(result, lifted[j]);
        result = hn::IfThenElse(hn::FirstN(da, static_cast<size_t>(count)), joined, result);
      }
    }
  }
  for (int64_t vectors = Op::kRowLanes / kLanes / 2; vectors > 0; vectors /= 2) {
    for (int64_t v = 0; v < vectors; ++v) results[v] = Op::join(da, results[v], results[v + vectors]);
  }
  return join_lanes<Op>(da, results[0]);
}

template <bool kPartial, class T>
HWY_INLINE Vec<Floats> load_columns(const T* p, int64_t n) {
  if constexpr (kPartial) return load_n(Floats(), p, n);
  return load(Floats(), p);
}

/// Adds kRows rows to the results of some columns, of kFloatVectors vectors, of which only the first `n`
/// exist if kPartial.
template <class Op, int64_t kFloatVectors, bool kPartial, int64_t kRows, class T>
HWY_INLINE void add_rows(typename Op::V* all, const T* x, int64_t step, int64_t n, const float* centres) {
  constexpr int64_t kFloats = hn::MaxLanes(Floats());
  typename Op::V lifted[Op::kVectors];
  for (int64_t v = 0; v < kFloatVectors; ++v) {
    Vec<Floats> together[kRows];
    for (int64_t t = 0; t < kRows; ++t) together[t] = load_columns<kPartial>(x + t * step + v * kFloats, n);
    Op::lift(together, load_columns<kPartial>(centres + v * kFloats, n), lifted);
    for (int64_t j = 0; j < Op::kVectors; ++j) {
      auto& result = all[v * Op::kVectors + j];
      result = Op::add(result, lifted[j]);
    }
  }
}

/// The columns of kFloatVectors vectors, of which only the first `n` exist if kPartial.
template <class Op, int64_t kFloatVectors, bool kPartial, class T>
HWY_INLINE void reduce_strip(typename Op::A* results, const T* x, int64_t rows, int64_t step, int64_t n,
                             const float* centres) {
  const Tag<typename Op::A> da;
  constexpr int64_t kLanes = hn::MaxLanes(da), kResults = kFloatVectors * Op::kVectors;
  constexpr int64_t kLine = kLineBytes / int64_t{sizeof(T)},
                    kColumns = kFloatVectors * hn::MaxLanes(Floats());
  typename Op::V all[kResults];
  for (int64_t j = 0; j < kResults; ++j) {
    if (!kPartial)
      all[j] = load(da, results + j * kLanes);
    else
      all[j] = n > j * kLanes ? load_up_to(da, results + j * kLanes, n - j * kLanes) : Op::identity();
  }
  if (!kPartial) {
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t c = 0; c < kColumns; c += kLine) hwy::Prefetch(x + (i + kRowsTogether) * step + c);
    }
  }
  int64_t i = 0;
  for (; i + Op::kTogether <= rows; i += Op::kTogether)
    add_rows<Op, kFloatVectors, kPartial, Op::kTogether>(all, x + i * step, step, n, centres);
  for (; i < rows; ++i) add_rows<Op, kFloatVectors, kPartial, 1>(all, x + i * step, step, n, centres);
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
  for (; rows > 0; rows -= kRowsTogether, x += kRowsTogether * step) {
    const int64_t together = HWY_MIN(rows, kRowsTogether);
    int64_t c = 0;
    for (; c + kStrip * kFloats <= columns; c += kStrip * kFloats)
      reduce_strip<Op, kStrip, false>(results + c, x + c, together, step, 0, centres + c);
    for (; c + kFloats <= columns; c += kFloats)
      reduce_strip<Op, 1, false>(results + c, x + c, together, step, 0, centres + c);
    if (c < columns) reduce_strip<Op, 1, true>(results + c, x + c, together, step, columns - c, centres + c);
  }
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

template <ReduceOp kOp>
int64_t reduce_integer_row(const int64_t* x, int64_t n) {
  using D = hn::ScalableTag<int64_t>;
  const D d;
  constexpr int64_t kTogether = 4;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto join = [](Vec<D> a, Vec<D> b) {
    if constexpr (kOp == ReduceOp::sum) return hn::Add(a, b);
    if constexpr (kOp == ReduceOp::maximum) return hn::Max(a, b);
    if constexpr (kOp == ReduceOp::minimum) return hn::Min(a, b);
  };
  using Limits = std::numeric_limits<int64_t>;
  const auto identity = hn::Set(d, kOp == ReduceOp::sum       ? 0
                                   : kOp == ReduceOp::maximum ? Limits::min()
                                                              : Limits::max());
  Vec<D> results[kTogether];
  for (auto& result : results) result = identity;
  int64_t i = 0;
  for (; i + kTogether * lanes <= n; i += kTogether * lanes)
    for (int64_t j = 0; j < kTogether; ++j) results[j] = join(results[j], hn::LoadU(d, x + i + j * lanes));
  for (; i + lanes <= n; i += lanes) results[0] = join(results[0], hn::LoadU(d, x + i));
  if (i < n) {
    int64_t last[hn::MaxLanes(D())];
    hn::StoreU(identity, d, last);
    std::copy(x + i, x + n, last);
    results[0] = join(results[0], hn::LoadU(d, last));
  }
  const auto all = join(join(results[0], results[1]), join(results[2], results[3]));
  if constexpr (kOp == ReduceOp::sum) return hn::GetLane(hn::SumOfLanes(d, all));
  if constexpr (kOp == ReduceOp::maximum) return hn::GetLane(hn::MaxOfLanes(d, all));
  if constexpr (kOp == ReduceOp::minimum) return hn::GetLane(hn::MinOfLanes(d, all));
}

ReduceIntegers integers_of(ReduceOp op) {
  if (op == ReduceOp::maximum) return reduce_integer_row<ReduceOp::maximum>;
  if (op == ReduceOp::minimum) return reduce_integer_row<ReduceOp::minimum>;
  return reduce_integer_row<ReduceOp::sum>;
}

auto sums_f32(ReduceOp op) { return sums_of<float>(op); }
auto sums_bf16(ReduceOp op) { return sums_of<bfloat16>(op); }
auto extremum_f32(ReduceOp op) { return extremum_of<float>(op); }
auto extremum_bf16(ReduceOp op) { return extremum_of<bfloat16>(op); }

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::cpu {

HWY_EXPORT(integers_of);
ReduceIntegers reduce_integers(kernels::ReduceOp op) { return HEED_SIMD(integers_of)(op); }

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
