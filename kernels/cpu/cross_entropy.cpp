#include <algorithm>
#include <cmath>

#include <heed/core/base/check.h>
#include <heed/core/base/divide.h>
#include <heed/core/base/parallel_for.h>
#include <heed/kernels/cpu/grain.h>
#include <heed/kernels/cpu/typed_export.h>
#include <heed/kernels/cpu/workspace.h>
#include <heed/kernels/cross_entropy.h>
#include <heed/kernels/wrong_index.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/kernels/cpu/cross_entropy.cpp"
#include <heed/kernels/cpu/simd.h>
// The -inl headers follow simd.h, which includes this file once per instruction set.
#include <heed/kernels/cpu/softmax-inl.h>

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

/// What the rows of a call have in common.
struct RowLoss {
  double weight, smoothing, uniform;  // uniform: the share of each class in the smoothed target
};

/// g = weight * (p - uniform) with the target's own weight * confidence taken off; p = exponentials / sum.
template <class T, class A = accumulator_t<T>>
HWY_INLINE void gradient_row(const A* exponentials, T* g, int64_t classes, int64_t target, double sum,
                             const RowLoss& loss) {
  const Tag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto scale = hn::Set(d, static_cast<A>(loss.weight / sum));
  const auto less = hn::Set(d, static_cast<A>(loss.weight * loss.uniform));
  const double p = static_cast<double>(exponentials[target]) / sum;
  int64_t i = 0;
  for (; i + lanes <= classes; i += lanes)
    store(hn::MulSub(hn::LoadU(d, exponentials + i), scale, less), d, g + i);
  if (i < classes)
    store_n(hn::MulSub(load_n(d, exponentials + i, classes - i), scale, less), d, g + i, classes - i);
  g[target] = T(static_cast<A>(loss.weight * (p - loss.uniform - (1 - loss.smoothing))));
}

/// Whole vectors, around the caches.
template <class T>
HWY_INLINE void stream_row(const T* from, T* to, int64_t n) {
  const Streaming<T> io;
  for (int64_t i = 0; i < n; i += static_cast<int64_t>(hn::Lanes(Tag<T>())))
    io.store(io.load(from + i), to + i);
}

/// The exponentials of the rows on their way are in `kept`, or in glogits where that is null; `streamed`:
/// floats go from there to glogits around the caches.
template <bool kGradient, bool kSmoothed, class T>
struct CrossEntropySteps {
  using A = accumulator_t<T>;
  const kernels::CrossEntropyForward<T> args;
  const RowLoss loss;
  A* const kept;
  const bool streamed;
  const int64_t at_once;
  A most[kMostRowsAtOnce];
  RowSums<A> sums[kMostRowsAtOnce];
  double total = 0;
  // Of the last rows, whose loss is log(product) - wanted: one logarithm for several sums of exponentials.
  double product = 1, wanted = 0;

  HWY_INLINE bool ignored(int64_t row) const { return args.targets[row] == args.ignore; }
  HWY_INLINE const T* x(int64_t row) const { return args.logits + row * args.classes; }
  HWY_INLINE T* g(int64_t row) const { return args.glogits + row * args.classes; }
  HWY_INLINE int64_t place(int64_t row) const { return row & (at_once - 1); }
  HWY_INLINE A* exponentials(int64_t row) const {
    if constexpr (!kGradient) return nullptr;
    return kept == nullptr ? reinterpret_cast<A*>(g(row)) : kept + place(row) * args.classes;
  }

  HWY_INLINE void find_maximum(int64_t row) {
    if (!ignored(row)) most[place(row)] = row_max(x(row), args.classes);
  }
  HWY_INLINE void find_sums(int64_t row) {
    if (ignored(row)) return;
    const int64_t at = place(row);
    constexpr int64_t kAsked = kGradient ? kAhead : 2 * kAhead;
    sums[at] = row_sums<kGradient, kSmoothed, kAsked>(x(row), exponentials(row), args.classes, most[at]);
  }
  HWY_INLINE void finish(int64_t row) {
    if (row % 16 == 0) add_last_rows();
    if (ignored(row)) {
      if constexpr (kGradient) std::fill_n(g(row), args.classes, T(A(0)));
      return;
    }
    const int64_t target = args.targets[row];
    const RowSums<A>& sum = sums[place(row)];
    const double own =
        static_cast<double>(static_cast<A>(x(row)[target])) - static_cast<double>(most[place(row)]);
    wanted += (1 - loss.smoothing) * own;
    if constexpr (kSmoothed) wanted += loss.uniform * static_cast<double>(sum.shifted);
    const double exponential_sum = static_cast<double>(sum.exponentials);
    product *= exponential_sum;  // each is less than 2^63
    if constexpr (kGradient && std::is_same_v<T, A>) {
      T* const to = streamed ? exponentials(row) : g(row);
      gradient_row(exponentials(row), to, args.classes, target, exponential_sum, loss);
      if (streamed) stream_row(to, g(row), args.classes);
    } else if constexpr (kGradient) {
      gradient_row(exponentials(row), g(row), args.classes, target, exponential_sum, loss);
    }
  }
  HWY_INLINE void add_last_rows() {
    total += std::log(product) - wanted;
    product = 1;
    wanted = 0;
  }
};

