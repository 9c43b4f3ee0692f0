#include <algorithm>
#include <cmath>

#include <heed/core/base/check.h>
#include <heed/core/base/int_math.h>
#include <heed/core/base/threads/parallel_for.h>
#include <heed/kernels/cpu/simd/typed_export.h>
#include <heed/kernels/cpu/tasks/grain.h>
#include <heed/kernels/cpu/tasks/workspace.h>
#include <heed/kernels/cross_entropy.h>
#include <heed/kernels/wrong_index.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/kernels/cpu/cross_entropy.cpp"
#include <heed/kernels/cpu/simd/simd.h>
// The -inl headers follow simd.h, which includes this file once per instruction set.
#include <heed/kernels/cpu/softmax-inl.h>

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

/// What the rows of a call have in common.
struct RowLoss {
  double weight, smoothing, uniform;  // uniform: the share of each class in the smoothed target
};

/// g = weight * (p - uniform), where p = exponentials / their sum, and `own` at the target.
template <class T>
struct Gradient {
  const accumulator_t<T>* exponentials;
  T* g;
  Vec<Tag<T>> scale, less;
  int64_t target;
  accumulator_t<T> own;

  template <int, class Io>
  HWY_INLINE void step(int64_t i, Io io) const {
    const Tag<T> d;
    auto v = hn::MulSub(io.load(exponentials + i), scale, less);
    const int64_t lane = target - i;
    if (HWY_LIKELY(lane < 0 || lane >= static_cast<int64_t>(hn::Lanes(d)))) return io.store(v, g + i);
    // Not stored on its own afterwards: what then loads its vector would wait for all stores before.
    const hn::RebindToSigned<Tag<T>> di;
    const auto is_target = hn::Eq(hn::Iota(di, 0), hn::Set(di, static_cast<hn::TFromD<decltype(di)>>(lane)));
    v = hn::IfThenElse(hn::RebindMask(d, is_target), hn::Set(d, own), v);
    io.store(v, g + i);
  }
};

/// The sums of a row that is only read, so that the prefetch may go farther ahead. A function of its own:
/// inlined, it lacks registers and takes up to 1.3 times as long.
template <bool kSmoothed, class T, class A = accumulator_t<T>>
HWY_NOINLINE RowSums<A> sums_apart(const T* x, int64_t n, A most) {
  NoPipeline nothing;
  return row_sums<Exponentials::dropped, kSmoothed, 2 * kAhead>(x, static_cast<A*>(nullptr), n, most,
                                                                nothing);
}

/// The exponentials of the rows on their way are in `kept`, or in glogits where that is null.
template <bool kGradient, bool kSmoothed, class Io, class T>
struct CrossEntropySteps {
  using A = accumulator_t<T>;
  static constexpr Exponentials kTo = kGradient ? kPlace<Io, T> : Exponentials::dropped;
  const kernels::CrossEntropyForward<T> args;
  const RowLoss loss;
  A* const kept;
  const int64_t at_once;
  A most[kMaxRowsAtOnce];
  RowSums<A> sums[kMaxRowsAtOnce];
  double total = 0;
  // Of the last rows, whose loss is log(product) - wanted: one logarithm for several sums of exponentials.
  double product = 1, wanted = 0;

  HWY_INLINE bool ignored(int64_t row) const { return args.targets[row] == args.ignore; }
  HWY_INLINE const T* x(int64_t row) const { return args.logits + row * args.row_stride(); }
  HWY_INLINE T* g(int64_t row) const { return args.glogits + row * args.row_stride(); }
  HWY_INLINE int64_t place(int64_t row) const { return row & (at_once - 1); }
  HWY_INLINE A* exponentials(int64_t row) const {
    if constexpr (!kGradient) return nullptr;
    return kept == nullptr ? reinterpret_cast<A*>(g(row)) : kept + place(row) * args.classes;
  }

