#include <algorithm>
#include <cmath>
#include <limits>

#include <heed/core/base/parallel_for.h>
#include <heed/kernels/cpu/typed_export.h>
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

template <class T>
HWY_INLINE void softmax_row(const T* x, T* y, int64_t n, accumulator_t<T> most) {
  using A = accumulator_t<T>;
  const Tag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  // bfloat16 cannot hold the exponentials between the passes: they are computed again.
  constexpr bool kStore = std::is_same_v<T, A>;
  A* const out = reinterpret_cast<A*>(y);
  const auto inverse = hn::Set(d, static_cast<A>(1 / row_sums<kStore>(x, out, n, most).exponentials));
  const auto shift = hn::Set(d, most);
  for (int64_t i = 0; i < n; i += lanes) {
    if constexpr (kStore) {
      store_up_to(hn::Mul(load_up_to(d, y + i, n - i), inverse), d, y + i, n - i);
    } else {
      const auto e = exp_fast(d, hn::Sub(load_up_to(d, x + i, n - i), shift));
      store_up_to(hn::Mul(e, inverse), d, y + i, n - i);
    }
  }
}

template <class T>
HWY_INLINE void log_softmax_row(const T* x, T* y, int64_t n, accumulator_t<T> most) {
  using A = accumulator_t<T>;
  const Tag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto log_sum = hn::Set(
      d, static_cast<A>(std::log(row_sums<false>(x, static_cast<A*>(nullptr), n, most).exponentials)));
  const auto shift = hn::Set(d, most);
  for (int64_t i = 0; i < n; i += lanes) {
    const auto t = hn::Sub(load_up_to(d, x + i, n - i), shift);
    store_up_to(hn::Sub(t, log_sum), d, y + i, n - i);
  }
}

template <class T>
void softmax_rows(const kernels::SoftmaxForward<T>& args, int64_t begin, int64_t end) {
  using A = accumulator_t<T>;
  constexpr A kLowest = -std::numeric_limits<A>::infinity();
  for (int64_t r = begin; r < end; ++r) {
    const T* x = args.x + r * args.cols;
    T* y = args.y + r * args.cols;
    const A most = row_max(x, args.cols);
    if (row_is_empty(x, args.cols, most)) {
      fill_row(y, args.cols, args.log ? T(kLowest) : T(A(0)));
    } else if (args.log) {
      log_softmax_row(x, y, args.cols, most);
    } else {
      softmax_row(x, y, args.cols, most);
    }
  }
}
HEED_TYPED(softmax_rows, kernels::SoftmaxForward)

/// Σ gy * y (softmax) or Σ gy (log-softmax).
template <class T>
HWY_INLINE accumulator_t<T> gradient_sum(const T* y, const T* gy, int64_t n, bool log) {
  const Tag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  constexpr int64_t kBlock = 2048;
  double sum = 0;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, n);
    auto block = hn::Zero(d);
    for (int64_t i = begin; i < end; i += lanes) {
      const auto g = load_up_to(d, gy + i, end - i);
      block = log ? hn::Add(block, g) : hn::MulAdd(g, load_up_to(d, y + i, end - i), block);
    }
    sum += static_cast<double>(reduce_sum(d, block));
  }
  return static_cast<accumulator_t<T>>(sum);
}

template <class T>
void softmax_backward_rows(const kernels::SoftmaxBackward<T>& args, int64_t begin, int64_t end) {
  const Tag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), n = args.cols;
  for (int64_t r = begin; r < end; ++r) {
    const T *y = args.y + r * n, *gy = args.gy + r * n;
    T* gx = args.gx + r * n;
    if (args.log && row_is_empty(y, n, row_max(y, n))) {  // it stays -inf whatever x does
      if (!args.accumulate) fill_row(gx, n, T(accumulator_t<T>(0)));
      continue;
    }
    const auto sum = hn::Set(d, gradient_sum(y, gy, n, args.log));
    for (int64_t i = 0; i < n; i += lanes) {
      const auto out = load_up_to(d, y + i, n - i), g = load_up_to(d, gy + i, n - i);
      auto value = args.log ? hn::NegMulAdd(exp_fast(d, out), sum, g) : hn::Mul(out, hn::Sub(g, sum));
      if (args.accumulate) value = hn::Add(value, load_up_to(d, gx + i, n - i));
      store_up_to(value, d, gx + i, n - i);
    }
  }
}
HEED_TYPED(softmax_backward_rows, kernels::SoftmaxBackward)

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::cpu {
namespace {

HEED_EXPORT_TYPED(softmax_rows)
HEED_EXPORT_TYPED(softmax_backward_rows)

int64_t rows_per_task(int64_t cols) { return std::max<int64_t>(1, 16384 / std::max<int64_t>(1, cols)); }

}  // namespace

template <class T>
void softmax_forward(const kernels::SoftmaxForward<T>& args) {
  if (args.cols == 0) return;
  const auto rows = HEED_SIMD_OF(T, softmax_rows);
  parallel_for(args.rows, rows_per_task(args.cols),
               [&](int64_t begin, int64_t end) { rows(args, begin, end); });
}

template <class T>
void softmax_backward(const kernels::SoftmaxBackward<T>& args) {
  if (args.cols == 0) return;
  const auto rows = HEED_SIMD_OF(T, softmax_backward_rows);
  parallel_for(args.rows, rows_per_task(args.cols),
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
