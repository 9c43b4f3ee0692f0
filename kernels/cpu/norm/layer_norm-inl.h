// What the forwards of layer norm share, alone and with a residual, and its backward; follows simd.h.
//
// A mean rounded to float is off by up to half an ulp, which is much beside a deviation 10^4 times smaller.
// So deviations are taken from a pivot near the mean, and the mean of them, `shift`, is taken out as well.
#if defined(HEED_KERNELS_CPU_NORM_LAYER_NORM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_CPU_NORM_LAYER_NORM_INL_H_
#undef HEED_KERNELS_CPU_NORM_LAYER_NORM_INL_H_
#else
#define HEED_KERNELS_CPU_NORM_LAYER_NORM_INL_H_
#endif

#include <heed/kernels/cpu/norm/residual-inl.h>
#include <heed/kernels/cpu/simd/row_blocks-inl.h>

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

/// The mean rounded to a grid of about 2^-15 (2^-28 in double) of `scale`, the size of the row's elements.
/// Were it finer, then the deviations of numbers with few digits (bf16, integers) would all be rounded off in
/// the same direction when they are added up.
template <class D>
HWY_INLINE Vec<D> pivot_near(D d, Vec<D> mean, Vec<D> scale) {
  using A = hn::TFromD<D>;
  const auto coarse = hn::Mul(scale, hn::Set(d, sizeof(A) == 4 ? A(384) : A(3 << 23)));
  const auto pivot = hn::Sub(hn::Add(mean, coarse), coarse);
  return hn::IfThenElse(hn::IsFinite(pivot), pivot, mean);
}

/// What a look at a row for its pivot finds: Σ x and Σ |x|.
template <class T>
struct PivotSums {
  Sum<T> sum, magnitude;

  template <int I>
  HWY_INLINE void add(Vec<Tag<T>> v) {
    sum.template add<I>(v);
    magnitude.template add<I>(hn::Abs(v));
  }
};

template <class T>
struct PivotColumns {
  const T* x;
  PivotSums<T> sums;

  template <int I, class Io>
  HWY_INLINE void step(int64_t c, Io io) {
    sums.template add<I>(io.load(x + c));
  }
};

/// Numbers near the means of the rows of a group, from the sums of `n` elements of each and of their sizes.
template <class T>
HWY_INLINE Vec<Tag<T>> pivots_from(GroupSums<T>& sum, GroupSums<T>& magnitude, int64_t rows, int64_t group,
                                   int64_t n) {
  const Tag<T> d;
  const auto count = hn::Set(d, static_cast<accumulator_t<T>>(n));
  return pivot_near(d, hn::Div(totals<T>(sum, rows, group), count),
                    hn::Div(totals<T>(magnitude, rows, group), count));
}

/// Prefetches `ahead` too, if kPrefetch.
template <bool kPrefetch, class T>
struct Deviations {
  const T *x, *ahead;
  Vec<Tag<T>> pivot;
  Sum<T> sum, squares;

  template <int I, class Io>
  HWY_INLINE void step(int64_t c, Io io) {
    if constexpr (kPrefetch) hwy::Prefetch(ahead + c);
    const auto deviation = io.keep(hn::Sub(io.load(x + c), pivot));
    sum.template add<I>(deviation);
    squares.template add_product<I>(deviation, deviation);
  }
};

/// normed = (x - pivot - shift) * rstd.
template <class T>
struct GroupStatistics {
  PerRow<T> pivot, shift, rstd;
  Vec<Tag<T>> means, inverses;  // of the deviations

  /// Whether the squares of a row's deviations overflowed: the row is normalised alone.
  HWY_INLINE bool overflowed(int64_t row) const { return !(rstd.value[row] > 0); }

  /// Writes those of rows first … first + rows - 1; `mean` is null where there is no backward.
  void store(accumulator_t<T>* mean, accumulator_t<T>* inverse, int64_t first, int64_t rows) const {
    if (mean == nullptr) return;
    store_n(means, Tag<T>(), mean + first, rows);
    store_n(inverses, Tag<T>(), inverse + first, rows);
  }
};

/// From the sums of the deviations from `pivot` and of their squares. Returns false if some row overflowed or
/// if a pivot is further from its row's mean than the row's deviation, where digits cancel, and puts a better
/// one in its place.
template <class T>
HWY_INLINE bool statistics_from(GroupSums<T>& sum, GroupSums<T>& squares, int64_t rows, int64_t group,
                                int64_t cols, double eps, Vec<Tag<T>>& pivot, GroupStatistics<T>& out) {
  using A = accumulator_t<T>;
  const Tag<T> d;
  const auto n = hn::Set(d, static_cast<A>(cols));
  const auto shift = hn::Div(totals<T>(sum, rows, group), n);
  const auto square = hn::Div(totals<T>(squares, rows, group), n), shift_square = hn::Mul(shift, shift);
  // Max gives its second argument when one of them is NaN.
  const auto variance = hn::Max(hn::Zero(d), hn::Sub(square, shift_square));
  out.inverses = hn::Div(hn::Set(d, A(1)), hn::Sqrt(hn::Add(variance, hn::Set(d, static_cast<A>(eps)))));
  out.means = hn::Add(pivot, shift);
  out.shift.set(shift);
  out.rstd.set(out.inverses);
  const auto near = hn::And(hn::Le(shift_square, variance),
                            hn::Lt(variance, hn::Set(d, std::numeric_limits<A>::infinity())));
  if (HWY_LIKELY(hn::AllTrue(d, near))) return true;
  pivot =
      hn::IfThenElse(near, pivot, pivot_near(d, out.means, hn::Add(hn::Abs(out.means), hn::Sqrt(variance))));
  return false;
}

