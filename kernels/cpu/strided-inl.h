// Walking an index space of several strided operands on the CPU. Private to kernels/cpu: not installed.
#pragma once

#include <algorithm>
#include <cstdint>

#include <heed/core/base/parallel_for.h>
#include <heed/core/base/strided.h>

// Before a loop whose iterations do not depend on each other: the compiler need not prove it.
#if defined(__clang__)
#define HEED_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define HEED_INDEPENDENT _Pragma("GCC ivdep")
#endif

namespace heed::cpu {

/// `n` elements along the innermost axis: the i-th of operand k is at at[k] + i * step[k].
template <int N>
struct Run {
  int64_t n;
  int64_t at[N];
  int64_t step[N];
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

/// The same for the whole index space, in parallel, cut into `grain` elements a task.
template <int N, class Row>
void parallel_walk(const Strided<N>& index, int64_t grain, const Row& row) {
  parallel_for(index.count(), grain, [&](int64_t begin, int64_t end) { walk(index, begin, end, row); });
}

}  // namespace heed::cpu
