// Walking an index space of several strided operands on the CPU. Private to kernels/cpu: not installed.
#pragma once

#include <algorithm>
#include <cstdint>

#include <heed/core/base/int_math.h>
#include <heed/core/base/strided.h>
#include <heed/core/base/threads/parallel_for.h>

// Before a loop whose iterations do not depend on each other: the compiler need not prove it.
#if defined(__clang__)
#define HEED_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define HEED_INDEPENDENT _Pragma("GCC ivdep")
#endif

namespace heed::cpu {

constexpr int64_t kTaskElements = 16384;  // about that many elements a task

/// Lines of `length` elements a task.
inline int64_t lines_per_task(int64_t length) {
  return std::max<int64_t>(1, kTaskElements / std::max<int64_t>(1, length));
}

/// `n` elements along the innermost axis: the i-th of operand k is at at[k] + i * step[k].
template <int N>
struct Run {
  int64_t n;
  int64_t at[N];
  int64_t step[N];

  /// `count` of them from `first` on.
  Run part(int64_t first, int64_t count) const {
    Run part = *this;
    part.n = count;
    for (int k = 0; k < N; ++k) part.at[k] += first * step[k];
    return part;
  }
};

/// Calls row(run) for runs that cover elements [begin, end) of the index space, counted in row-major order.
template <int N, class Row>
void walk(const Strided<N>& index, int64_t begin, int64_t end, const Row& row) {
  if (begin >= end) return;
  const int inner = index.rank - 1;
  Run<N> run{};
  if (inner < 0) {  // a single element
    for (int k = 0; k < N; ++k) run.step[k] = 1;
    run.n = end - begin;
    row(run);
    return;
  }
  int64_t place[kMaxRank];
  int64_t rest = begin;
  for (int axis = inner; axis >= 0; --axis) {
    place[axis] = rest % index.sizes[axis];
    rest /= index.sizes[axis];
    for (int k = 0; k < N; ++k) run.at[k] += place[axis] * index.strides[k][axis];
  }
  for (int k = 0; k < N; ++k) run.step[k] = index.strides[k][inner];
  while (begin < end) {
    run.n = std::min(index.sizes[inner] - place[inner], end - begin);
    row(run);
    begin += run.n;
    // On to the start of the next row: back along the innermost axis, one on along the next, with carry.
    for (int k = 0; k < N; ++k) run.at[k] -= place[inner] * run.step[k];
    place[inner] = 0;
    for (int axis = inner - 1; axis >= 0; --axis) {
      for (int k = 0; k < N; ++k) run.at[k] += index.strides[k][axis];
      if (++place[axis] < index.sizes[axis]) break;
      for (int k = 0; k < N; ++k) run.at[k] -= place[axis] * index.strides[k][axis];
      place[axis] = 0;
    }
  }
}

/// The same for the whole index space, in parallel, cut into an even number of equal tasks of at most `grain`
/// elements, or of whole lines of the cache where `grain` is a multiple of one. A task ends with finish().
template <int N, class Row, class Finish>
void parallel_walk(const Strided<N>& index, int64_t grain, const Row& row, const Finish& finish) {
  constexpr int64_t kLine = 64;
  const int64_t count = index.count();
  int64_t tasks = std::max<int64_t>(1, ceil_divide(count, grain));
  if (tasks > 1) tasks += tasks % 2;
  const int64_t task = round_up(ceil_divide(count, tasks), grain % kLine == 0 ? kLine : 1);
  parallel_for(count, std::max<int64_t>(1, task), [&](int64_t begin, int64_t end) {
    walk(index, begin, end, row);
    finish();
  });
}
template <int N, class Row>
void parallel_walk(const Strided<N>& index, int64_t grain, const Row& row) {
  parallel_walk(index, grain, row, [] {});
}

constexpr int64_t kTileSide = 32;

/// A piece of two axes: element (i, j) of operand k is at at[k] + i * row_step[k] + j * step[k].
template <int N>
struct Tile {
  int64_t rows, n;
  int64_t at[N], row_step[N], step[N];
};

/// Calls f(tile) for square tiles that cover the index space, in parallel, where elements of `operand` that
/// lie side by side are on another than the innermost axis: a row would take one element of each line of the
/// cache. Where they are not, or a row repeats one element, or one of the two axes is short, nothing is
/// called, and the result is false.
template <int N, class F>
bool parallel_tiles(const Strided<N>& index, int operand, const F& f) {
  const int inner = index.rank - 1;
  int across = inner - 1;
  while (across >= 0 && index.strides[operand][across] != 1) --across;
  if (across < 0 || index.strides[operand][inner] == 1 || index.strides[operand][inner] == 0) return false;
  const int64_t rows = index.sizes[across], n = index.sizes[inner];
  if (std::min(rows, n) < kTileSide / 4) return false;
  Strided<N> others{};
  for (int axis = 0; axis < inner; ++axis) {
    if (axis == across) continue;
    others.sizes[others.rank] = index.sizes[axis];
    for (int k = 0; k < N; ++k) others.strides[k][others.rank] = index.strides[k][axis];
    ++others.rank;
  }
  const int64_t down = ceil_divide(rows, kTileSide), along = ceil_divide(n, kTileSide);
  parallel_for(others.count() * down * along, 8, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t row = t / along % down * kTileSide, first = t % along * kTileSide;
      Tile<N> tile{std::min(rows - row, kTileSide), std::min(n - first, kTileSide), {}, {}, {}};
      walk(others, t / (down * along), t / (down * along) + 1, [&](const Run<N>& run) {
        for (int k = 0; k < N; ++k) {
          tile.row_step[k] = index.strides[k][across];
          tile.step[k] = index.strides[k][inner];
          tile.at[k] = run.at[k] + row * tile.row_step[k] + first * tile.step[k];
        }
      });
      f(tile);
    }
  });
  return true;
}

}  // namespace heed::cpu
