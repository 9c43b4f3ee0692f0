// Positions of extrema along an axis, of kernels/reduce.h.
#include <algorithm>
#include <limits>

#include <heed/kernels/cpu/reduce/reduce_rows.h>
#include <heed/kernels/cpu/simd/strided-inl.h>
#include <heed/kernels/reduce.h>

namespace heed::cpu {
namespace {

using kernels::ReduceOp;

constexpr int64_t kBestColumns = 128, kBestRows = 128;  // of a block, which stays in a core's cache

/// The positions of the extrema of some columns that lie side by side, at most kBestColumns: those of a block
/// of rows after the other, first what they are and then where they are first.
template <class T>
void arg_columns(const kernels::ArgReduce<T>& args, const T* x, int64_t columns, int64_t* y, int64_t step) {
  using M = math_t<T>;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto extremum = reduce_rows<T, float>(args.largest ? ReduceOp::maximum : ReduceOp::minimum);
  const float centres[kBestColumns] = {};
  float best[kBestColumns], found[kBestColumns];
  int64_t at[kBestColumns];
  int32_t place[kBestColumns] = {};
  for (int64_t first = 0; first < args.n; first += kBestRows, x += kBestRows * args.stride) {
    const int64_t rows = std::min(kBestRows, args.n - first);
    std::fill_n(found, columns, args.largest ? -kInfinity : kInfinity);
    extremum.columns(found, x, rows, args.stride, columns, centres);
    for (int64_t i = rows - 1; i >= 0; --i) {
      const T* const row = x + i * args.stride;
      HEED_INDEPENDENT
      for (int64_t j = 0; j < columns; ++j) {
        const M a = row[j];  // NaN only where the extremum is
        place[j] = a == found[j] || a != a ? static_cast<int32_t>(i) : place[j];
      }
    }
    for (int64_t j = 0; j < columns; ++j) {
      const float a = found[j], b = best[j];
      if (first > 0 && (b != b || (args.largest ? a <= b : a >= b))) continue;
      best[j] = a;
      at[j] = first + place[j];
    }
  }
  for (int64_t j = 0; j < columns; ++j) y[j * step] = at[j];
}

}  // namespace

template <class T>
void arg_reduce(const kernels::ArgReduce<T>& args) {
  using M = math_t<T>;
  if constexpr (kReducesRows<T>) {
    const int inner = args.lines.rank - 1;
    if (args.stride != 1 && inner >= 0 && args.lines.strides[1][inner] == 1) {
      return parallel_walk(args.lines, std::max(kBestColumns, lines_per_task(args.n)),
                           [&](const Run<2>& run) {
                             for (int64_t i = 0; i < run.n; i += kBestColumns)
                               arg_columns(args, args.x + run.at[1] + i, std::min(kBestColumns, run.n - i),
                                           args.y + run.at[0] + i * run.step[0], run.step[0]);
                           });
    }
  }
  const auto first_best = [&](const T* x) {
    if constexpr (kReducesRows<T>) {
      if (args.stride == 1) {
        const auto extremum = reduce_rows<T, float>(args.largest ? ReduceOp::maximum : ReduceOp::minimum);
        const float value = extremum.row(x, args.n, 0);
        const T* const found = value == value
                                   ? std::find_if(x, x + args.n, [=](T a) { return M(a) == value; })
                                   : std::find_if(x, x + args.n, [](T a) { return M(a) != M(a); });
        return int64_t{found - x};
      }
    }
    int64_t best = 0;
    for (int64_t i = 1; i < args.n; ++i) {
      const M a = x[i * args.stride], b = x[best * args.stride];
      if (b == b && ((args.largest ? a > b : a < b) || a != a)) best = i;
    }
    return best;
  };
  const int64_t grain = lines_per_task(args.n);
  parallel_walk(args.lines, grain, [&](const Run<2>& run) {
    for (int64_t i = 0; i < run.n; ++i)
      args.y[run.at[0] + i * run.step[0]] = first_best(args.x + run.at[1] + i * run.step[1]);
  });
}

#define HEED_INSTANTIATE(T) template void arg_reduce<T>(const kernels::ArgReduce<T>&);
HEED_INSTANTIATE(float)
HEED_INSTANTIATE(bfloat16)
HEED_INSTANTIATE(double)
HEED_INSTANTIATE(int64_t)
HEED_INSTANTIATE(int32_t)
#undef HEED_INSTANTIATE

}  // namespace heed::cpu
