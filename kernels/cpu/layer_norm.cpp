#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/kernels/cpu/layer_norm.cpp"

#include <heed/core/base/parallel_for.h>
#include <heed/kernels/cpu/grain.h>
#include <heed/kernels/cpu/layer_norm_simd.h>
#include <heed/kernels/layer_norm.h>

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

/// Columns from which the first pivot of a row is taken, and up to which rows are taken a few at a time.
constexpr int64_t kSampled = 32, kMiddle = 1024;

template <class Io, class T>
HWY_INLINE void forward_rows(const kernels::LayerNormForward<T>& args, int64_t begin, int64_t end) {
  const int64_t group = rows_in_group<T>(args.cols, kMiddle), sampled = std::min(args.cols, kSampled);
  const int64_t ahead = std::max(kAhead, group * args.cols * static_cast<int64_t>(sizeof(T)));
  GroupStatistics<T> statistics;
  GroupSums<T> sum, magnitude;
  for (int64_t row = begin; row < end; row += group) {
    const int64_t rows = std::min(group, end - row);
    const T* const x = args.x + row * args.cols;
    sum_rows(x, rows, args.cols, sampled, sum, magnitude);
    auto pivot = pivots_from<T>(sum, magnitude, rows, group, sampled);
    bool found = false;
    for (int looks = 0; looks < 2 && !found; ++looks)
      found = find_statistics<!std::is_same_v<Io, Streaming<T>>>(x, args.y + row * args.cols, pivot, rows,
                                                                 group, args.cols, args.eps, statistics);
    normalize_group<Io>(args, x, statistics, row, rows, ahead);
  }
}

template <class T>
void forward(const kernels::LayerNormForward<T>& args, int64_t begin, int64_t end) {
  if (!streams(args.y, args.rows, args.cols, 2)) return forward_rows<Whole<T>>(args, begin, end);
  forward_rows<Streaming<T>>(args, begin, end);
  hwy::FlushStream();
}

template <class T>
struct StoreGradient {
  T* gx;
  bool accumulate;

  template <class Io>
  HWY_INLINE void operator()(int64_t c, Vec<Tag<T>> v, Io io) const {
    if (gx == nullptr) return;
    if (accumulate) v = hn::Add(io.load(gx + c), v);
    io.store(v, gx + c);
  }
};

template <class Io, class T, class A = accumulator_t<T>>
HWY_INLINE void backward_rows(const kernels::LayerNormBackward<T>& args, int64_t begin, int64_t end,
                              A* gweight, A* gbias) {
  const int64_t group = rows_in_group<T>(args.cols);
  GroupGradient<T> gradient;
  for (int64_t row = begin; row < end; row += group) {
    const int64_t rows = std::min(group, end - row), at = row * args.cols;
    find_gradient(args.gy + at, args.x + at, args.weight, args.mean + row, args.rstd + row, rows, group,
                  args.cols, gradient);
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t first = at + i * args.cols;
      const StoreGradient<T> emit{args.gx == nullptr ? nullptr : args.gx + first, args.accumulate_x};
      BackwardColumns<T, StoreGradient<T>> columns(args.gy + first, args.x + first, args.weight, gradient, i,
                                                   gweight, gbias, emit);
      for_columns<T, Io>(0, args.cols, columns);
    }
  }
}

template <class T, class A = accumulator_t<T>>
void backward(const kernels::LayerNormBackward<T>& args, int64_t begin, int64_t end, A* gweight, A* gbias) {
  if (args.accumulate_x || !streams(args.gx, args.rows, args.cols, 3))
    return backward_rows<Whole<T>>(args, begin, end, gweight, gbias);
  backward_rows<Streaming<T>>(args, begin, end, gweight, gbias);
  hwy::FlushStream();
}

#define HEED_DEFINE(T, name)                                                                  \
  void forward_##name(const kernels::LayerNormForward<T>& args, int64_t begin, int64_t end) { \
    forward(args, begin, end);                                                                \
  }                                                                                           \
  void backward_##name(const kernels::LayerNormBackward<T>& args, int64_t begin, int64_t end, \
                       accumulator_t<T>* gweight, accumulator_t<T>* gbias) {                  \
    backward(args, begin, end, gweight, gbias);                                               \
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

#define HEED_EXPORT(T, name)                                                               \
  HWY_EXPORT(forward_##name);                                                              \
  HWY_EXPORT(backward_##name);                                                             \
  auto rows_for(const kernels::LayerNormForward<T>&) { return HEED_SIMD(forward_##name); } \
  auto rows_for(const kernels::LayerNormBackward<T>&) { return HEED_SIMD(backward_##name); }
HEED_EXPORT(float, f32)
HEED_EXPORT(bfloat16, bf16)
HEED_EXPORT(double, f64)
#undef HEED_EXPORT

}  // namespace

template <class T>
void layer_norm_forward(const kernels::LayerNormForward<T>& args) {
  const auto rows = rows_for(args);
  parallel_for(args.rows, rows_per_task(args.rows, args.cols),
               [&](int64_t begin, int64_t end) { rows(args, begin, end); });
}

template <class T>
void layer_norm_backward(const kernels::LayerNormBackward<T>& args) {
  const auto rows = rows_for(args);
  for_row_chunks<T>(args, [&](int64_t begin, int64_t end, accumulator_t<T>* gweight,
                              accumulator_t<T>* gbias) { rows(args, begin, end, gweight, gbias); });
}

#define HEED_INSTANTIATE(T)                                                 \
  template void layer_norm_forward<T>(const kernels::LayerNormForward<T>&); \
  template void layer_norm_backward<T>(const kernels::LayerNormBackward<T>&);
HEED_INSTANTIATE(float)
HEED_INSTANTIATE(bfloat16)
HEED_INSTANTIATE(double)
#undef HEED_INSTANTIATE

}  // namespace heed::cpu
#endif