/// Prefetches `ahead` too, if kPrefetch.
template <bool kPrefetch, class T>
struct Normalize {
  const T *x, *ahead, *weight, *bias;
  T* y;
  Vec<Tag<T>> pivot, shift, rstd;

  template <int, class Io>
  HWY_INLINE void step(int64_t c, Io io) const {
    if constexpr (kPrefetch) hwy::Prefetch(ahead + c);
    auto v = hn::Mul(hn::Sub(hn::Sub(io.load(x + c), pivot), shift), rstd);
    if (weight != nullptr && bias != nullptr) {
      v = hn::MulAdd(v, io.load(weight + c), io.load(bias + c));
    } else if (weight != nullptr) {
      v = hn::Mul(v, io.load(weight + c));
    } else if (bias != nullptr) {
      v = hn::Add(v, io.load(bias + c));
    }
    io.store(v, y + c);
  }
};

/// The last pass over row x, number i of its group.
template <bool kPrefetch, class Io, class T>
HWY_INLINE auto normalize_row(const T* x, const T* ahead, const T* weight, const T* bias, T* y, int64_t cols,
                              const GroupStatistics<T>& s, int64_t i) {
  const Normalize<kPrefetch, T> columns{x, ahead, weight, bias, y, s.pivot[i], s.shift[i], s.rstd[i]};
  return PipelinedPass<T, Io, Normalize<kPrefetch, T>>{columns, cols};
}

/// gy * weight.
template <class T, class Io>
HWY_INLINE Vec<Tag<T>> weighted(const T* gy, const T* weight, int64_t c, Io io) {
  const auto g = io.load(gy + c);
  return weight == nullptr ? g : hn::Mul(g, io.load(weight + c));
}

template <class T>
struct GradientSums {
  const T *gy, *x, *weight;
  Vec<Tag<T>> pivot;
  Sum<T> deviation, gradient, product;

  template <int I, class Io>
  HWY_INLINE void step(int64_t c, Io io) {
    const auto v = io.keep(hn::Sub(io.load(x + c), pivot));
    const auto g = weighted(gy, weight, c, io);
    deviation.template add<I>(v);
    gradient.template add<I>(g);
    product.template add_product<I>(g, v);
  }
};

/// gx = (gy * weight - offset - normed * slope) * rstd.
template <class T>
struct GroupGradient {
  using A = accumulator_t<T>;
  /// No float has a square greater than that of its reciprocal, nor a double.
  static constexpr A kMinInverse = sizeof(A) == 4 ? A(0x1p-64) : A(0x1p-512);

  GroupStatistics<T> statistics;
  PerRow<T> offset, slope;

  /// Whether there are no rows to be taken alone.
  HWY_INLINE bool sound(Vec<Tag<T>> slopes) const {
    const Tag<T> d;
    const auto infinity = hn::Set(d, std::numeric_limits<A>::infinity());
    return hn::AllTrue(
        d, hn::And(hn::Lt(hn::Abs(slopes), infinity), hn::Ge(statistics.inverses, hn::Set(d, kMinInverse))));
  }
  /// Whether a row's sums, or the squares before them, overflowed.
  HWY_INLINE bool overflowed(int64_t row) const {
    return !(std::fabs(slope.value[row]) < std::numeric_limits<A>::infinity() &&
             statistics.rstd.value[row] >= kMinInverse);
  }
};

/// Adds a row to gweight and gbias if they are not null, and hands each vector of gx to emit(c, v, io).
template <class T, class Emit>
struct BackwardColumns {
  using V = Vec<Tag<T>>;
  using A = accumulator_t<T>;
  const T *gy, *x, *weight;
  A *gweight, *gbias;
  V pivot, shift, rstd, offset, slope;
  Emit emit;

  template <int, class Io>
  HWY_INLINE void step(int64_t c, Io io) const {
    prefetch_ahead(x + c);
    prefetch_ahead(gy + c);
    const auto normed = hn::Mul(hn::Sub(hn::Sub(io.load(x + c), pivot), shift), rstd);
    if (gweight != nullptr) {
      const auto g = io.load(gy + c);
      const Tag<T> d;  // whole vectors: there is room for one behind the columns
      store(hn::MulAdd(g, normed, load(d, gweight + c)), d, gweight + c);
      store(hn::Add(g, load(d, gbias + c)), d, gbias + c);
    }
    const auto g = hn::Sub(weighted(gy, weight, c, io), offset);
    emit(c, hn::Mul(hn::NegMulAdd(normed, slope, g), rstd), io);
  }
};

