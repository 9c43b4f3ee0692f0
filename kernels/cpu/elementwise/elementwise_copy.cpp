// Copies, conversions and fills of kernels/elementwise.h.
#include <algorithm>
#include <cstring>
#include <limits>

#include <heed/kernels/cpu/elementwise/elementwise-inl.h>
#include <heed/kernels/cpu/move_rows.h>
#include <heed/kernels/elementwise.h>

namespace heed::cpu {
namespace {

template <class To, class From>
To convert(From x) {
  if constexpr (std::is_same_v<To, From>) {
    return x;
  } else if constexpr (std::is_same_v<To, bool>) {
    return math_t<From>(x) != math_t<From>(0);
  } else if constexpr (std::is_integral_v<To> && kIsFloating<From>) {
    const math_t<From> v = x;
    constexpr auto kEnd = -math_t<From>(std::numeric_limits<To>::min());  // 2^31 or 2^63: exact
    if (!(v > -kEnd)) return v == v ? std::numeric_limits<To>::min() : To(0);
    return v < kEnd ? static_cast<To>(v) : std::numeric_limits<To>::max();
  } else if constexpr (std::is_same_v<To, bfloat16>) {
    return bfloat16(static_cast<float>(x));
  } else {
    return static_cast<To>(static_cast<math_t<From>>(x));
  }
}

// Whether whole rows are converted by the vector (elementwise_rows.h).
template <class To, class From>
inline constexpr bool kConvertsRows = kHasRows<To> && (kHasRows<From> ||
                                                       std::is_same_v<From, bool>)&&!std::is_same_v<To, From>;

// What exceeds an int32_t stops a row of the vector's, and is converted with its neighbours one by one.
template <class From>
void convert_to_integers(const UnaryRow<From, int64_t>& row) {
  for (int64_t i = 0; i < row.n;) {
    i += convert_small(row.n - i, row.y + i, row.x + i);
    for (const int64_t end = std::min(row.n, i + 8); i < end; ++i) row.y[i] = convert<int64_t>(row.x[i]);
  }
}

template <class T>
void fill_run(int64_t n, T* y, int64_t step, T value) {
  if (step == 1)
    fill_row(n, y, value);
  else
    for (int64_t i = 0; i < n; ++i) y[i * step] = value;
}

template <class T>
struct Sum {  // y + x, rounded once
  template <class X>
  T operator()(T y, X x) const {
    if constexpr (std::is_same_v<T, bool>) {
      return y || convert<bool>(x);
    } else if constexpr (std::is_integral_v<T>) {
      return wrapping(y, convert<T>(x), [](auto a, auto b) { return a + b; });
    } else if constexpr (std::is_same_v<T, double> || std::is_same_v<X, double>) {
      return convert<T>(static_cast<double>(y) + static_cast<double>(x));
    } else {
      return convert<T>(static_cast<float>(y) + static_cast<float>(x));
    }
  }
};

// Through a buffer, since rows of a tile that are a power of two apart push each other out of the cache.
template <class T>
void copy_tile(const Tile<2>& tile, T* y, const T* x) {
  T buffer[kTileSide][kTileSide + 1];
  for (int64_t j = 0; j < tile.n; ++j)
    for (int64_t i = 0; i < tile.rows; ++i) buffer[j][i] = x[tile.at[1] + i + j * tile.step[1]];
  for (int64_t i = 0; i < tile.rows; ++i)
    for (int64_t j = 0; j < tile.n; ++j)
      y[tile.at[0] + i * tile.row_step[0] + j * tile.step[0]] = buffer[j][i];
}

template <class T>
void add_tile(const Tile<2>& tile, T* y, const T* x) {
  const Tile<3> sums{tile.rows,
                     tile.n,
                     {tile.at[0], tile.at[0], tile.at[1]},
                     {tile.row_step[0], tile.row_step[0], tile.row_step[1]},
                     {tile.step[0], tile.step[0], tile.step[1]}};
  zip_tile(sums, y, static_cast<const T*>(y), x, binary_row<T>(kernels::BinaryOp::add));
}

}  // namespace

template <class To, class From>
void copy(const kernels::Copy<To, From>& args) {
  if constexpr (std::is_same_v<To, From>) {
    const auto tile = [&](const Tile<2>& at) { copy_tile(at, args.y, args.x); };
    if (!args.accumulate && parallel_tiles(args.index, 1, tile)) return;
    if constexpr (kHasRows<To>) {
      const auto sums = [&](const Tile<2>& at) { add_tile(at, args.y, args.x); };
      if (args.accumulate && has_rows(args.index) && parallel_tiles(args.index, 1, sums)) return;
    }
  }
  const bool nontemporal = !args.accumulate && uses_nontemporal_stores(args.cost(), args.y, args.x);
  if constexpr (std::is_same_v<To, From>) {
    constexpr int64_t kAhead = 3072;  // bytes
    const auto move = [&](const Run<2>& run) {
      stream_row(run.n * int64_t{sizeof(To)}, args.y + run.at[0], args.x + run.at[1], kAhead);
    };
    if (nontemporal && has_rows(args.index, 0) && has_rows(args.index, 1))
      return parallel_walk(args.index, kNonTemporalGrain, move, hwy::FlushStream);
  }
  make_runs(args.index, kCheapGrain, args.y, nontemporal, [&](const Run<2>& run, To* y) {
    const From* x = args.x + run.at[1];
    if (args.accumulate) {
      if constexpr (std::is_same_v<To, From> && kHasRows<To>) {
        zip_run(run.n, y, run.step[0], static_cast<const To*>(y), run.step[0], x, run.step[1],
                binary_row<To>(kernels::BinaryOp::add));
      } else {
        zip(run.n, y, run.step[0], y, run.step[0], x, run.step[1], Sum<To>());
      }
    } else if (run.step[1] == 0) {
      fill_run(run.n, y, run.step[0], convert<To>(*x));
    } else if (std::is_same_v<To, From> && run.step[0] == 1 && run.step[1] == 1) {
      std::memmove(static_cast<void*>(y), x, static_cast<size_t>(run.n) * sizeof(To));
    } else if (std::is_same_v<To, From> && run.step[0] == 1 && run.step[1] == -1) {
      if constexpr (std::is_same_v<To, From> && kHasRows<To>)
        reverse_row(run.n, y, x - (run.n - 1));
      else if constexpr (std::is_same_v<To, From>)
        std::reverse_copy(x - (run.n - 1), x + 1, y);
    } else if constexpr (kConvertsRows<To, From>) {  // NOLINT(bugprone-branch-clone): both may be discarded
      map_run(run.n, y, run.step[0], x, run.step[1],
              [](const UnaryRow<From, To>& row) { convert_row(row.n, row.y, row.x); });
    } else if constexpr (std::is_same_v<To, int64_t> && kHasRows<From>) {
      map_run(run.n, y, run.step[0], x, run.step[1], convert_to_integers<From>);
    } else {
      map(run.n, y, run.step[0], x, run.step[1], convert<To, From>);
    }
  });
}

template <class T>
void fill(const kernels::Fill<T>& args) {
  parallel_walk(args.index, kCheapGrain,
                [&](const Run<1>& run) { fill_run(run.n, args.y + run.at[0], run.step[0], args.value); });
}

#define HEED_INSTANTIATE(T)                                           \
  template void copy<T, float>(const kernels::Copy<T, float>&);       \
  template void copy<T, bfloat16>(const kernels::Copy<T, bfloat16>&); \
  template void copy<T, double>(const kernels::Copy<T, double>&);     \
  template void copy<T, int64_t>(const kernels::Copy<T, int64_t>&);   \
  template void copy<T, int32_t>(const kernels::Copy<T, int32_t>&);   \
  template void copy<T, bool>(const kernels::Copy<T, bool>&);         \
  template void fill<T>(const kernels::Fill<T>&);
HEED_INSTANTIATE(float)
HEED_INSTANTIATE(bfloat16)
HEED_INSTANTIATE(double)
HEED_INSTANTIATE(int64_t)
HEED_INSTANTIATE(int32_t)
HEED_INSTANTIATE(bool)
#undef HEED_INSTANTIATE

}  // namespace heed::cpu
