// How the generic attention kernels are cut: a warp for each query (or key) of each sequence and head.
#pragma once

#include <cstdint>

#include <heed/core/base/check.h>
#include <heed/kernels/cuda/device.cuh>

namespace heed::cuda {

inline constexpr int kAttentionWarps = 4;
inline constexpr int kAttentionThreads = kAttentionWarps * 32;

/// The warp's sequence and its place there. `blocks` blocks along x take a sequence; blockIdx.y is the head.
struct WarpTask {
  int sequence, place, lane;
  int thread, threads;  // of those that take the sequence and a head

  __device__ __forceinline__ explicit WarpTask(int64_t blocks)
      : sequence(static_cast<int>(blockIdx.x / static_cast<unsigned>(blocks))),
        place(static_cast<int>(blockIdx.x % static_cast<unsigned>(blocks) * kAttentionWarps +
                               threadIdx.x / 32)),
        lane(static_cast<int>(threadIdx.x) % 32),
        thread(
            static_cast<int>(blockIdx.x % static_cast<unsigned>(blocks) * kAttentionThreads + threadIdx.x)),
        threads(static_cast<int>(blocks) * kAttentionThreads) {}
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
  constexpr int64_t kMax = 99 * 1024 / (kAttentionWarps * 2 * int64_t{sizeof(float)}) - 32;
  HEED_CHECK(width <= kMax, ShapeError, "attention: heads of width ", width, "; on CUDA at most ", kMax);
}

inline size_t warp_rows_bytes(int64_t width, int count) {
  return static_cast<size_t>(kAttentionWarps * WarpRows::floats(width, count)) * sizeof(float);
}

}  // namespace heed::cuda
