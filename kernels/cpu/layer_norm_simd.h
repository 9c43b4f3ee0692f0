// The rows of layer normalisation, forward and backward, shared by its fused relatives; included like simd.h.
//
// A mean rounded to float is off by up to half an ulp, which is much beside a deviation 10^4 times smaller.
// So deviations are taken from a pivot near the mean, and the mean of them, `shift`, is taken out as well.
#ifndef HEED_KERNELS_CPU_LAYER_NORM_SIMD_ONCE_
#define HEED_KERNELS_CPU_LAYER_NORM_SIMD_ONCE_
#include <algorithm>
#include <cmath>
#include <cstdint>

#include <heed/core/base/dtype.h>
#include <heed/core/base/parallel_for.h>
#include <heed/kernels/cpu/workspace.h>

namespace heed::cpu {

/// normed = (x - pivot - shift) * rstd.
template <class A>
struct RowStatistics {
  A pivot, shift, rstd;
};

/// The mean rounded to a grid of about 2^-15 (2^-28 in double) of `scale`, the size of the row's elements.
/// Were it finer, then the deviations of numbers with few digits (bf16, integers) would all be rounded off in
/// the same direction when they are added up.
template <class A>
A pivot_near(A mean, A scale) {
  const A coarse = scale * (sizeof(A) == 4 ? A(384) : A(3 << 23));
  const A pivot = (mean + coarse) - coarse;
  return std::isfinite(pivot) ? pivot : mean;
}

/// gx = (gy * weight - offset - normed * slope) * rstd.
template <class A>
struct RowGradient {
  RowStatistics<A> statistics;
  A offset, slope;
};

/// Rows that a forward task takes.
inline int64_t layer_norm_rows_per_task(int64_t cols) { return std::max<int64_t>(1, 4096 / cols); }

/// The sums over rows for gweight and gbias: each chunk of rows has its own, and they are added in order.
template <class A>
class ColumnSums {
 public:
  ColumnSums(int64_t rows, int64_t cols, bool wanted)
      : rows_per_chunk(std::max<int64_t>(32, (rows + 63) / 64)),
        stride((cols + 31) / 16 * 16),
        cols_(cols),
        chunks_((rows + rows_per_chunk - 1) / rows_per_chunk),
        partial_(wanted ? chunks_ * 2 * stride : 0) {}

  /// The chunk that starts at `row`: `stride` sums for gweight, then as many for gbias; null if not wanted.
  A* chunk(int64_t row) {
    return partial_.data() == nullptr ? nullptr : partial_.data() + row / rows_per_chunk * 2 * stride;
  }

  /// Writes or adds the totals; a null pointer is skipped.
  void finish(A* gweight, bool accumulate_weight, A* gbias, bool accumulate_bias) {
    parallel_for(cols_, kBlock, [&](int64_t begin, int64_t end) {
      if (gweight != nullptr) total(0, begin, end, gweight, accumulate_weight);
      if (gbias != nullptr) total(stride, begin, end, gbias, accumulate_bias);
    });
  }

  const int64_t rows_per_chunk;
  const int64_t stride;  // columns, and room for a vector that begins at any of them

 private:
  static constexpr int64_t kBlock = 512;

  void total(int64_t first, int64_t begin, int64_t end, A* out, bool accumulate) {
    A sum[kBlock] = {};
    for (int64_t k = 0; k < chunks_; ++k) {
      const A* part = partial_.data() + k * 2 * stride + first + begin;
      for (int64_t c = 0; c < end - begin; ++c) sum[c] += part[c];
    }
    for (int64_t c = 0; c < end - begin; ++c) out[begin + c] = accumulate ? out[begin + c] + sum[c] : sum[c];
  }

  int64_t cols_, chunks_;
  Workspace<A> partial_;
};

/// Calls rows(begin, end, gweight, gbias) for each chunk of rows of a backward, with zeroed sums of its own
/// or null, and brings the sums together.
template <class T, class Args, class Rows>
void for_row_chunks(const Args& args, const Rows& rows) {
  using A = accumulator_t<T>;
  ColumnSums<A> sums(args.rows, args.cols, args.gweight != nullptr || args.gbias != nullptr);
  parallel_for(args.rows, sums.rows_per_chunk, [&](int64_t begin, int64_t end) {
    A* chunk = sums.chunk(begin);
    if (chunk != nullptr) std::fill_n(chunk, 2 * sums.stride, A(0));
    rows(begin, end, chunk, chunk == nullptr ? nullptr : chunk + sums.stride);
  });
  sums.finish(args.gweight, args.accumulate_weight, args.gbias, args.accumulate_bias);
}

}  // namespace heed::cpu
#endif

#include <heed/kernels/cpu/simd.h>  // after what every target needs: it includes the whole file again

#if defined(HEED_KERNELS_CPU_LAYER_NORM_SIMD_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_CPU_LAYER_NORM_SIMD_H_
#undef HEED_KERNELS_CPU_LAYER_NORM_SIMD_H_
#else
#define HEED_KERNELS_CPU_LAYER_NORM_SIMD_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

