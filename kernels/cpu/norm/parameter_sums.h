// The sums over rows of a backward, for the gradients of weight and bias.
#pragma once

#include <algorithm>
#include <cstdint>

#include <heed/core/base/dtype.h>
#include <heed/core/base/int_math.h>
#include <heed/core/base/threads/parallel_for.h>
#include <heed/kernels/cpu/tasks/grain.h>
#include <heed/kernels/cpu/tasks/workspace.h>

namespace heed::cpu {

/// The sums over rows for gweight and gbias: each chunk of rows has its own, and they are added in order.
template <class A>
class ParameterSums {
 public:
  ParameterSums(int64_t rows, int64_t cols, bool wanted)
      : rows_per_chunk(rows_per_partial_sum(rows)),
        stride((cols + 31) / 16 * 16),
        cols_(cols),
        chunks_(ceil_divide(rows, rows_per_chunk)),
        partial_(wanted ? chunks_ * 2 * stride : 0) {}

  /// The chunk that starts at `row`: `stride` sums for gweight, then as many for gbias; null if not wanted.
  A* chunk(int64_t row) {
    return partial_.data() == nullptr ? nullptr : partial_.data() + row / rows_per_chunk * 2 * stride;
  }

  /// Writes or adds the totals; a null pointer is skipped.
  void finish(A* gweight, bool accumulate_weight, A* gbias, bool accumulate_bias) {
    parallel_for(cols_, kBlock, [&](int64_t begin, int64_t end) {
      if (gweight != nullptr) total(0, begin, end, gweight, accumulate_weight);
      if (gbias != nullptr) total(stride, begin, end, gbias, accumulate_bias);
    });
  }

  const int64_t rows_per_chunk;
  const int64_t stride;  // columns, and room for a vector that begins at any of them

 private:
  static constexpr int64_t kBlock = 512;

  void total(int64_t first, int64_t begin, int64_t end, A* out, bool accumulate) {
    A sum[kBlock] = {};
    for (int64_t k = 0; k < chunks_; ++k) {
      const A* part = partial_.data() + k * 2 * stride + first + begin;
      for (int64_t c = 0; c < end - begin; ++c) sum[c] += part[c];
    }
    for (int64_t c = 0; c < end - begin; ++c) out[begin + c] = accumulate ? out[begin + c] + sum[c] : sum[c];
  }

  int64_t cols_, chunks_;
  Workspace<A> partial_;
};

/// A backward, and where a chunk of its rows adds up gweight and gbias; null if neither is wanted.
template <class Args>
struct GradientChunk {
  const Args& args;
  decltype(Args::gweight) gweight, gbias;
};

/// Calls rows(chunk, begin, end) for each chunk of rows of a backward, with zeroed sums of its own, and
/// brings the sums together.
template <class T, class Args, class Rows>
void for_row_chunks(const Args& args, const Rows& rows) {
  using A = accumulator_t<T>;
  ParameterSums<A> sums(args.rows, args.cols, args.gweight != nullptr || args.gbias != nullptr);
  parallel_for(args.rows, sums.rows_per_chunk, [&](int64_t begin, int64_t end) {
    A* chunk = sums.chunk(begin);
    if (chunk != nullptr) std::fill_n(chunk, 2 * sums.stride, A(0));
    rows(GradientChunk<Args>{args, chunk, chunk == nullptr ? nullptr : chunk + sums.stride}, begin, end);
  });
  sums.finish(args.gweight, args.accumulate_weight, args.gbias, args.accumulate_bias);
}

}  // namespace heed::cpu
