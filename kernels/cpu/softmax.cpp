#include <algorithm>
#include <cmath>
#include <type_traits>

#include <heed/core/base/parallel_for.h>
#include <heed/kernels/cpu/grain.h>
#include <heed/kernels/cpu/typed_export.h>
#include <heed/kernels/cpu/workspace.h>
#include <heed/kernels/softmax.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/kernels/cpu/softmax.cpp"
#include <heed/kernels/cpu/simd.h>
// The -inl headers follow simd.h, which includes this file once per instruction set.
#include <heed/kernels/cpu/softmax-inl.h>

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

/// y = exponentials / their sum.
template <class T>
struct Quotients {
  const accumulator_t<T>* exponentials;
  Vec<Tag<T>> inverse_sum;

  template <template <class> class Io, class... N>
  HWY_INLINE Vec<Tag<T>> at(int64_t i, N... n) const {
    return hn::Mul(Io<accumulator_t<T>>{n...}.load(exponentials + i), inverse_sum);
  }
};

/// A logarithm and what rounding took from it, which would move a whole row.
template <class A>
struct LogSum {
  A value, rest;
};

template <class A>
HWY_INLINE LogSum<A> log_of(A sum) {
  const double exact = std::log(static_cast<double>(sum));
  const A value = static_cast<A>(exact);
  return {value, static_cast<A>(exact - static_cast<double>(value))};
}

/// y = x - most - log sum.
template <class T>
struct Logarithms {
  const T* x;
  Vec<Tag<T>> most, log, rest;

  template <template <class> class Io, class... N>
  HWY_INLINE Vec<Tag<T>> at(int64_t i, N... n) const {
    return hn::Sub(hn::Sub(hn::Sub(Io<T>{n...}.load(x + i), most), rest), log);
  }
};

/// The exponentials of the rows on their way are in `kept`, or in y where that is null.
template <bool kLog, class Io, class T>
struct SoftmaxSteps {
  using A = accumulator_t<T>;
  using Scale = std::conditional_t<kLog, LogSum<A>, A>;  // or the sum's inverse
  static constexpr Exponentials kTo = kLog ? Exponentials::dropped : kPlace<Io, T>;
  const kernels::SoftmaxForward<T> args;
  A* const kept;
  const int64_t at_once;
  A most[kMostRowsAtOnce];
  Scale scale[kMostRowsAtOnce];

  HWY_INLINE const T* x(int64_t row) const { return args.x + row * args.cols; }
  HWY_INLINE T* y(int64_t row) const { return args.y + row * args.cols; }
  HWY_INLINE int64_t place(int64_t row) const { return row & (at_once - 1); }
  HWY_INLINE A* exponentials(int64_t row) const {
    return kept == nullptr ? reinterpret_cast<A*>(y(row)) : kept + place(row) * args.cols;
  }

  /// 0 for a row of nothing but -inf: it stays so, and its exponentials are 0.
  HWY_INLINE void find_maximum(int64_t row) {
    const A found = row_max(x(row), args.cols);
    most[place(row)] = row_is_empty(x(row), args.cols, found) ? A(0) : found;
  }
  template <class Beside>
  HWY_INLINE void find_sums(int64_t row, Beside& beside) {
    const int64_t at = place(row);
    A* const to = kLog ? nullptr : exponentials(row);
    const A sum = row_sums<kTo, false>(x(row), to, args.cols, most[at], beside).exponentials;
    if constexpr (kLog)
      scale[at] = sum == 0 ? LogSum<A>{0, 0} : log_of(sum);
    else
      scale[at] = sum == 0 ? A(0) : 1 / sum;
  }
  HWY_INLINE auto last_pass(int64_t row) const {
    const Tag<T> d;
    const int64_t at = place(row);
    if constexpr (kLog) {
      const Logarithms<T> make{x(row), hn::Set(d, most[at]), hn::Set(d, scale[at].value),
                               hn::Set(d, scale[at].rest)};
      return LastPass<Io, T, Logarithms<T>>{make, y(row), args.cols};
    } else {
      const Quotients<T> make{exponentials(row), hn::Set(d, scale[at])};
      return LastPass<Io, T, Quotients<T>>{make, y(row), args.cols};
    }
  }
};

template <bool kLog, class Io, class T>
HWY_INLINE void softmax_rows_by(const kernels::SoftmaxForward<T>& args, int64_t begin, int64_t end) {
  using Steps = SoftmaxSteps<kLog, Io, T>;
  constexpr bool streamed = std::is_same_v<Io, Streaming<T>>;
  const int64_t at_once = rows_at_once(args.cols);
  Workspace<accumulator_t<T>> kept(Steps::kTo == Exponentials::kept ? at_once * args.cols : 0);
  Steps steps{args, kept.data(), at_once, {}, {}};
  for_rows_in_steps(begin, end, args.cols, streamed, steps);
  if (streamed) hwy::FlushStream();
}

template <bool kLog, class T>
HWY_INLINE void softmax_rows_of(const kernels::SoftmaxForward<T>& args, int64_t begin, int64_t end) {
  if (streams(args.y, args.rows, args.cols, 2))
    softmax_rows_by<kLog, Streaming<T>>(args, begin, end);
  else
    softmax_rows_by<kLog, Whole<T>>(args, begin, end);
}

