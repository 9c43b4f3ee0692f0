// The rows of RMS norm, with and without a residual; follows simd.h. No mean is taken, hence there is no
// pivot.
#if defined(HEED_KERNELS_CPU_NORM_RMS_NORM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_CPU_NORM_RMS_NORM_INL_H_
#undef HEED_KERNELS_CPU_NORM_RMS_NORM_INL_H_
#else
#define HEED_KERNELS_CPU_NORM_RMS_NORM_INL_H_
#endif

#include <heed/kernels/cpu/norm/layer_norm-inl.h>
#include <heed/kernels/cpu/norm/residual-inl.h>

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

/// What a row is normalised with: normed = x * scale * rstd. The scale is 1 but where squares overflow.
template <class T>
struct RowScale {
  accumulator_t<T> scale, rstd;
};

template <class T>
struct SquareSum {
  Sum<T> squares;

  template <int I>
  HWY_INLINE void add(Vec<Tag<T>> v) {
    squares.template add_product<I>(v, v);
  }
};

/// sum += (x[c] * scale)²
template <class T>
struct SquareColumns {
  const T* x;
  Vec<Tag<T>> scale;
  SquareSum<T> sum;

  template <int I, class Io>
  HWY_INLINE void step(int64_t c, Io io) {
    prefetch_ahead(x + c);
    sum.template add<I>(hn::Mul(io.load(x + c), scale));
  }
};

/// y[c] = x[c] * scale * rstd * weight[c]
template <class T>
struct ScaleColumns {
  const T *x, *weight;
  T* y;
  Vec<Tag<T>> scale, rstd;

  template <int, class Io>
  HWY_INLINE void step(int64_t c, Io io) const {
    auto v = hn::Mul(hn::Mul(io.load(x + c), scale), rstd);
    if (weight != nullptr) v = hn::Mul(v, io.load(weight + c));
    io.store(v, y + c);
  }
};

template <class T, class A = accumulator_t<T>>
HWY_INLINE A sum_of_squares(const T* x, int64_t cols, A scale) {
  const Tag<T> d;
  SquareColumns<T> columns{x, hn::Set(d, scale), {}};
  for_columns<T>(0, cols, columns);
  return reduce_sum(d, columns.sum.squares.lanes());
}

/// From the sum of the squares of x; where that overflowed, from those of scaled elements.
template <class T, class A = accumulator_t<T>>
HWY_INLINE RowScale<T> row_scale(const T* x, A squares, int64_t cols, double eps) {
  RowScale<T> row{1, 0};
  if (HWY_UNLIKELY(!(squares <= std::numeric_limits<A>::max()))) {
    row.scale = sizeof(A) == 4 ? A(0x1p-96) : A(0x1p-600);
    squares = sum_of_squares(x, cols, row.scale);
  }
  row.rstd = 1 / std::sqrt(squares / static_cast<A>(cols) + static_cast<A>(eps) * row.scale * row.scale);
  return row;
}

template <class Io, class T>
HWY_NOINLINE void rms_norm_rows(const kernels::NormForward<T>& args, int64_t begin, int64_t end) {
  using A = accumulator_t<T>;
  const Tag<T> d;
  const bool draws = args.dropout.active() && args.keep_mask == nullptr;
  Workspace<uint8_t> drawn(draws ? keep_mask_bytes(args.cols) : 0);
  for (int64_t row = begin; row < end; ++row) {
    const int64_t first = row * args.cols;
    const T* const x = args.residual == nullptr ? args.x + first : args.sum + first;
    const A squares = args.residual == nullptr
                          ? sum_of_squares(x, args.cols, A(1))
                          : reduce_sum(d, add_row<SquareSum<T>>(args, row, args.sum + first,
                                                                static_cast<T*>(nullptr), drawn.data())
                                              .squares.lanes());
    const RowScale<T> scale = row_scale(x, squares, args.cols, args.eps);
    if (args.rstd != nullptr) args.rstd[row] = scale.scale * scale.rstd;
    ScaleColumns<T> columns{x, args.weight, args.y + first, hn::Set(d, scale.scale), hn::Set(d, scale.rstd)};
    for_columns<T, Io>(0, args.cols, columns);
  }
  if (std::is_same_v<Io, NonTemporal<T>>) hwy::FlushStream();
}

/// With n = x[c] * rstd: product += gy[c] * weight[c] * n; gweight[c] += gy[c] * n
template <class T>
struct ProductColumns {
  const T *gy, *x, *weight;
  accumulator_t<T>* gweight;
  Vec<Tag<T>> rstd;
  Sum<T> product;

  template <int I, class Io>
  HWY_INLINE void step(int64_t c, Io io) {
    prefetch_ahead(x + c);
    prefetch_ahead(gy + c);
    const auto normed = hn::Mul(io.load(x + c), rstd), g = io.load(gy + c);
    if (gweight != nullptr) {
      const Tag<T> d;  // whole vectors: there is room for one behind the columns
      store(hn::MulAdd(g, normed, load(d, gweight + c)), d, gweight + c);
    }
    product.template add_product<I>(weight == nullptr ? g : hn::Mul(g, io.load(weight + c)), normed);
  }
};

/// Hands on (gy[c] * weight[c] - n * slope) * rstd.
template <class T, class Emit>
struct RMSGradientColumns {
  const T *gy, *x, *weight;
  Vec<Tag<T>> rstd, slope;
  Emit emit;

  template <int, class Io>
  HWY_INLINE void step(int64_t c, Io io) const {
    const auto normed = hn::Mul(io.load(x + c), rstd);
    emit(c, hn::Mul(hn::NegMulAdd(normed, slope, weighted(gy, weight, c, io)), rstd), io);
  }
};

template <class Io, bool kResidual, class T>
HWY_NOINLINE void rms_norm_backward_rows(const GradientChunk<kernels::NormBackward<T>>& chunk, int64_t begin,
                                         int64_t end) {
  const Tag<T> d;
  const kernels::NormBackward<T>& args = chunk.args;
  const bool wants_rows = args.gx != nullptr || args.gresidual != nullptr;
  const GradientRows<T, kResidual> emit_row(args);
  for (int64_t row = begin; row < end; ++row) {
    const int64_t first = row * args.cols;
    const T *const gy = args.gy + first, *const x = args.sum + first;
    const auto rstd = hn::Set(d, args.rstd[row]);
    ProductColumns<T> products{gy, x, args.weight, chunk.gweight, rstd, {}};
    for_columns<T>(0, args.cols, products);
    if (!wants_rows) continue;
    const auto slope = reduce_sum(d, products.product.lanes()) / static_cast<accumulator_t<T>>(args.cols);
    const RMSGradientColumns<T, decltype(emit_row(row))> columns{
        gy, x, args.weight, rstd, hn::Set(d, slope), emit_row(row)};
    for_columns<T, Io>(0, args.cols, columns);
  }
  if (std::is_same_v<Io, NonTemporal<T>>) hwy::FlushStream();
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
