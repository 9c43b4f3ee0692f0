// Loops over runs of elements, which copies and arithmetic share. Private to kernels/cpu: not installed.
#pragma once

#include <algorithm>
#include <type_traits>

#include <hwy/cache_control.h>

#include <heed/core/base/cost.h>
#include <heed/core/base/dtype.h>
#include <heed/kernels/cpu/elementwise/elementwise_rows.h>
#include <heed/kernels/cpu/move_rows.h>
#include <heed/kernels/cpu/simd/strided-inl.h>

namespace heed::cpu {

constexpr int64_t kCheapGrain = 32768;  // elements a task
constexpr int64_t kRowGrain = 16384;
constexpr int64_t kCostlyGrain = 4096;
constexpr int64_t kNonTemporalGrain = 65536;  // large: a task starts on pages that are not prefetched
constexpr int64_t kRowBuffer = 512;           // elements that are brought side by side at a time

template <class T>
inline constexpr bool kIsFloating = std::is_floating_point_v<T> || std::is_same_v<T, bfloat16>;

// Whether there are functions of whole rows (elementwise_rows.h).
template <class T>
inline constexpr bool kHasRows = std::is_same_v<T, float> || std::is_same_v<T, bfloat16>;

// Integer arithmetic wraps.
template <class T, class F>
T wrapping(T a, T b, F f) {
  using U = std::make_unsigned_t<T>;
  return static_cast<T>(f(static_cast<U>(a), static_cast<U>(b)));
}

/// Whether results y of operands x are written by non-temporal stores: they would not stay in the caches
/// together, and no operand lies where its result goes. The results of arithmetic are read again sooner than
/// those of other passes.
template <class Y, class... X>
bool uses_nontemporal_stores(const Cost& work, const Y* y, const X*... x) {
  constexpr double kCaches = 48 << 20;
  return work.bytes > kCaches && (... && (static_cast<const void*>(x) != y));
}

/// make(part, to) for parts of a run whose results lie side by side from y on, by way of a buffer and around
/// the caches.
template <int N, class Y, class Make>
[[gnu::noinline]] void stream_run(const Run<N>& run, Y* y, const Make& make) {
  constexpr int64_t kLine = 64 / int64_t{sizeof(Y)}, kPart = 8 * kLine;
  Y buffer[kPart];
  int64_t count = -(reinterpret_cast<intptr_t>(y) / int64_t{sizeof(Y)}) & (kLine - 1);  // to the first line
  if (count == 0) count = kPart;
  for (int64_t i = 0; i < run.n; i += count, count = kPart) {
    count = std::min(count, run.n - i);
    make(run.part(i, count), buffer);
    stream_row(count * int64_t{sizeof(Y)}, y + i, buffer);
  }
}

/// Calls make(run, to) for runs that cover the index space, in parallel, as parallel_walk does; it writes
/// results to `to` and on, run.step[0] apart.
template <int N, class Y, class Make>
void make_runs(const Strided<N>& index, int64_t grain, Y* y, bool nontemporal, const Make& make) {
  if (!nontemporal) return parallel_walk(index, grain, [&](const Run<N>& run) { make(run, y + run.at[0]); });
  const auto row = [&](const Run<N>& run) {
    Y* const to = y + run.at[0];
    return run.step[0] == 1 ? stream_run(run, to, make) : make(run, to);
  };
  parallel_walk(index, std::max(grain, kNonTemporalGrain), row, hwy::FlushStream);
}

template <class Y, class X, class F>
void map(int64_t n, Y* y, int64_t step_y, const X* x, int64_t step_x, F f) {
  if (step_y == 1 && step_x == 1) {
    HEED_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) y[i] = f(x[i]);
  } else if (step_y == 1) {
    HEED_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) y[i] = f(x[i * step_x]);
  } else {
    for (int64_t i = 0; i < n; ++i) y[i * step_y] = f(x[i * step_x]);
  }
}

