// How the generic attention kernels are cut, a warp for each query (or key) of each sequence and head; and
// the clearing of rows in no sequence.
#pragma once

#include <cstdint>

#include <heed/core/base/check.h>
#include <heed/kernels/cuda/device.cuh>
#include <heed/kernels/cuda/elementwise.cuh>

namespace heed::cuda {

inline constexpr int kAttentionWarps = 4;
inline constexpr int kAttentionThreads = kAttentionWarps * 32;

/// The warp's sequence and its place there. `blocks` blocks along x take a sequence; blockIdx.y is the head.
struct WarpTask {
  int sequence, place, lane;

  __device__ __forceinline__ explicit WarpTask(int64_t blocks)
      : sequence(static_cast<int>(blockIdx.x / static_cast<unsigned>(blocks))),
        place(static_cast<int>(blockIdx.x % static_cast<unsigned>(blocks) * kAttentionWarps +
                               threadIdx.x / 32)),
        lane(static_cast<int>(threadIdx.x) % 32) {}
};

inline dim3 attention_grid(int64_t blocks, int64_t heads) {
  HEED_CHECK(heads < 65536, ShapeError, "attention: ", heads, " heads; on CUDA at most 65535");
  return {static_cast<unsigned>(blocks), static_cast<unsigned>(heads)};
}

/// A warp's own memory: `count` rows of `width` floats, and as many sets of a float for each lane.
class WarpRows {
 public:
  __device__ __forceinline__ WarpRows(float* memory, int64_t width, int count)
      : width_(width), rows_(memory), values_(memory + count * width) {}

  /// The warp's part of a block's shared memory.
  __device__ __forceinline__ WarpRows(simt::Arena<>& arena, int64_t width, int count)
      : WarpRows(arena.take<float>(static_cast<size_t>(kAttentionWarps * floats(width, count))) +
                     threadIdx.x / 32 * floats(width, count),
                 width, count) {}

  static __host__ __device__ constexpr int64_t floats(int64_t width, int count) {
    return count * (width + 32);
  }

  __device__ __forceinline__ float* row(int i) const { return rows_ + i * width_; }
  __device__ __forceinline__ float* value(int i) const { return values_ + i * 32; }

 private:
  int64_t width_;
  float *rows_, *values_;
};

/// ShapeError if the two rows that a warp needs for a key's gradients do not fit where shared memory is
/// least, 99 KiB a block. Checked by the forward too, for a model that trains.
inline void check_generic_width(int64_t width) {
  constexpr int64_t kMost = 99 * 1024 / (kAttentionWarps * 2 * int64_t{sizeof(float)}) - 32;
  HEED_CHECK(width <= kMost, ShapeError, "attention: heads of width ", width, "; on CUDA at most ", kMost);
}

inline size_t warp_rows_bytes(int64_t width, int count) {
  return static_cast<size_t>(kAttentionWarps * WarpRows::floats(width, count)) * sizeof(float);
}

template <class T>
struct ClearOp {  // of [rows, heads, width]; operand 1 is head * rows + row, 2 the column
  static constexpr int kOperands = 3, kWidth = 1;
  T* data;
  float* lse;  // or null

  template <int kWidth>
  __device__ __forceinline__ void run(const int64_t (&at)[3], unsigned) const {
    data[at[0]] = T(0.0f);
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

}  // namespace heed::cuda
