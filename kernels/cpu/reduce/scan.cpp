// Running sums along an axis.
#include <algorithm>

#include <heed/kernels/cpu/simd/strided-inl.h>
#include <heed/kernels/reduce.h>

namespace heed::cpu {
namespace {

template <class T>
using sum_t = std::conditional_t<std::is_integral_v<T>, uint64_t, double>;

template <class T>
sum_t<T> widened(T x) {
  return static_cast<sum_t<T>>(static_cast<math_t<T>>(x));
}

// Several lines at a time, since each waits for its last sum.
template <int kLines, class T>
void scan_lines(const kernels::CumSum<T>& args, T* y, int64_t step_y, const T* x, int64_t step_x) {
  // Copied, since for all the compiler knows what is written may lie in args.
  const int64_t n = args.n, first = args.reverse ? n - 1 : 0, on = args.reverse ? -1 : 1;
  const int64_t on_y = on * args.stride_y, on_x = on * args.stride_x;
  const bool accumulate = args.accumulate;
  y += first * args.stride_y;
  x += first * args.stride_x;
  sum_t<T> sums[kLines] = {};
  for (int64_t k = 0; k < n; ++k, y += on_y, x += on_x) {
    const auto add = [&](int64_t j, int64_t at_y, int64_t at_x) {
      sums[j] += widened(x[at_x]);
      const auto value = accumulate ? widened(y[at_y]) + sums[j] : sums[j];
      y[at_y] = static_cast<T>(static_cast<math_t<T>>(value));
    };
    if (step_y == 1 && step_x == 1) {
      HEED_INDEPENDENT
      for (int64_t j = 0; j < kLines; ++j) add(j, j, j);
    } else {
      for (int64_t j = 0; j < kLines; ++j) add(j, j * step_y, j * step_x);
    }
  }
}

}  // namespace

template <class T>
void cumsum(const kernels::CumSum<T>& args) {
  constexpr int kBeside = 32, kTogether = 4;  // lines: neighbours, or others
  const int inner = args.lines.rank - 1;
  const bool beside = inner >= 0 && args.lines.strides[0][inner] == 1 && args.lines.strides[1][inner] == 1;
  const int64_t grain = std::max<int64_t>(beside ? kBeside : kTogether, lines_per_task(args.n));
  parallel_walk(args.lines, grain, [&](const Run<2>& run) {
    T* const y = args.y + run.at[0];
    const T* const x = args.x + run.at[1];
    const auto scan = [&]<int kLines>(int64_t& i) {
      for (; i + kLines <= run.n; i += kLines)
        scan_lines<kLines>(args, y + i * run.step[0], run.step[0], x + i * run.step[1], run.step[1]);
    };
    int64_t i = 0;
    if (beside) scan.template operator()<kBeside>(i);
    scan.template operator()<kTogether>(i);
    scan.template operator()<1>(i);
  });
}

#define HEED_INSTANTIATE(T) template void cumsum<T>(const kernels::CumSum<T>&);
HEED_INSTANTIATE(float)
HEED_INSTANTIATE(bfloat16)
HEED_INSTANTIATE(double)
HEED_INSTANTIATE(int64_t)
HEED_INSTANTIATE(int32_t)
#undef HEED_INSTANTIATE

}  // namespace heed::cpu
