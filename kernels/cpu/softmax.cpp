#include <algorithm>
#include <cmath>
#include <type_traits>

#include <heed/core/base/threads/parallel_for.h>
#include <heed/kernels/cpu/simd/typed_export.h>
#include <heed/kernels/cpu/tasks/grain.h>
#include <heed/kernels/cpu/tasks/workspace.h>
#include <heed/kernels/softmax.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/kernels/cpu/softmax.cpp"
#include <heed/kernels/cpu/simd/simd.h>
// The -inl headers follow simd.h, which includes this file once per instruction set.
#include <heed/kernels/cpu/softmax-inl.h>

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

/// y = exponentials / their sum.
template <class T>
struct Quotients {
  const accumulator_t<T>* exponentials;
  T* y;
  Vec<Tag<T>> inverse_sum;

  template <int, class Io>
  HWY_INLINE void step(int64_t i, Io io) const {
    io.store(hn::Mul(io.load(exponentials + i), inverse_sum), y + i);
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
  T* y;
  Vec<Tag<T>> most, log, rest;

  template <int, class Io>
  HWY_INLINE void step(int64_t i, Io io) const {
    io.store(hn::Sub(hn::Sub(hn::Sub(io.load(x + i), most), rest), log), y + i);
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
  A most[kMaxRowsAtOnce];
  Scale scale[kMaxRowsAtOnce];

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
  template <class Pipelined>
  HWY_INLINE void find_sums(int64_t row, Pipelined& pipelined) {
    const int64_t at = place(row);
    A* const to = kLog ? nullptr : exponentials(row);
    const A sum = row_sums<kTo, false>(x(row), to, args.cols, most[at], pipelined).exponentials;
    if constexpr (kLog)
      scale[at] = sum == 0 ? LogSum<A>{0, 0} : log_of(sum);
    else
      scale[at] = sum == 0 ? A(0) : 1 / sum;
  }
  HWY_INLINE auto last_pass(int64_t row) const {
    const Tag<T> d;
    const int64_t at = place(row);
    if constexpr (kLog) {
      const Logarithms<T> columns{x(row), y(row), hn::Set(d, most[at]), hn::Set(d, scale[at].value),
                                  hn::Set(d, scale[at].rest)};
      return PipelinedPass<T, Io, Logarithms<T>>{columns, args.cols};
    } else {
      const Quotients<T> columns{exponentials(row), y(row), hn::Set(d, scale[at])};
      return PipelinedPass<T, Io, Quotients<T>>{columns, args.cols};
    }
  }
};

template <bool kLog, class Io, class T>
HWY_INLINE void softmax_rows_by(const kernels::SoftmaxForward<T>& args, int64_t begin, int64_t end) {
  using Steps = SoftmaxSteps<kLog, Io, T>;
  constexpr bool nontemporal = std::is_same_v<Io, NonTemporal<T>>;
  const int64_t at_once = rows_at_once(args.cols);
  Workspace<accumulator_t<T>> kept(Steps::kTo == Exponentials::kept ? at_once * args.cols : 0);
  Steps steps{args, kept.data(), at_once, {}, {}};
  for_rows_in_steps(begin, end, args.cols, nontemporal, steps);
  if (nontemporal) hwy::FlushStream();
}

template <bool kLog, class T>
HWY_INLINE void softmax_rows_of(const kernels::SoftmaxForward<T>& args, int64_t begin, int64_t end) {
  if (uses_nontemporal_stores(args.y, args.rows, args.cols, 2))
    softmax_rows_by<kLog, NonTemporal<T>>(args, begin, end);
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

template <bool kLog, class T>
struct GradientSum {
  const T *y, *gy;
  Vec<Tag<T>> part[2];

  template <int I, class Io>
  HWY_INLINE void step(int64_t i, Io io) {
    prefetch_ahead(gy + i);
    prefetch_ahead(y + i);
    if constexpr (kLog)
      part[I] = hn::Add(part[I], io.load(gy + i));
    else
      part[I] = hn::MulAdd(io.load(gy + i), io.load(y + i), part[I]);
  }
};

/// Σ gy * y (softmax) or Σ gy (log-softmax); `pipelined` is the last pass over another row.
template <bool kLog, class T, class Pipelined>
HWY_INLINE accumulator_t<T> gradient_sum(const T* y, const T* gy, int64_t n, Pipelined& pipelined) {
  const Tag<T> d;
  const int64_t most = 128 * static_cast<int64_t>(hn::Lanes(d));  // summed in T, before rounding shows
  double sum = 0;
  for (int64_t begin = 0; begin < n; begin += most) {
    GradientSum<kLog, T> columns{y, gy, {hn::Zero(d), hn::Zero(d)}};
    for_columns<T>(begin, std::min(begin + most, n), columns, pipelined);
    sum += static_cast<double>(reduce_sum(d, hn::Add(columns.part[0], columns.part[1])));
  }
  return static_cast<accumulator_t<T>>(sum);
}

/// gx = y * (gy - sum) (softmax) or gy - exp(y) * sum (log-softmax), where `sum` is gradient_sum().
template <bool kLog, class T>
struct SoftmaxGradient {
  const T *y, *gy;
  T* gx;
  Vec<Tag<T>> sum;
  bool accumulate;

  template <int, class Io>
  HWY_INLINE void step(int64_t i, Io io) const {
    auto v = io.load(gy + i);
    if constexpr (kLog)
      v = hn::NegMulAdd(exp(Tag<T>(), io.load(y + i)), sum, v);
    else
      v = hn::Mul(io.load(y + i), hn::Sub(v, sum));
    if (accumulate) v = hn::Add(v, io.load(gx + i));
    io.store(v, gx + i);
  }
};

template <bool kLog, class Io, class T>
struct SoftmaxBackwardSteps {
  using A = accumulator_t<T>;
  const kernels::SoftmaxBackward<T> args;
  const int64_t at_once;
  bool empty[kMaxRowsAtOnce];  // y is -inf and stays so whatever x does
  A sum[kMaxRowsAtOnce];

  HWY_INLINE const T* y(int64_t row) const { return args.y + row * args.cols; }
  HWY_INLINE const T* gy(int64_t row) const { return args.gy + row * args.cols; }
  HWY_INLINE T* gx(int64_t row) const { return args.gx + row * args.cols; }
  HWY_INLINE int64_t place(int64_t row) const { return row & (at_once - 1); }

  HWY_INLINE void find_maximum(int64_t row) {
    empty[place(row)] = kLog && row_is_empty(y(row), args.cols, row_max(y(row), args.cols));
  }
  template <class Pipelined>
  HWY_INLINE void find_sums(int64_t row, Pipelined& pipelined) {
    const int64_t at = place(row);
    if (kLog && empty[at]) {
      if (!args.accumulate) std::fill_n(gx(row), args.cols, T(A(0)));
      return;
    }
    sum[at] = gradient_sum<kLog>(y(row), gy(row), args.cols, pipelined);
  }
  HWY_INLINE auto last_pass(int64_t row) const {
    const int64_t at = place(row);
    const SoftmaxGradient<kLog, T> columns{y(row), gy(row), gx(row), hn::Set(Tag<T>(), sum[at]),
                                           args.accumulate};
    return PipelinedPass<T, Io, SoftmaxGradient<kLog, T>>{columns, kLog && empty[at] ? 0 : args.cols};
  }
};

template <bool kLog, class Io, class T>
HWY_INLINE void softmax_backward_rows_by(const kernels::SoftmaxBackward<T>& args, int64_t begin,
                                         int64_t end) {
  constexpr bool nontemporal = std::is_same_v<Io, NonTemporal<T>>;
  SoftmaxBackwardSteps<kLog, Io, T> steps{args, rows_at_once(args.cols), {}, {}};
  for_rows_in_steps(begin, end, args.cols, nontemporal, steps);
  if (nontemporal) hwy::FlushStream();
}

template <bool kLog, class T>
HWY_INLINE void softmax_backward_rows_of(const kernels::SoftmaxBackward<T>& args, int64_t begin,
                                         int64_t end) {
  if (!args.accumulate && uses_nontemporal_stores(args.gx, args.rows, args.cols, 3))
    softmax_backward_rows_by<kLog, NonTemporal<T>>(args, begin, end);
  else
    softmax_backward_rows_by<kLog, Whole<T>>(args, begin, end);
}

template <class T>
void softmax_backward_rows(const kernels::SoftmaxBackward<T>& args, int64_t begin, int64_t end) {
  if (args.log)
    softmax_backward_rows_of<true>(args, begin, end);
  else
    softmax_backward_rows_of<false>(args, begin, end);
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
