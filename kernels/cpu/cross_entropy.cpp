#include <algorithm>
#include <cmath>

#include <heed/core/base/check.h>
#include <heed/core/base/parallel_for.h>
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

/// glogits = weight * (p - uniform) with the target's own weight * confidence taken off; p = exp(x - most) /
/// sum.
template <class T>
HWY_INLINE void gradient_row(const T* x, T* g, int64_t classes, int64_t target, accumulator_t<T> most,
                             double sum, double weight, double smoothing) {
  using A = accumulator_t<T>;
  const Tag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const double uniform = smoothing / static_cast<double>(classes);
  const auto scale = hn::Set(d, static_cast<A>(weight / sum));
  const auto less = hn::Set(d, static_cast<A>(weight * uniform));
  const auto shift = hn::Set(d, most);
  // g of float and double rows holds the exponentials already.
  const A at_target = std::is_same_v<T, A> ? static_cast<A>(g[target])
                                           : static_cast<A>(std::exp(static_cast<A>(x[target]) - most));
  for (int64_t i = 0; i < classes; i += lanes) {
    const int64_t count = classes - i;
    auto e = hn::Zero(d);
    if constexpr (std::is_same_v<T, A>)
      e = load_up_to(d, g + i, count);
    else
      e = exp_fast(d, hn::Sub(load_up_to(d, x + i, count), shift));
    store_up_to(hn::MulSub(e, scale, less), d, g + i, count);
  }
  g[target] = T(static_cast<A>(weight * (static_cast<double>(at_target) / sum - uniform - (1 - smoothing))));
}

/// The loss of one row; its gradient too if g is not null.
template <class T>
HWY_INLINE double cross_entropy_row(const T* x, T* g, int64_t classes, int64_t target, double weight,
                                    double smoothing) {
  using A = accumulator_t<T>;
  const A most = row_max(x, classes);
  RowSums sums;
  if constexpr (std::is_same_v<T, A>) {
    sums = g != nullptr ? row_sums<true>(x, g, classes, most)
                        : row_sums<false>(x, static_cast<A*>(nullptr), classes, most);
  } else {
    sums = row_sums<false>(x, static_cast<A*>(nullptr), classes, most);
  }
  const double own = static_cast<double>(static_cast<A>(x[target])) - static_cast<double>(most);
  if (g != nullptr) gradient_row(x, g, classes, target, most, sums.exponentials, weight, smoothing);
  const double loss = std::log(sums.exponentials) - (1 - smoothing) * own;
  return smoothing == 0 ? loss : loss - smoothing / static_cast<double>(classes) * sums.shifted;
}

/// Rows begin … end - 1; their summed loss goes to *loss.
template <class T>
void cross_entropy_rows(const kernels::CrossEntropyForward<T>& args, int64_t begin, int64_t end,
                        double weight, double* loss) {
  double sum = 0;
  for (int64_t r = begin; r < end; ++r) {
    T* g = args.glogits == nullptr ? nullptr : args.glogits + r * args.classes;
    if (args.targets[r] == args.ignore) {
      if (g != nullptr) std::fill_n(g, args.classes, T(accumulator_t<T>(0)));
      continue;
    }
    sum += cross_entropy_row(args.logits + r * args.classes, g, args.classes, args.targets[r], weight,
                             args.label_smoothing);
  }
  *loss = sum;
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
  const int64_t grain = std::max<int64_t>(1, 16384 / std::max<int64_t>(1, args.classes));
  const int64_t tasks = (args.rows + grain - 1) / grain;
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
  parallel_for(args.count, 16384, [&](int64_t begin, int64_t end) { elements(args, begin, end); });
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
