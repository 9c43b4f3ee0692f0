// Tiles of bf16 rows in shared memory, the fragments that mma.sync takes from them, and the way of its
// results back to global memory. Everything here is one warp's unless it says otherwise.
#pragma once

#include <cstdint>
#include <cstring>

#include <heed/kernels/cuda/attention/attention_score.cuh>
#include <heed/kernels/cuda/vector.cuh>

namespace heed::cuda {

inline constexpr int kTile = 16;  // queries or keys that a warp takes at a time: the rows of mma.sync

__device__ __forceinline__ int lane_id() { return static_cast<int>(threadIdx.x) % 32; }

/// Rows of kWidth elements. The 16-byte chunks of a row are permuted such that the eight rows of an ldmatrix
/// lie in different banks.
template <int kWidth>
struct Tile {
  static constexpr int kChunks = kWidth / 8, kSteps = kWidth / 16;
  static_assert(kWidth % 16 == 0 && (kChunks & (kChunks - 1)) == 0);

  __device__ static __forceinline__ int offset(int row, int chunk) {
    constexpr int kRowsInAllBanks = kChunks < 8 ? 8 / kChunks : 1, kSwapped = kChunks < 8 ? kChunks : 8;
    return row * kWidth + (chunk ^ row / kRowsInAllBanks % kSwapped) * 8;  // repeats after eight rows
  }

  /// Begins to copy `rows` rows of a head, from row `first` on, with zeros from the `valid`-th on: thread
  /// `thread` of `threads`.
  __device__ static __forceinline__ void load(bfloat16* tile, const kernels::HeadsView<const bfloat16>& view,
                                              int64_t first, int head, int rows, int valid, int thread,
                                              int threads) {
    const int chunk = thread % kChunks, step = threads / kChunks;
    const bfloat16* const from = row_of(view, first, head);
    const bfloat16* next = from + thread / kChunks * view.row_stride + chunk * 8;
#pragma unroll 1
    for (int row = thread / kChunks; row < rows; row += step, next += step * view.row_stride)
      simt::cp_async<16>(tile + offset(row, chunk), row < valid ? next : from, row < valid);
  }

  // Fragments of rows [row, row + 16) and columns [16 step, 16 step + 16); row is a multiple of 16.

  /// As the first operand.
  __device__ static __forceinline__ void first(uint32_t (&out)[4], const bfloat16* tile, int row, int step) {
    simt::ldmatrix_x4(out, tile + row * kWidth + offset(lane_id() % 16, 2 * step + lane_id() / 16));
  }

  /// The rows as columns of the second operand: out[0], out[1] of the first eight, out[2], out[3] of the
  /// others.
  __device__ static __forceinline__ void rows(uint32_t (&out)[4], const bfloat16* tile, int row, int step) {
    simt::ldmatrix_x4(
        out, tile + row * kWidth + offset(lane_id() / 16 * 8 + lane_id() % 8, 2 * step + lane_id() / 8 % 2));
  }

  /// As the second operand: out[0], out[1] of the first eight columns, out[2], out[3] of the others.
  __device__ static __forceinline__ void columns(uint32_t (&out)[4], const bfloat16* tile, int row,
                                                 int step) {
    simt::ldmatrix_x4_trans(out, tile + row * kWidth + offset(lane_id() % 16, 2 * step + lane_id() / 16));
  }
};

/// Sixteen rows as the first operand of products: held in registers, or read again each time.
template <int kWidth, bool kInRegisters = true>
class Operand {
 public:
  __device__ __forceinline__ Operand(const bfloat16* tile, int row) : tile_(tile), row_(row) {
    if constexpr (kInRegisters) {
#pragma unroll
      for (int step = 0; step < Tile<kWidth>::kSteps; ++step)
        Tile<kWidth>::first(fragment_[step], tile, row, step);
    }
  }

