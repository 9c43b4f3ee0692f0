#include <algorithm>
#include <cmath>
#include <limits>

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

template <class T>
HWY_INLINE void fill_row(T* y, int64_t n, T value) {
  for (int64_t i = 0; i < n; ++i) y[i] = value;
}

/// y = exponentials / their sum.
template <class Io, class T>
HWY_INLINE void scale_row(const accumulator_t<T>* exponentials, T* y, int64_t n, double sum) {
  const Tag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto inverse = hn::Set(d, static_cast<accumulator_t<T>>(1 / sum));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) Io().store(hn::Mul(hn::LoadU(d, exponentials + i), inverse), y + i);
  if (i < n) store_n(hn::Mul(load_n(d, exponentials + i, n - i), inverse), d, y + i, n - i);
}

/// y = x - most - log sum.
template <class Io, class T>
HWY_INLINE void shift_row(const T* x, T* y, int64_t n, accumulator_t<T> most, double sum) {
  const Tag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto log_sum = hn::Set(d, static_cast<accumulator_t<T>>(std::log(sum))), shift = hn::Set(d, most);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) Io().store(hn::Sub(hn::Sub(load(d, x + i), shift), log_sum), y + i);
  if (i < n) store_n(hn::Sub(hn::Sub(load_n(d, x + i, n - i), shift), log_sum), d, y + i, n - i);
}

/// The exponentials of a group of rows are kept in `kept`, or in y where that is null.
template <class Io, class T>
HWY_INLINE void softmax_rows_by(const kernels::SoftmaxForward<T>& args, int64_t begin, int64_t end,
                                accumulator_t<T>* kept) {
  using A = accumulator_t<T>;
  constexpr A kLowest = -std::numeric_limits<A>::infinity();
  const int64_t group = rows_in_group(args.cols), n = args.cols;
  A most[kMostRowsInGroup];
  double sum[kMostRowsInGroup];  // 0: the row is empty
  for (int64_t row = begin; row < end; row += group) {
    const int64_t rows = std::min(group, end - row);
    const T* const x = args.x + row * n;
    T* const y = args.y + row * n;
    A* const exponentials = kept == nullptr ? reinterpret_cast<A*>(y) : kept;
    for (int64_t r = 0; r < rows; ++r) most[r] = row_max(x + r * n, n);
    for (int64_t r = 0; r < rows; ++r) {
      if (row_is_empty(x + r * n, n, most[r]))
        sum[r] = 0;
      else if (args.log)
        sum[r] = row_sums<false, false>(x + r * n, exponentials, n, most[r]).exponentials;
      else
        sum[r] = row_sums<true, false>(x + r * n, exponentials + r * n, n, most[r]).exponentials;
    }
    for (int64_t r = 0; r < rows; ++r) {
      if (sum[r] == 0)
        fill_row(y + r * n, n, args.log ? T(kLowest) : T(A(0)));
      else if (args.log)
        shift_row<Io>(x + r * n, y + r * n, n, most[r], sum[r]);
      else
        scale_row<Io>(exponentials + r * n, y + r * n, n, sum[r]);
    }
  }
}

template <class T>
void softmax_rows(const kernels::SoftmaxForward<T>& args, int64_t begin, int64_t end) {
  using A = accumulator_t<T>;
  const bool streamed = streams(args.y, args.rows, args.cols, 2);
  // bfloat16 cannot hold the exponentials, and what is streamed should not be read again.
  const bool apart = !args.log && (streamed || !std::is_same_v<T, A>);
  Workspace<A> kept(apart ? rows_in_group(args.cols) * args.cols : 0);
  if (!streamed) return softmax_rows_by<Whole<T>>(args, begin, end, kept.data());
  softmax_rows_by<Streaming<T>>(args, begin, end, kept.data());
  hwy::FlushStream();
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
  return log ? hn::NegMulAdd(exp_fast(d, y), sum, gy) : hn::Mul(y, hn::Sub(gy, sum));
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
      if (!accumulate) fill_row(gx, n, T(accumulator_t<T>(0)));
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