template <class T>
void softmax_rows(const kernels::SoftmaxForward<T>& args, int64_t begin, int64_t end) {
  if (args.log)
    softmax_rows_of<true>(args, begin, end);
  else
    softmax_rows_of<false>(args, begin, end);
}
HEED_TYPED(softmax_rows, kernels::SoftmaxForward)

template <class D>
HWY_INLINE Vec<D> add_gradient(D, Vec<D> y, Vec<D> gy, Vec<D> sum, bool log) {
  return log ? hn::Add(sum, gy) : hn::MulAdd(gy, y, sum);
}

/// Σ gy * y (softmax) or Σ gy (log-softmax).
template <class T>
HWY_INLINE accumulator_t<T> gradient_sum(const T* y, const T* gy, int64_t n, bool log) {
  const Tag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t most = 128 * lanes;  // elements that are summed in T, before rounding shows
  double sum = 0;
  for (int64_t begin = 0; begin < n; begin += most) {
    const int64_t end = std::min(begin + most, n);
    auto even = hn::Zero(d), odd = even;
    int64_t i = begin;
    for (; i + 2 * lanes <= end; i += 2 * lanes) {
      even = add_gradient(d, load(d, y + i), load(d, gy + i), even, log);
      odd = add_gradient(d, load(d, y + i + lanes), load(d, gy + i + lanes), odd, log);
    }
    for (; i < end; i += lanes)
      even = add_gradient(d, load_up_to(d, y + i, end - i), load_up_to(d, gy + i, end - i), even, log);
    sum += static_cast<double>(reduce_sum(d, hn::Add(even, odd)));
  }
  return static_cast<accumulator_t<T>>(sum);
}

/// The gradient of a vector of x; `sum` is gradient_sum().
template <class D>
HWY_INLINE Vec<D> softmax_gradient(D d, Vec<D> y, Vec<D> gy, Vec<D> sum, bool log) {
  return log ? hn::NegMulAdd(exp(d, y), sum, gy) : hn::Mul(y, hn::Sub(gy, sum));
}

template <class Io, class T>
HWY_INLINE void softmax_backward_rows_by(const kernels::SoftmaxBackward<T>& args, int64_t begin,
                                         int64_t end) {
  const Tag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), n = args.cols;
  const bool log = args.log, accumulate = args.accumulate;  // here no store can change them
  for (int64_t r = begin; r < end; ++r) {
    const T *y = args.y + r * n, *gy = args.gy + r * n;
    T* gx = args.gx + r * n;
    if (log && row_is_empty(y, n, row_max(y, n))) {  // it stays -inf whatever x does
      if (!accumulate) std::fill_n(gx, n, T(accumulator_t<T>(0)));
      continue;
    }
    const auto sum = hn::Set(d, gradient_sum(y, gy, n, log));
    int64_t i = 0;
    for (; i + lanes <= n; i += lanes) {
      prefetch_ahead(y + i);
      prefetch_ahead(gy + i);
      auto value = softmax_gradient(d, load(d, y + i), load(d, gy + i), sum, log);
      if (accumulate) value = hn::Add(value, load(d, gx + i));
      Io().store(value, gx + i);
    }
    if (i == n) continue;
    auto value = softmax_gradient(d, load_n(d, y + i, n - i), load_n(d, gy + i, n - i), sum, log);
    if (accumulate) value = hn::Add(value, load_n(d, gx + i, n - i));
    store_n(value, d, gx + i, n - i);
  }
}

template <class T>
void softmax_backward_rows(const kernels::SoftmaxBackward<T>& args, int64_t begin, int64_t end) {
  if (args.accumulate || !streams(args.gx, args.rows, args.cols, 3))
    return softmax_backward_rows_by<Whole<T>>(args, begin, end);
  softmax_backward_rows_by<Streaming<T>>(args, begin, end);
  hwy::FlushStream();
}
HEED_TYPED(softmax_backward_rows, kernels::SoftmaxBackward)

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::cpu {
namespace {

HEED_EXPORT_TYPED(softmax_rows)
HEED_EXPORT_TYPED(softmax_backward_rows)

}  // namespace

template <class T>
void softmax_forward(const kernels::SoftmaxForward<T>& args) {
  if (args.cols == 0) return;
  const auto rows = HEED_SIMD_OF(T, softmax_rows);
  parallel_for(args.rows, rows_per_task(args.rows, args.cols),
               [&](int64_t begin, int64_t end) { rows(args, begin, end); });
}

template <class T>
void softmax_backward(const kernels::SoftmaxBackward<T>& args) {
  if (args.cols == 0) return;
  const auto rows = HEED_SIMD_OF(T, softmax_backward_rows);
  parallel_for(args.rows, rows_per_task(args.rows, args.cols),
               [&](int64_t begin, int64_t end) { rows(args, begin, end); });
}

#define HEED_INSTANTIATE(T)                                            \
  template void softmax_forward<T>(const kernels::SoftmaxForward<T>&); \
  template void softmax_backward<T>(const kernels::SoftmaxBackward<T>&);
HEED_INSTANTIATE(float)
HEED_INSTANTIATE(bfloat16)
HEED_INSTANTIATE(double)
#undef HEED_INSTANTIATE

}  // namespace heed::cpu
#endif
