#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/kernels/cpu/rms_norm.cpp"

#include <heed/core/base/parallel_for.h>
#include <heed/kernels/cpu/layer_norm_simd.h>
#include <heed/kernels/cpu/residual_simd.h>
#include <heed/kernels/cpu/simd/typed_export.h>
#include <heed/kernels/cpu/tasks/grain.h>
#include <heed/kernels/rms_norm.h>

#ifndef HEED_KERNELS_CPU_RMS_NORM_ONCE_
#define HEED_KERNELS_CPU_RMS_NORM_ONCE_
namespace heed::cpu {

/// What a row is normalised with: normed = x * scale * rstd. The scale is 1 but where squares overflow.
template <class A>
struct RowScale {
  A scale, rstd;
};

/// A backward, and where a chunk of its rows adds up gweight; null if that is not wanted.
template <class T>
struct RMSNormChunk {
  const kernels::RMSNormBackward<T>& args;
  accumulator_t<T>* gweight;
};

}  // namespace heed::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

/// sum += (x[c] * scale)²
template <class T>
struct SquareColumns {
  const T* x;
  Vec<Tag<T>> scale;
  Sum<T> squares;

  template <int I, class Io>
  HWY_INLINE void step(int64_t c, Io io) {
    prefetch_ahead(x + c);
    const auto v = hn::Mul(io.load(x + c), scale);
    squares.template add_product<I>(v, v);
  }
};

/// out[c] = residual[c] + dropout(x[c]); sum += out[c]², as it was stored
template <class T>
struct AddSquareColumns {
  const T *residual, *x;
  T* out;
  const Dropout* dropout;
  const uint8_t* kept;  // a bit a column; null where nothing is dropped
  Sum<T> squares;

  template <int I, class Io>
  HWY_INLINE void step(int64_t c, Io io) {
    prefetch_ahead(x + c);
    prefetch_ahead(residual + c);
    auto v = io.load(x + c);
    if (kept != nullptr) v = apply_dropout(Tag<T>(), v, kept, c, *dropout);
    v = hn::Add(io.load(residual + c), v);
    io.store(v, out + c);
    if constexpr (std::is_same_v<T, bfloat16>) v = io.load(out + c);
    squares.template add_product<I>(v, v);
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
  return reduce_sum(d, columns.squares.lanes());
}

/// From the sum of the squares of x; where that overflowed, from those of scaled elements.
template <class T, class A = accumulator_t<T>>
HWY_INLINE RowScale<A> row_scale(const T* x, A squares, int64_t cols, double eps) {
  RowScale<A> row{1, 0};
  if (HWY_UNLIKELY(!(squares <= std::numeric_limits<A>::max()))) {
    row.scale = sizeof(A) == 4 ? A(0x1p-96) : A(0x1p-600);
    squares = sum_of_squares(x, cols, row.scale);
  }
  row.rstd = 1 / std::sqrt(squares / static_cast<A>(cols) + static_cast<A>(eps) * row.scale * row.scale);
  return row;
}

/// Writes a row of residual + dropout(x), and returns the sum of its squares.
template <class T>
HWY_INLINE accumulator_t<T> add_row(const kernels::RMSNormForward<T>& args, int64_t row, uint8_t* drawn) {
  const int64_t first = row * args.cols;
  AddSquareColumns<T> columns{args.residual + first, args.x + first, args.sum + first,
                              &args.dropout,         drawn,          {}};
  for (int64_t c = 0; c < args.cols; c += kChunk) {
    const int64_t n = std::min(kChunk, args.cols - c);
    if (drawn != nullptr) fill_keep_mask(args.dropout, first + c, n, drawn + c / 8);
    for_columns<T>(c, c + n, columns);
  }
  return reduce_sum(Tag<T>(), columns.squares.lanes());
}

template <class Io, class T>
HWY_INLINE void forward_rows(const kernels::RMSNormForward<T>& args, int64_t begin, int64_t end) {
  using A = accumulator_t<T>;
  const Tag<T> d;
  const bool draws = args.residual != nullptr && args.dropout.active();
  Workspace<uint8_t> drawn(draws ? keep_mask_bytes(args.cols) : 0);
  for (int64_t row = begin; row < end; ++row) {
    const int64_t first = row * args.cols;
    const T* const x = args.residual == nullptr ? args.x + first : args.sum + first;
    const A squares = args.residual == nullptr ? sum_of_squares(x, args.cols, A(1))
                                               : add_row(args, row, draws ? drawn.data() : nullptr);
    const RowScale<A> scale = row_scale(x, squares, args.cols, args.eps);
    if (args.rstd != nullptr) args.rstd[row] = scale.scale * scale.rstd;
    ScaleColumns<T> columns{x, args.weight, args.y + first, hn::Set(d, scale.scale), hn::Set(d, scale.rstd)};
    for_columns<T, Io>(0, args.cols, columns);
  }
  if (std::is_same_v<Io, NonTemporal<T>>) hwy::FlushStream();
}

template <class T>
void forward(const kernels::RMSNormForward<T>& args, int64_t begin, int64_t end) {
  if (uses_nontemporal_stores(args.y, args.rows, args.cols, args.residual == nullptr ? 2 : 4))
    forward_rows<NonTemporal<T>>(args, begin, end);
  else
    forward_rows<Whole<T>>(args, begin, end);
}
HEED_TYPED(forward, kernels::RMSNormForward)

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
struct GradientColumns {
  const T *gy, *x, *weight;
  Vec<Tag<T>> rstd, slope;
  Emit emit;