template <class Y, class A, class B, class F>
void zip(int64_t n, Y* y, int64_t step_y, const A* a, int64_t step_a, const B* b, int64_t step_b, F f) {
  if (step_y == 1 && step_a == 1 && step_b == 1) {
    HEED_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) y[i] = f(a[i], b[i]);
  } else if (step_y == 1 && step_a == 1 && step_b == 0) {
    const B right = *b;
    HEED_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) y[i] = f(a[i], right);
  } else if (step_y == 1 && step_a == 0 && step_b == 1) {
    const A left = *a;
    HEED_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) y[i] = f(left, b[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) y[i * step_y] = f(a[i * step_a], b[i * step_b]);
  }
}

// Elements that are not side by side pass through a buffer, so that their layout changes no bit.
template <class T>
const T* gather(const T* x, int64_t step, int64_t n, T* buffer) {
  if (step == 1) return x;
  for (int64_t i = 0; i < n; ++i) buffer[i] = x[i * step];
  return buffer;
}
template <class T>
void scatter(const T* row, T* y, int64_t step, int64_t n) {
  if (step == 1) return;
  for (int64_t i = 0; i < n; ++i) y[i * step] = row[i];
}

template <class T, class Y, class Row>
void map_run(int64_t n, Y* y, int64_t step_y, const T* x, int64_t step_x, const Row& row) {
  if (step_y == 1 && step_x == 1) return row(UnaryRow<T, Y>{n, y, x});
  T from[kRowBuffer];
  Y to[kRowBuffer];
  for (int64_t i = 0; i < n; i += kRowBuffer) {
    const int64_t count = std::min(n - i, kRowBuffer);
    Y* const result = step_y == 1 ? y + i : to;
    row(UnaryRow<T, Y>{count, result, gather(x + i * step_x, step_x, count, from)});
    scatter(result, y + i * step_y, step_y, count);
  }
}

template <class T>
void zip_run(int64_t n, T* y, int64_t step_y, const T* a, int64_t step_a, const T* b, int64_t step_b,
             void (*row)(const BinaryRow<T>&)) {
  if (step_y == 1 && (step_a | 1) == 1 && (step_b | 1) == 1) return row({n, y, a, b, step_a, step_b});
  T left[kRowBuffer], right[kRowBuffer], to[kRowBuffer];
  for (int64_t i = 0; i < n; i += kRowBuffer) {
    const int64_t count = std::min(n - i, kRowBuffer);
    T* const result = step_y == 1 ? y + i : to;
    row({count, result, step_a == 0 ? a : gather(a + i * step_a, step_a, count, left),
         step_b == 0 ? b : gather(b + i * step_b, step_b, count, right), step_a != 0, step_b != 0});
    scatter(result, y + i * step_y, step_y, count);
  }
}

/// Whether the elements of an operand, or the results, lie side by side along the innermost axis.
template <int N>
bool has_rows(const Strided<N>& index, int operand = 0) {
  return index.rank > 0 && index.strides[operand][index.rank - 1] == 1;
}

/// The same of a tile in whose rows results lie side by side. An operand that lies otherwise passes through a
/// buffer of rows.
template <class T>
void zip_tile(const Tile<3>& tile, T* y, const T* a, const T* b, void (*row)(const BinaryRow<T>&)) {
  T left[kTileSide][kTileSide + 1], right[kTileSide][kTileSide + 1];
  const auto turn = [&](const T* x, int operand, auto& buffer) {
    for (int64_t j = 0; j < tile.n; ++j)
      for (int64_t i = 0; i < tile.rows; ++i)
        buffer[i][j] = x[i * tile.row_step[operand] + j * tile.step[operand]];
  };
  const bool turn_a = (tile.step[1] | 1) != 1, turn_b = (tile.step[2] | 1) != 1;
  if (turn_a) turn(a + tile.at[1], 1, left);
  if (turn_b) turn(b + tile.at[2], 2, right);
  for (int64_t i = 0; i < tile.rows; ++i)
    row({tile.n, y + tile.at[0] + i * tile.row_step[0],
         turn_a ? left[i] : a + tile.at[1] + i * tile.row_step[1],
         turn_b ? right[i] : b + tile.at[2] + i * tile.row_step[2], turn_a ? 1 : tile.step[1],
         turn_b ? 1 : tile.step[2]});
}

}  // namespace heed::cpu
