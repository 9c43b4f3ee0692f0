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
/// lie in different banks; a tile is aligned to 128 bytes.
template <int kWidth>
struct Tile {
  static constexpr int kChunks = kWidth / 8, kSteps = kWidth / 16;
  static constexpr int kSwapped = kChunks < 8 ? kChunks : 8;  // chunks that change places with each other
  static_assert(kWidth % 16 == 0 && (kChunks & (kChunks - 1)) == 0);

  __device__ static __forceinline__ int offset(int row, int chunk) {
    constexpr int kRowsInAllBanks = 8 / kSwapped;
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
    simt::ldmatrix_x4(out, tile + offset(lane_id() % 16, lane_id() / 16), turned(step), further(row, step));
  }

  /// The rows as columns of the second operand: out[0], out[1] of the first eight, out[2], out[3] of the
  /// others.
  __device__ static __forceinline__ void rows(uint32_t (&out)[4], const bfloat16* tile, int row, int step) {
    simt::ldmatrix_x4(out, tile + offset(lane_id() / 16 * 8 + lane_id() % 8, lane_id() / 8 % 2), turned(step),
                      further(row, step));
  }

  /// As the second operand: out[0], out[1] of the first eight columns, out[2], out[3] of the others.
  __device__ static __forceinline__ void columns(uint32_t (&out)[4], const bfloat16* tile, int row,
                                                 int step) {
    simt::ldmatrix_x4_trans(out, tile + offset(lane_id() % 16, lane_id() / 16), turned(step),
                            further(row, step));
  }

 private:
  // How the address of chunk 2 step + c differs from that of chunk c, for c of 0 and 1: in bits that are
  // turned over, among chunks that change places; and in bytes.
  static constexpr __device__ __forceinline__ uint32_t turned(int step) {
    return static_cast<uint32_t>(2 * step % kSwapped * 16);
  }
  static constexpr __device__ __forceinline__ uint32_t further(int row, int step) {
    return static_cast<uint32_t>(row * kWidth * 2 + 2 * step / kSwapped * kSwapped * 16);
  }
};

/// kRows rows as the first operand of products: held in registers, or read again each time.
template <int kWidth, int kRows, bool kInRegisters = true>
class Operand {
 public:
  __device__ __forceinline__ Operand(const bfloat16* tile, int row) : tile_(tile + row * kWidth) {
    if constexpr (kInRegisters) {
#pragma unroll
      for (int t = 0; t < kRows / kTile; ++t)
#pragma unroll
        for (int step = 0; step < Tile<kWidth>::kSteps; ++step)
          Tile<kWidth>::first(fragment_[t][step], tile_, t * kTile, step);
    }
  }

  /// products[kRows x kColumns] = these rows by rows [row, row + kColumns) of `tile`. What is read of these
  /// is for all rows.
  template <int kColumns>
  __device__ __forceinline__ void multiply(float (&products)[kRows / kTile][kColumns / 8][4],
                                           const bfloat16* tile, int row) const {
#pragma unroll
    for (int t = 0; t < kRows / kTile; ++t)
#pragma unroll
      for (int n = 0; n < kColumns / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) products[t][n][i] = 0.0f;
#pragma unroll
    for (int step = 0; step < Tile<kWidth>::kSteps; ++step) {
      uint32_t a[kRows / kTile][4];
#pragma unroll
      for (int t = 0; t < kRows / kTile; ++t) get(a[t], t, step);
#pragma unroll
      for (int n = 0; n < kColumns / 8; n += 2) {
        uint32_t b[4];
        Tile<kWidth>::rows(b, tile, row + n * 8, step);
#pragma unroll
        for (int t = 0; t < kRows / kTile; ++t) {
          simt::mma_m16n8k16_bf16(products[t][n], a[t], b[0], b[1]);
          simt::mma_m16n8k16_bf16(products[t][n + 1], a[t], b[2], b[3]);
        }
      }
    }
  }

 private:
  __device__ __forceinline__ void get(uint32_t (&a)[4], int t, int step) const {
    if constexpr (kInRegisters) {
#pragma unroll
      for (int i = 0; i < 4; ++i) a[i] = fragment_[t][step][i];
    } else {
      Tile<kWidth>::first(a, tile_, t * kTile, step);
    }
  }

  const bfloat16* tile_;
  uint32_t fragment_[kInRegisters ? kRows / kTile : 1][kInRegisters ? Tile<kWidth>::kSteps : 1][4];
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

/// sums += weights[16 kTiles x 8 kSlices] times rows [row, row + 8 kSlices) of `tile`; weights as mma.sync
/// leaves its results.
template <int kWidth, int kTiles, int kSlices>
__device__ __forceinline__ void add_weighted(Sums<kWidth> (&sums)[kTiles],
                                             const float (&weights)[kTiles][kSlices][4], const bfloat16* tile,
                                             int row) {
#pragma unroll
  for (int n = 0; n < kSlices; n += 2) {
    uint32_t a[kTiles][4];
#pragma unroll
    for (int t = 0; t < kTiles; ++t)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        a[t][i] = pair(weights[t][n + i / 2][i % 2 * 2], weights[t][n + i / 2][i % 2 * 2 + 1]);
#pragma unroll
    for (int step = 0; step < Tile<kWidth>::kSteps; ++step) {
      uint32_t b[4];
      Tile<kWidth>::columns(b, tile, row + n * 8, step);
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        simt::mma_m16n8k16_bf16(sums[t].value[2 * step], a[t], b[0], b[1]);
        simt::mma_m16n8k16_bf16(sums[t].value[2 * step + 1], a[t], b[2], b[3]);
      }
    }
  }
}

/// Whether the first `valid` rows are all finite.
template <int kWidth, int kTiles>
__device__ __forceinline__ bool all_finite(const Sums<kWidth> (&sums)[kTiles], int valid) {
  bool fine = true;
#pragma unroll
  for (int t = 0; t < kTiles; ++t) fine = sums[t].finite(valid - t * kTile) && fine;
  return fine;
}

/// Writes the first `valid` rows times scale, or adds them to what is there, from row `row` of a head on.
template <int kWidth, int kTiles>
__device__ __forceinline__ void write_rows(const Sums<kWidth> (&sums)[kTiles],
                                           const kernels::HeadsView<bfloat16>& to, int64_t row, int head,
                                           int valid, float scale, bool accumulate) {
#pragma unroll
  for (int t = 0; t < kTiles; ++t)
    sums[t].write(row_of(to, row + t * kTile, head), to.row_stride, valid - t * kTile, {scale, scale},
                  accumulate);
}

}  // namespace heed::cuda