/// Rows begin … end - 1; returns their summed loss.
template <bool kGradient, bool kSmoothed, class T>
HWY_INLINE double cross_entropy_rows_by(const kernels::CrossEntropyForward<T>& args, int64_t begin,
                                        int64_t end, const RowLoss& loss, accumulator_t<T>* kept,
                                        bool streamed) {
  CrossEntropySteps<kGradient, kSmoothed, T> steps{
      args, loss, kept, streamed, rows_at_once(args.classes, streamed), {}, {}};
  for_rows_in_steps(begin, end, args.classes, streamed, steps);
  steps.add_last_rows();
  return steps.total;
}

template <bool kGradient, class T>
HWY_INLINE double cross_entropy_rows_of(const kernels::CrossEntropyForward<T>& args, int64_t begin,
                                        int64_t end, double weight) {
  using A = accumulator_t<T>;
  const RowLoss loss{weight, args.label_smoothing, args.label_smoothing / static_cast<double>(args.classes)};
  const bool streamed =
      kGradient && std::is_same_v<T, A> && streams(args.glogits, args.rows, args.classes, 2);
  // bfloat16 cannot hold the exponentials, and what is streamed should not be read again.
  const bool apart = kGradient && (streamed || !std::is_same_v<T, A>);
  Workspace<A> kept(apart ? rows_at_once(args.classes, streamed) * args.classes : 0);
  const double total =
      args.label_smoothing == 0
          ? cross_entropy_rows_by<kGradient, false>(args, begin, end, loss, kept.data(), streamed)
          : cross_entropy_rows_by<kGradient, true>(args, begin, end, loss, kept.data(), streamed);
  if (streamed) hwy::FlushStream();
  return total;
}

template <class T>
void cross_entropy_rows(const kernels::CrossEntropyForward<T>& args, int64_t begin, int64_t end,
                        double weight, double* loss) {
  *loss = args.glogits == nullptr ? cross_entropy_rows_of<false>(args, begin, end, weight)
                                  : cross_entropy_rows_of<true>(args, begin, end, weight);
}

#define HEED_ROWS(T, suffix)                                                                                \
  void cross_entropy_rows_##suffix(const kernels::CrossEntropyForward<T>& args, int64_t begin, int64_t end, \
                                   double weight, double* loss) {                                           \
    cross_entropy_rows(args, begin, end, weight, loss);                                                     \
  }
HEED_ROWS(float, f32)
HEED_ROWS(bfloat16, bf16)
HEED_ROWS(double, f64)
#undef HEED_ROWS

template <class T>
void scale_gradient(const kernels::CrossEntropyBackward<T>& args, int64_t begin, int64_t end) {
  const Tag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto scale = hn::Set(d, *args.gloss);
  for (int64_t i = begin; i < end; i += lanes) {
    auto value = hn::Mul(load_up_to(d, args.glogits + i, end - i), scale);
    if (args.accumulate) value = hn::Add(value, load_up_to(d, args.gx + i, end - i));
    store_up_to(value, d, args.gx + i, end - i);
  }
}
HEED_TYPED(scale_gradient, kernels::CrossEntropyBackward)

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::cpu {
namespace {

HEED_EXPORT_TYPED(cross_entropy_rows)
HEED_EXPORT_TYPED(scale_gradient)

/// The number of rows that are not ignored; IndexError if one of them has an impossible target.
template <class T>
int64_t count_targets(const kernels::CrossEntropyForward<T>& args) {
  int64_t counted = 0;
  for (int64_t r = 0; r < args.rows; ++r) {
    const int64_t target = args.targets[r];
    if (target == args.ignore) continue;
    kernels::check_index(kernels::IndexUse::cross_entropy_target, target, r, args.classes);
    ++counted;
  }
  return counted;
}

}  // namespace

template <class T>
void cross_entropy_forward(const kernels::CrossEntropyForward<T>& args) {
  const int64_t counted = count_targets(args);
  const double weight = args.mean && counted > 0 ? 1 / static_cast<double>(counted) : 1;
  const int64_t grain = rows_per_task(args.rows, args.classes);
  const int64_t tasks = ceil_divide(args.rows, grain);
  Workspace<double> memory(tasks);
  double* const losses = memory.data();
  const auto rows = HEED_SIMD_OF(T, cross_entropy_rows);
  parallel_for(args.rows, grain,
               [&](int64_t begin, int64_t end) { rows(args, begin, end, weight, losses + begin / grain); });
  double sum = 0;
  for (int64_t i = 0; i < tasks; ++i) sum += losses[i];
  *args.loss = static_cast<accumulator_t<T>>(sum * weight);
  *args.counted = counted;
}

template <class T>
void cross_entropy_backward(const kernels::CrossEntropyBackward<T>& args) {
  const auto elements = HEED_SIMD_OF(T, scale_gradient);
  parallel_for(args.count, elements_per_task(args.count),
               [&](int64_t begin, int64_t end) { elements(args, begin, end); });
}

#define HEED_INSTANTIATE(T)                                                       \
  template void cross_entropy_forward<T>(const kernels::CrossEntropyForward<T>&); \
  template void cross_entropy_backward<T>(const kernels::CrossEntropyBackward<T>&);
HEED_INSTANTIATE(float)
HEED_INSTANTIATE(bfloat16)
HEED_INSTANTIATE(double)
#undef HEED_INSTANTIATE

}  // namespace heed::cpu
#endif
