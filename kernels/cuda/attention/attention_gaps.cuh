// Zeros in the rows that lie in no sequence: written by the kernels of attention themselves where the
// sequences are in order, and else by a launch before them.
#pragma once

#include <cstdint>

#include <heed/kernels/attention.h>
#include <heed/kernels/cuda/elementwise.cuh>

namespace heed::cuda {

template <class T>
struct ClearOp {  // of [rows, heads, width]; operand 1 is head * rows + row, 2 the column
  static constexpr int kOperands = 3, kWidth = kVectorWidth<T>;
  T* data;
  float* lse;  // or null

  bool aligned() const { return aligned_for<kWidth>(data); }

  template <int kWidth>
  __device__ __forceinline__ void run(const int64_t (&at)[3], unsigned) const {
    const float zeros[kWidth] = {};
    store(data + at[0], zeros);
    if (lse != nullptr && at[2] == 0) lse[at[1]] = -kInfinity;
  }
};

/// Zeros in all rows of a view, and -inf in the log-sum-exp that belongs to them.
template <class T>
void clear_rows(const char* what, const kernels::HeadsView<T>& view, float* lse, int64_t rows, int64_t heads,
                int64_t width) {
  Strided<3> index{};
  index.rank = 3;
  const int64_t sizes[] = {rows, heads, width}, strides[] = {view.row_stride, view.head_stride, 1},
                places[] = {1, rows, 0};
  for (int axis = 0; axis < 3; ++axis) {
    index.sizes[axis] = sizes[axis];
    index.strides[0][axis] = strides[axis];
    index.strides[1][axis] = places[axis];
    index.strides[2][axis] = axis == 2;
  }
  elementwise(what, ClearOp<T>{view.data, lse}, index);
}

/// The queries or the keys of all sequences.
struct Side {
  const int64_t* first;
  const int32_t* length;
  int64_t count, rows;
  bool may_have_gaps, in_order;

  /// Whether kernels that run for every sequence clear the rows between them.
  __host__ __device__ bool cleared_by_kernels() const { return may_have_gaps && in_order; }
};

template <class T>
__host__ __device__ __forceinline__ Side queries_of(const kernels::AttentionScores<T>& args) {
  const SegmentsView& s = args.segments;
  return {s.query_first, s.query_length, s.count, args.query_rows, s.total_query != args.query_rows,
          s.in_order};
}
template <class T>
__host__ __device__ __forceinline__ Side keys_of(const kernels::AttentionScores<T>& args) {
  const SegmentsView& s = args.segments;
  return {s.key_first, s.key_length, s.count, args.key_rows, s.total_key != args.key_rows, s.in_order};
}

/// Clears all rows where some are in no sequence, unless the kernels do; `follow`: whether any are launched.
template <class T>
void clear_before(const char* what, const Side& side, bool follow, const kernels::HeadsView<T>& view,
                  int64_t heads, int64_t width, float* lse = nullptr) {
  if (side.may_have_gaps && !(side.in_order && follow)) clear_rows(what, view, lse, side.rows, heads, width);
}

/// One head's part of rows [begin, end), by thread `thread` of `threads`, kWidth elements at a time.
template <int kWidth, class T>
__device__ __forceinline__ void clear_between(int64_t begin, int64_t end, const kernels::HeadsView<T>& view,
                                              int head, int64_t width, int thread, int threads, float* lse) {
  const int64_t pieces = width / kWidth;
  const float zeros[kWidth] = {};
#pragma unroll 1
  for (int64_t i = thread; i < (end - begin) * pieces; i += threads) {
    const int64_t row = begin + i / pieces, piece = i % pieces;
    store(view.data + row * view.row_stride + head * view.head_stride + piece * kWidth, zeros);
    if (lse != nullptr && piece == 0) lse[row] = -kInfinity;
  }
}

/// Clears one head's part of the rows before a sequence that are in none, and of those behind the last one;
/// lse: of the head, or null.
template <int kWidth, class T>
__device__ __forceinline__ void clear_gaps(const Side& side, int sequence, const kernels::HeadsView<T>& view,
                                           int head, int64_t width, int thread, int threads,
                                           float* lse = nullptr) {
  if (!side.cleared_by_kernels()) return;
  const auto end_of = [&](int i) { return side.first[i] + side.length[i]; };
  clear_between<kWidth>(sequence == 0 ? 0 : end_of(sequence - 1), side.first[sequence], view, head, width,
                        thread, threads, lse);
  if (sequence + 1 == side.count)
    clear_between<kWidth>(end_of(sequence), side.rows, view, head, width, thread, threads, lse);
}

/// The output's.
template <int kWidth, class T>
__device__ __forceinline__ void clear_output_gaps(const kernels::AttentionForward<T>& args, int sequence,
                                                  int head, int thread, int threads) {
  clear_gaps<kWidth>(queries_of(args), sequence, args.out, head, args.width, thread, threads,
                     args.lse == nullptr ? nullptr : args.lse + head * args.query_rows);
}

/// Those of the gradients, where they are wanted and not added to.
template <int kWidth, class T>
__device__ __forceinline__ void clear_query_gaps(const kernels::AttentionBackward<T>& args, int sequence,
                                                 int head, int thread, int threads) {
  if (args.gq.data != nullptr && !args.accumulate_q)
    clear_gaps<kWidth>(queries_of(args), sequence, args.gq, head, args.width, thread, threads);
}
template <int kWidth, class T>
__device__ __forceinline__ void clear_key_gaps(const kernels::AttentionBackward<T>& args, int sequence,
                                               int head, int thread, int threads) {
  if (args.gk.data != nullptr && !args.accumulate_k)
    clear_gaps<kWidth>(keys_of(args), sequence, args.gk, head, args.width, thread, threads);
  if (args.gv.data != nullptr && !args.accumulate_v)
    clear_gaps<kWidth>(keys_of(args), sequence, args.gv, head, args.width, thread, threads);
}

}  // namespace heed::cuda