  HWY_INLINE void find_maximum(int64_t row) {
    if (!ignored(row)) most[place(row)] = row_max(x(row), args.classes);
  }
  template <class Pipelined>
  HWY_INLINE void find_sums(int64_t row, Pipelined& pipelined) {
    const int64_t at = place(row);
    if (ignored(row)) {
      if constexpr (kGradient) std::fill_n(g(row), args.classes, T(A(0)));
      return;
    }
    if constexpr (kGradient)
      sums[at] = row_sums<kTo, kSmoothed>(x(row), exponentials(row), args.classes, most[at], pipelined);
    else
      sums[at] = sums_apart<kSmoothed>(x(row), args.classes, most[at]);
  }
  HWY_INLINE auto last_pass(int64_t row) {
    if (row % 16 == 0) add_last_rows();
    if (!ignored(row)) add_loss(row);
    if constexpr (kGradient) {
      return PipelinedPass<T, Io, Gradient<T>>{gradient(row), ignored(row) ? 0 : args.classes};
    } else {
      return NoPipeline();
    }
  }
  HWY_INLINE void add_loss(int64_t row) {
    const RowSums<A>& sum = sums[place(row)];
    const double own = static_cast<double>(static_cast<A>(x(row)[args.targets[row]])) -
                       static_cast<double>(most[place(row)]);
    wanted += (1 - loss.smoothing) * own;
    if constexpr (kSmoothed) wanted += loss.uniform * static_cast<double>(sum.shifted);
    product *= static_cast<double>(sum.exponentials);  // each is less than 2^63
  }
  HWY_INLINE Gradient<T> gradient(int64_t row) const {
    const Tag<T> d;
    if (ignored(row)) return {nullptr, nullptr, hn::Zero(d), hn::Zero(d), 0, 0};
    const int64_t target = args.targets[row];
    const double sum = static_cast<double>(sums[place(row)].exponentials);
    const double p = static_cast<double>(exponentials(row)[target]) / sum;
    return {exponentials(row),
            g(row),
            hn::Set(d, static_cast<A>(loss.weight / sum)),
            hn::Set(d, static_cast<A>(loss.weight * loss.uniform)),
            target,
            static_cast<A>(loss.weight * (p - loss.uniform - (1 - loss.smoothing)))};
  }
  HWY_INLINE void add_last_rows() {
    total += std::log(product) - wanted;
    product = 1;
    wanted = 0;
  }
};

/// Rows begin … end - 1; returns their summed loss.
template <bool kGradient, bool kSmoothed, class Io, class T>
HWY_INLINE double cross_entropy_rows_by(const kernels::CrossEntropyForward<T>& args, int64_t begin,
                                        int64_t end, const RowLoss& loss) {
  using Steps = CrossEntropySteps<kGradient, kSmoothed, Io, T>;
  constexpr bool nontemporal = std::is_same_v<Io, NonTemporal<T>>;
  const int64_t at_once = rows_at_once(args.classes);
  Workspace<accumulator_t<T>> kept(Steps::kTo == Exponentials::kept ? at_once * args.classes : 0);
  Steps steps{args, loss, kept.data(), at_once, {}, {}};
  for_rows_in_steps(begin, end, args.classes, nontemporal, steps);
  steps.add_last_rows();
  if (nontemporal) hwy::FlushStream();
  return steps.total;
}

template <bool kGradient, class Io, class T>
HWY_INLINE double cross_entropy_rows_of(const kernels::CrossEntropyForward<T>& args, int64_t begin,
                                        int64_t end, double weight) {
  const RowLoss loss{weight, args.label_smoothing, args.label_smoothing / static_cast<double>(args.classes)};
  return args.label_smoothing == 0 ? cross_entropy_rows_by<kGradient, false, Io>(args, begin, end, loss)
                                   : cross_entropy_rows_by<kGradient, true, Io>(args, begin, end, loss);
}

template <class T>
void cross_entropy_rows(const kernels::CrossEntropyForward<T>& args, int64_t begin, int64_t end,
                        double weight, double* loss) {
  if (args.glogits == nullptr)
    *loss = cross_entropy_rows_of<false, Whole<T>>(args, begin, end, weight);
  else if (uses_nontemporal_stores(args.glogits, args.rows, args.classes, 2))
    *loss = cross_entropy_rows_of<true, NonTemporal<T>>(args, begin, end, weight);
  else
    *loss = cross_entropy_rows_of<true, Whole<T>>(args, begin, end, weight);
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
  const bool apart = args.counted_targets != nullptr;
  const int64_t* const targets = apart ? args.counted_targets : args.targets;
  int64_t counted = 0;
  for (int64_t r = 0; r < (apart ? args.counted_rows : args.rows); ++r) {
    const int64_t target = targets[r];
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
