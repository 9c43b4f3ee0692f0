#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/kernels/cpu/residual_layer_norm.cpp"

#include <heed/core/base/parallel_for.h>
#include <heed/kernels/cpu/dropout_simd.h>
#include <heed/kernels/cpu/grain.h>
#include <heed/kernels/cpu/layer_norm_simd.h>
#include <heed/kernels/residual_layer_norm.h>

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

/// Elements whose random bits are drawn at a time: few, so that memory works meanwhile for what was asked for
/// before.
constexpr int64_t kChunk = 128;

/// Writes residual + dropout(x), also to `streamed` if it is not null, and sums it up as it was stored.
template <class T>
struct AddColumns {
  const T *residual, *x;
  T *out, *streamed;
  const Dropout* dropout;
  const uint8_t* kept;  // a bit a column; null where nothing is dropped
  RowSums<T> sums;

  template <int I, class Io>
  HWY_INLINE void step(int64_t c, Io io) {
    prefetch_ahead(x + c);
    prefetch_ahead(residual + c);
    auto v = io.load(x + c);
    if (kept != nullptr) v = apply_dropout(Tag<T>(), v, kept, c, *dropout);
    v = hn::Add(io.load(residual + c), v);
    io.store(v, out + c);
    if (streamed != nullptr) Streaming<T>().store(v, streamed + c);
    if constexpr (std::is_same_v<T, bfloat16>) v = io.load(out + c);
    sums.template add<I>(v);
  }
};

/// A group of rows at x, whose elements and their sizes are added up.
template <class Io, class T>
HWY_INLINE void finish_group(const kernels::ResidualLayerNormForward<T>& args, const T* x, int64_t row,
                             int64_t rows, int64_t group, GroupSums<T>& sum, GroupSums<T>& magnitude) {
  GroupStatistics<T> statistics;
  auto pivot = pivots_from<T>(sum, magnitude, rows, group, args.cols);
  find_statistics<false>(x, args.y + row * args.cols, pivot, rows, group, args.cols, args.eps, statistics);
  normalize_group<Io>(args, x, statistics, row, rows, kAhead);
}

/// `sums` holds a group of rows where they cannot be read again from args.sum, which is streamed; else null.
/// Takes its arguments by value: those of a reference would be read again after each byte of `kept`.
template <class Io, class T>
HWY_INLINE void forward_rows(const kernels::ResidualLayerNormForward<T> args, int64_t begin, int64_t end,
                             T* sums) {
  const int64_t group = rows_in_group<T>(args.cols);
  const bool drops = args.dropout.active();
  const int64_t kept_stride = kept_bytes(args.cols);
  Workspace<uint8_t> drawn(drops && args.kept == nullptr ? kept_stride : 0);
  GroupSums<T> sum, magnitude;
  for (int64_t row = begin; row < end; row += group) {
    const int64_t rows = std::min(group, end - row), at = row * args.cols;
    T* const sum_to = sums == nullptr ? args.sum + at : sums;
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t first = at + i * args.cols;
      uint8_t* const kept = args.kept != nullptr ? args.kept + (row + i) * kept_stride : drawn.data();
      T* const streamed = sums == nullptr ? nullptr : args.sum + first;
      AddColumns<T> columns{
          args.residual + first, args.x + first, sum_to + i * args.cols, streamed, &args.dropout, kept, {}};
      for (int64_t c = 0; c < args.cols; c += kChunk) {
        const int64_t n = std::min(kChunk, args.cols - c);
        if (drops) fill_kept(args.dropout, first + c, n, kept + c / 8);
        for_columns<T>(c, c + n, columns);
      }
      sum[i] = columns.sums.sum.lanes();
      magnitude[i] = columns.sums.magnitude.lanes();
    }
    finish_group<Io>(args, sum_to, row, rows, group, sum, magnitude);
  }
}

/// Without a residual: normalises what forward_rows stored to the same bits.
template <class T>
HWY_INLINE void normalize_rows(const kernels::ResidualLayerNormForward<T>& args, int64_t begin, int64_t end) {
  const int64_t group = rows_in_group<T>(args.cols);
  GroupSums<T> sum, magnitude;
  for (int64_t row = begin; row < end; row += group) {
    const int64_t rows = std::min(group, end - row);
    const T* const x = args.x + row * args.cols;
    sum_rows(x, rows, args.cols, args.cols, sum, magnitude);
    finish_group<Whole<T>>(args, x, row, rows, group, sum, magnitude);
  }
}

template <class T>
void forward(const kernels::ResidualLayerNormForward<T>& args, int64_t begin, int64_t end) {
  if (args.residual == nullptr) return normalize_rows(args, begin, end);
  if (!streams(args.y, args.rows, args.cols, 4) || !streams(args.sum, args.rows, args.cols, 4))
    return forward_rows<Whole<T>>(args, begin, end, static_cast<T*>(nullptr));
  Workspace<T> sums(rows_in_group<T>(args.cols) * args.cols);
  forward_rows<Streaming<T>>(args, begin, end, sums.data());
  hwy::FlushStream();
}

/// Hands the gradient of the sum on to residual and x.
template <class T>
struct StoreGradients {
  const T* gsum;
  T *gresidual, *gx;
  bool accumulate_residual, accumulate_x;
  const Dropout* dropout;
  const uint8_t* kept;  // a bit a column; null where nothing is dropped