  template <int, class Io>
  HWY_INLINE void step(int64_t c, Io io) const {
    const auto normed = hn::Mul(io.load(x + c), rstd);
    emit(c, hn::Mul(hn::NegMulAdd(normed, slope, weighted(gy, weight, c, io)), rstd), io);
  }
};

template <class Io, class T>
HWY_INLINE void gradient_rows(const RMSNormChunk<T>& chunk, int64_t begin, int64_t end) {
  using A = accumulator_t<T>;
  const Tag<T> d;
  const kernels::RMSNormBackward<T>& args = chunk.args;
  const bool draws = args.dropout.active() && args.gx != nullptr;
  const bool wants_rows = args.gx != nullptr || args.gresidual != nullptr;
  Workspace<uint8_t> drawn(draws ? keep_mask_bytes(args.cols) : 0);
  for (int64_t row = begin; row < end; ++row) {
    const int64_t first = row * args.cols;
    const T *const gy = args.gy + first, *const x = args.sum + first;
    const auto rstd = hn::Set(d, args.rstd[row]);
    ProductColumns<T> products{gy, x, args.weight, chunk.gweight, rstd, {}};
    for_columns<T>(0, args.cols, products);
    if (!wants_rows) continue;
    for (int64_t c = 0; draws && c < args.cols; c += kChunk)
      fill_keep_mask(args.dropout, first + c, std::min(kChunk, args.cols - c), drawn.data() + c / 8);
    const A slope = reduce_sum(d, products.product.lanes()) / static_cast<A>(args.cols);
    const GradientColumns<T, StoreGradients<T>> columns{
        gy,
        x,
        args.weight,
        rstd,
        hn::Set(d, slope),
        {shifted(args.gsum, first), shifted(args.gresidual, first), shifted(args.gx, first),
         args.accumulate_residual, args.accumulate_x, &args.dropout, draws ? drawn.data() : nullptr}};
    for_columns<T, Io>(0, args.cols, columns);
  }
  if (std::is_same_v<Io, NonTemporal<T>>) hwy::FlushStream();
}

template <class T>
void backward(const RMSNormChunk<T>& chunk, int64_t begin, int64_t end) {
  const kernels::RMSNormBackward<T>& args = chunk.args;
  if (may_stream(args.gx, args.accumulate_x, args) &&
      may_stream(args.gresidual, args.accumulate_residual, args))
    gradient_rows<NonTemporal<T>>(chunk, begin, end);
  else
    gradient_rows<Whole<T>>(chunk, begin, end);
}
HEED_TYPED(backward, RMSNormChunk)

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::cpu {
namespace {

HEED_EXPORT_TYPED(forward)
HEED_EXPORT_TYPED(backward)

}  // namespace

template <class T>
void rms_norm_forward(const kernels::RMSNormForward<T>& args) {
  const auto rows = HEED_SIMD_OF(T, forward);
  parallel_for(args.rows, rows_per_task(args.rows, args.cols),
               [&](int64_t begin, int64_t end) { rows(args, begin, end); });
}

template <class T>
void rms_norm_backward(const kernels::RMSNormBackward<T>& args) {
  using A = accumulator_t<T>;
  const auto rows = HEED_SIMD_OF(T, backward);
  ColumnSums<A> sums(args.rows, args.cols, args.gweight != nullptr);
  parallel_for(args.rows, sums.rows_per_chunk, [&](int64_t begin, int64_t end) {
    A* const gweight = sums.chunk(begin);
    if (gweight != nullptr) std::fill_n(gweight, sums.stride, A(0));
    rows({args, gweight}, begin, end);
  });
  sums.finish(args.gweight, args.accumulate_weight, nullptr, false);
}

#define HEED_INSTANTIATE(T)                                             \
  template void rms_norm_forward<T>(const kernels::RMSNormForward<T>&); \
  template void rms_norm_backward<T>(const kernels::RMSNormBackward<T>&);
HEED_INSTANTIATE(float)
HEED_INSTANTIATE(bfloat16)
HEED_INSTANTIATE(double)
#undef HEED_INSTANTIATE

}  // namespace heed::cpu
#endif