  /// products[16 x 16] = these rows by rows [row, row + 16) of `tile`.
  __device__ __forceinline__ void multiply(float (&products)[2][4], const bfloat16* tile, int row) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) products[0][i] = products[1][i] = 0.0f;
#pragma unroll(kInRegisters ? Tile <kWidth>::kSteps : 2)
    for (int step = 0; step < Tile<kWidth>::kSteps; ++step) {
      uint32_t b[4];
      Tile<kWidth>::rows(b, tile, row, step);
      if constexpr (kInRegisters) {
        simt::mma_m16n8k16_bf16(products[0], fragment_[step], b[0], b[1]);
        simt::mma_m16n8k16_bf16(products[1], fragment_[step], b[2], b[3]);
      } else {
        uint32_t a[4];
        Tile<kWidth>::first(a, tile_, row_, step);
        simt::mma_m16n8k16_bf16(products[0], a, b[0], b[1]);
        simt::mma_m16n8k16_bf16(products[1], a, b[2], b[3]);
      }
    }
  }

 private:
  const bfloat16* tile_;
  int row_;
  uint32_t fragment_[kInRegisters ? Tile<kWidth>::kSteps : 1][4];
};

/// Two neighbours of an operand.
__device__ __forceinline__ uint32_t pair(float low, float high) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
  uint32_t word;
  memcpy(&word, &both, sizeof word);
  return word;
}

/// Sixteen rows of sums, as mma.sync leaves them: lane l has of eight columns each the elements 2 (l % 4) and
/// + 1 of row l / 4, then those of row l / 4 + 8.
template <int kWidth>
struct Sums {
  float value[kWidth / 8][4] = {};

  /// += weights[16 x 16] times rows [row, row + 16) of `tile`; weights as two results of mma.sync.
  __device__ __forceinline__ void add(const float (&w0)[4], const float (&w1)[4], const bfloat16* tile,
                                      int row) {
    const uint32_t a[4] = {pair(w0[0], w0[1]), pair(w0[2], w0[3]), pair(w1[0], w1[1]), pair(w1[2], w1[3])};
#pragma unroll
    for (int step = 0; step < Tile<kWidth>::kSteps; ++step) {
      uint32_t b[4];
      Tile<kWidth>::columns(b, tile, row, step);
      simt::mma_m16n8k16_bf16(value[2 * step], a, b[0], b[1]);
      simt::mma_m16n8k16_bf16(value[2 * step + 1], a, b[2], b[3]);
    }
  }

  /// Whether the first `valid` rows are all finite, in any lane.
  __device__ __forceinline__ bool finite(int valid) const {
    bool fine = true;
#pragma unroll
    for (int n = 0; n < kWidth / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        fine = fine && (fabsf(value[n][i]) < kInfinity || lane_id() / 4 + i / 2 * 8 >= valid);
    return __all_sync(0xffffffffu, fine);
  }

  /// Writes the first `valid` rows times scale, or adds them to what is there. A lane exchanges with its
  /// neighbour, so that it has four columns side by side, and four lanes a sector.
  __device__ __forceinline__ void write(bfloat16* to, int64_t stride, int valid, const float (&scale)[2],
                                        bool accumulate) const {
    const bool odd = lane_id() % 2 == 1;
    const int column = lane_id() % 4 * 2 + (odd ? 6 : 0);
#pragma unroll
    for (int n = 0; n < kWidth / 8; n += 2) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float *a = value[n] + 2 * half, *b = value[n + 1] + 2 * half;
        const float x = __shfl_xor_sync(0xffffffffu, odd ? a[0] : b[0], 1),
                    y = __shfl_xor_sync(0xffffffffu, odd ? a[1] : b[1], 1);
        float four[4] = {odd ? x : a[0], odd ? y : a[1], odd ? b[0] : x, odd ? b[1] : y};
        const int row = lane_id() / 4 + half * 8;
        if (row >= valid) continue;
        bfloat16* const at = to + row * stride + n * 8 + column;
        float old[4] = {};
        if (accumulate) cuda::load<4>(old, at);
#pragma unroll
        for (int i = 0; i < 4; ++i) four[i] = old[i] + four[i] * scale[half];
        cuda::store<4>(at, four);
      }
    }
  }
};

}  // namespace heed::cuda