  template <class Io>
  HWY_INLINE void operator()(int64_t c, Vec<Tag<T>> v, Io io) const {
    if (gsum != nullptr) v = hn::Add(io.load(gsum + c), v);
    if (gresidual != nullptr)
      io.store(accumulate_residual ? hn::Add(io.load(gresidual + c), v) : v, gresidual + c);
    if (gx != nullptr) {
      if (kept != nullptr) v = apply_dropout(Tag<T>(), v, kept, c, *dropout);
      io.store(accumulate_x ? hn::Add(io.load(gx + c), v) : v, gx + c);
    }
  }
};

template <class T>
HWY_INLINE T* shifted(T* p, int64_t by) {
  return p == nullptr ? nullptr : p + by;
}

template <class Io, class T, class A = accumulator_t<T>>
HWY_INLINE void backward_rows(const kernels::ResidualLayerNormBackward<T>& args, int64_t begin, int64_t end,
                              A* gweight, A* gbias) {
  const int64_t group = rows_in_group<T>(args.cols);
  const bool draws = args.dropout.active() && args.gx != nullptr && args.kept == nullptr;
  Workspace<uint8_t> drawn(draws ? kept_bytes(args.cols) : 0);
  GroupGradient<T> gradient;
  for (int64_t row = begin; row < end; row += group) {
    const int64_t rows = std::min(group, end - row), at = row * args.cols;
    find_gradient(args.gy + at, args.sum + at, args.weight, args.mean + row, args.rstd + row, rows, group,
                  args.cols, gradient);
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t first = at + i * args.cols;
      StoreGradients<T> emit{
          shifted(args.gsum, first),
          shifted(args.gresidual, first),
          shifted(args.gx, first),
          args.accumulate_residual,
          args.accumulate_x,
          &args.dropout,
          args.kept != nullptr ? args.kept + (row + i) * kept_bytes(args.cols) : drawn.data()};
      BackwardColumns<T, StoreGradients<T>> columns(args.gy + first, args.sum + first, args.weight, gradient,
                                                    i, gweight, gbias, emit);
      for (int64_t c = 0; c < args.cols; c += kChunk) {
        const int64_t n = std::min(kChunk, args.cols - c);
        if (draws) fill_kept(args.dropout, first + c, n, drawn.data() + c / 8);
        for_columns<T, Io>(c, c + n, columns);
      }
    }
  }
}

/// Whether a gradient, if it is wanted, may be streamed.
template <class T>
HWY_INLINE bool may_stream(const T* gradient, bool accumulate,
                           const kernels::ResidualLayerNormBackward<T>& args) {
  return gradient == nullptr || (!accumulate && streams(gradient, args.rows, args.cols, 4));
}

template <class T, class A = accumulator_t<T>>
void backward(const kernels::ResidualLayerNormBackward<T>& args, int64_t begin, int64_t end, A* gweight,
              A* gbias) {
  if (!may_stream(args.gx, args.accumulate_x, args) ||
      !may_stream(args.gresidual, args.accumulate_residual, args))
    return backward_rows<Whole<T>>(args, begin, end, gweight, gbias);
  backward_rows<Streaming<T>>(args, begin, end, gweight, gbias);
  hwy::FlushStream();
}

#define HEED_DEFINE(T, name)                                                                          \
  void forward_##name(const kernels::ResidualLayerNormForward<T>& args, int64_t begin, int64_t end) { \
    forward(args, begin, end);                                                                        \
  }                                                                                                   \
  void backward_##name(const kernels::ResidualLayerNormBackward<T>& args, int64_t begin, int64_t end, \
                       accumulator_t<T>* gweight, accumulator_t<T>* gbias) {                          \
    backward(args, begin, end, gweight, gbias);                                                       \
  }
HEED_DEFINE(float, f32)
HEED_DEFINE(bfloat16, bf16)
HEED_DEFINE(double, f64)
#undef HEED_DEFINE

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::cpu {
namespace {

#define HEED_EXPORT(T, name)                                                                       \
  HWY_EXPORT(forward_##name);                                                                      \
  HWY_EXPORT(backward_##name);                                                                     \
  auto rows_for(const kernels::ResidualLayerNormForward<T>&) { return HEED_SIMD(forward_##name); } \
  auto rows_for(const kernels::ResidualLayerNormBackward<T>&) { return HEED_SIMD(backward_##name); }
HEED_EXPORT(float, f32)
HEED_EXPORT(bfloat16, bf16)
HEED_EXPORT(double, f64)
#undef HEED_EXPORT

}  // namespace

int64_t residual_layer_norm_kept_size(int64_t rows, int64_t cols, const Dropout& dropout) {
  return dropout.active() ? rows * kept_bytes(cols) : 0;
}

template <class T>
void residual_layer_norm_forward(const kernels::ResidualLayerNormForward<T>& args) {
  const auto rows = rows_for(args);
  parallel_for(args.rows, rows_per_task(args.rows, args.cols),
               [&](int64_t begin, int64_t end) { rows(args, begin, end); });
}

template <class T>
void residual_layer_norm_backward(const kernels::ResidualLayerNormBackward<T>& args) {
  const auto rows = rows_for(args);
  for_row_chunks<T>(args, [&](int64_t begin, int64_t end, accumulator_t<T>* gweight,
                              accumulator_t<T>* gbias) { rows(args, begin, end, gweight, gbias); });
}

#define HEED_INSTANTIATE(T)                                                                  \
  template void residual_layer_norm_forward<T>(const kernels::ResidualLayerNormForward<T>&); \
  template void residual_layer_norm_backward<T>(const kernels::ResidualLayerNormBackward<T>&);
HEED_INSTANTIATE(float)
HEED_INSTANTIATE(bfloat16)
HEED_INSTANTIATE(double)
#undef HEED_INSTANTIATE

}  // namespace heed::cpu
#endif