/// The vectors of columns [begin, end): body(c, io) for each.
template <class T, class Body>
HWY_INLINE void for_columns(int64_t begin, int64_t end, Body& body) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(Tag<T>()));
  int64_t c = begin;
  for (; c + 2 * lanes <= end; c += 2 * lanes) {
    body.template step<0>(c, Whole<T>());
    body.template step<1>(c + lanes, Whole<T>());
  }
  if (c + lanes <= end) {
    body.template step<0>(c, Whole<T>());
    c += lanes;
  }
  if (c < end) body.template step<1>(c, Partial<T>{end - c});
}

/// Two sums that for_columns keeps apart, so that an addition need not wait for the one before.
template <class T>
struct Sum {
  using V = Vec<Tag<T>>;
  V part[2] = {hn::Zero(Tag<T>()), hn::Zero(Tag<T>())};

  template <int I>
  HWY_INLINE void add(V v) {
    part[I] = hn::Add(part[I], v);
  }
  template <int I>
  HWY_INLINE void add_product(V a, V b) {
    part[I] = hn::MulAdd(a, b, part[I]);
  }
  HWY_INLINE accumulator_t<T> total() const { return reduce_sum(Tag<T>(), hn::Add(part[0], part[1])); }
};

/// What the first look at a row finds: Σ x and Σ |x|.
template <class T>
struct RowSums {
  Sum<T> sum, magnitude;

  template <int I>
  HWY_INLINE void add(Vec<Tag<T>> v) {
    sum.template add<I>(v);
    magnitude.template add<I>(hn::Abs(v));
  }
};

template <class T>
struct SumColumns {
  const T* x;
  RowSums<T> sums;

  template <int I, class Io>
  HWY_INLINE void step(int64_t c, Io io) {
    sums.template add<I>(io.load(x + c));
  }
};

template <class T>
struct Deviations {
  const T* x;
  Vec<Tag<T>> pivot;
  Sum<T> sum, squares;

  template <int I, class Io>
  HWY_INLINE void step(int64_t c, Io io) {
    const auto deviation = io.keep(hn::Sub(io.load(x + c), pivot));
    sum.template add<I>(deviation);
    squares.template add_product<I>(deviation, deviation);
  }
};

/// Also writes the mean and the inverse deviation.
template <class T, class A = accumulator_t<T>>
HWY_INLINE RowStatistics<A> row_statistics(const T* x, const RowSums<T>& sums, int64_t cols, double eps,
                                           A* mean, A* rstd) {
  const A n = static_cast<A>(cols), pivot = pivot_near(sums.sum.total() / n, sums.magnitude.total() / n);
  Deviations<T> deviations{x, hn::Set(Tag<T>(), pivot), {}, {}};
  for_columns<T>(0, cols, deviations);
  const A shift = deviations.sum.total() / n;
  const A variance = std::max(A(0), deviations.squares.total() / n - shift * shift);
  *mean = pivot + shift;
  *rstd = A(1) / std::sqrt(variance + static_cast<A>(eps));
  return {pivot, shift, *rstd};
}

template <class T>
struct Normalize {
  const T *x, *weight, *bias;
  T* y;
  Vec<Tag<T>> pivot, shift, rstd;

  template <int, class Io>
  HWY_INLINE void step(int64_t c, Io io) {
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

template <class T, class A = accumulator_t<T>>
HWY_INLINE void normalize_row(const T* x, const RowStatistics<A>& s, const T* weight, const T* bias, T* y,
                              int64_t cols) {
  const Tag<T> d;
  Normalize<T> normalize{x, weight, bias, y, hn::Set(d, s.pivot), hn::Set(d, s.shift), hn::Set(d, s.rstd)};
  for_columns<T>(0, cols, normalize);
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

template <class T, class A = accumulator_t<T>>
HWY_INLINE RowGradient<A> row_gradient(const T* gy, const T* x, const T* weight, A mean, A rstd,
                                       int64_t cols) {
  const A n = static_cast<A>(cols), pivot = pivot_near(mean, std::abs(mean) + 1 / rstd);
  GradientSums<T> sums{gy, x, weight, hn::Set(Tag<T>(), pivot), {}, {}, {}};
  for_columns<T>(0, cols, sums);
  const A shift = sums.deviation.total() / n, gradient = sums.gradient.total();
  return {{pivot, shift, rstd}, gradient / n, (sums.product.total() - shift * gradient) * rstd / n};
}

/// Adds a row to gweight and gbias if they are not null, and hands each vector of gx to emit(c, v, io).
template <class T, class Emit>
struct BackwardColumns {
  using V = Vec<Tag<T>>;
  using A = accumulator_t<T>;
  const T *gy, *x, *weight;
  A *gweight, *gbias;
  V pivot, shift, rstd, offset, slope;
  const Emit& emit;

  BackwardColumns(const T* gy_row, const T* x_row, const T* w, const RowGradient<A>& row, A* gw, A* gb,
                  const Emit& e)
      : gy(gy_row), x(x_row), weight(w), gweight(gw), gbias(gb), emit(e) {
    const Tag<T> d;
    pivot = hn::Set(d, row.statistics.pivot);
    shift = hn::Set(d, row.statistics.shift);
    rstd = hn::Set(d, row.statistics.rstd);
    offset = hn::Set(d, row.offset);
    slope = hn::Set(d, row.slope);
  }

  template <int, class Io>
  HWY_INLINE void step(int64_t c, Io io) {
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

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