/// Hands on the gradient of a row that was taken alone.
template <class T, class Emit>
struct EmitColumns {
  const accumulator_t<T>* gx;
  Emit emit;

  template <int, class Io>
  HWY_INLINE void step(int64_t c, Io io) const {
    emit(c, io.load(gx + c), io);
  }
};

/// The steps of a backward with normalised rows x; emit_row(row) is what takes the vectors of a row of gx.
template <class Io, class T, class EmitRow>
struct BackwardSteps {
  using A = accumulator_t<T>;
  const T *const gy, *const x, *const weight;
  const A *const mean, *const rstd;
  A *const gweight, *const gbias;
  const int64_t cols, size;
  const EmitRow& emit_row;
  GroupGradient<T> out;  // of one group, since passes are not pipelined
  GroupSums<T> deviation, gradient, product;

  BackwardSteps(const GradientChunk<kernels::NormBackward<T>>& chunk, const EmitRow& emit)
      : gy(chunk.args.gy),
        x(chunk.args.sum),
        weight(chunk.args.weight),
        mean(chunk.args.mean),
        rstd(chunk.args.rstd),
        gweight(chunk.gweight),
        gbias(chunk.gbias),
        cols(chunk.args.cols),
        size(rows_in_group<T>(chunk.args.cols)),
        emit_row(emit) {}

  HWY_INLINE void begin(const Group& group) {
    const Tag<T> d;
    const auto center = load_n(d, mean + group.row, group.rows);
    const auto inverse = hn::IfThenElse(hn::FirstN(d, static_cast<size_t>(group.rows)),
                                        load_n(d, rstd + group.row, group.rows), hn::Set(d, A(1)));
    GroupStatistics<T>& statistics = out.statistics;
    statistics.rstd.set(inverse);
    statistics.inverses = inverse;
    statistics.pivot.set(pivot_near(d, center, hn::Add(hn::Abs(center), hn::Div(hn::Set(d, A(1)), inverse))));
  }
  template <class Pipelined>
  HWY_INLINE void first_pass(const Group& group, int64_t i, Pipelined& pipelined) {
    const int64_t at = (group.row + i) * cols;
    GradientSums<T> columns{gy + at, x + at, weight, out.statistics.pivot[i], {}, {}, {}};
    for_columns<T>(0, cols, columns, pipelined);
    deviation[i] = columns.deviation.lanes();
    gradient[i] = columns.gradient.lanes();
    product[i] = columns.product.lanes();
  }
  HWY_INLINE bool find(Group& group) {
    const auto n = hn::Set(Tag<T>(), static_cast<A>(cols));
    const auto shift = hn::Div(totals<T>(deviation, group.rows, size), n);
    const auto sum = totals<T>(gradient, group.rows, size);
    out.statistics.shift.set(shift);
    out.offset.set(hn::Div(sum, n));
    const auto aligned = hn::Sub(totals<T>(product, group.rows, size), hn::Mul(shift, sum));
    const auto slope = hn::Div(hn::Mul(aligned, out.statistics.inverses), n);
    out.slope.set(slope);
    if (HWY_UNLIKELY(!out.sound(slope))) {
      take_alone(group);
      group.rows = 0;
    }
    return true;
  }
  HWY_NOINLINE void take_alone(const Group group) const {
    Workspace<A> gx(cols);
    for (int64_t i = 0; i < group.rows; ++i) {
      if (!out.overflowed(i)) {
        last_pass(group, i).rest();
        continue;
      }
      const int64_t row = group.row + i, at = row * cols;
      gradient_alone(gy + at, x + at, weight, rstd[row], cols, gweight, gbias, gx.data());
      const EmitColumns<T, decltype(emit_row(row))> columns{gx.data(), emit_row(row)};
      for_columns<T>(0, cols, columns);
    }
  }
  HWY_INLINE auto last_pass(const Group& group, int64_t i) const {
    using Emit = decltype(emit_row(group.row));
    const int64_t row = group.row + i, at = row * cols;
    const BackwardColumns<T, Emit> columns{.gy = gy + at,
                                           .x = x + at,
                                           .weight = weight,
                                           .gweight = gweight,
                                           .gbias = gbias,
                                           .pivot = out.statistics.pivot[i],
                                           .shift = out.statistics.shift[i],
                                           .rstd = out.statistics.rstd[i],
                                           .offset = out.offset[i],
                                           .slope = out.slope[i],
                                           .emit = emit_row(row)};
    return PipelinedPass<T, Io, BackwardColumns<T, Emit>>{columns, cols};
  }
};

template <class Io, bool kResidual, class T>
HWY_NOINLINE void layer_norm_backward_rows(const GradientChunk<kernels::NormBackward<T>>& chunk,
                                           int64_t begin, int64_t end) {
  const GradientRows<T, kResidual> emit_row(chunk.args);
  BackwardSteps<Io, T, GradientRows<T, kResidual>> steps(chunk, emit_row);
  for_groups<false>(begin, end, steps.size, steps);
  if (std::is_same_v<Io, NonTemporal<T>>) hwy::FlushStream();
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
