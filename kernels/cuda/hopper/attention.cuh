// What the attention kernels for Hopper share: tiles of rows that the TMA brings, products of them by a
// warpgroup, and the ring of tiles between the warp that loads and those that compute (Shah et al., arXiv
// 2407.08608).
#pragma once

#include <algorithm>
#include <cstdint>

#include <climits>

#include <heed/kernels/cuda/attention/attention_gaps.cuh>
#include <heed/kernels/cuda/attention/attention_pairs.cuh>
#include <heed/kernels/cuda/device.cuh>
#include <heed/kernels/simt/hopper.h>

namespace heed::cuda::hopper {

inline constexpr int kGroupThreads = 128, kGroupRows = 64;  // of a warpgroup
inline constexpr int kColumns = 64;                         // of a panel: 128 bytes of bf16
inline constexpr int kStages = 2;                           // tiles that stream past and are on their way

/// The block's warpgroup, the same number for all of a warp to the compiler.
__device__ __forceinline__ int warpgroup() {
  return __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / kGroupThreads, 0);
}

/// How the work is cut: clusters of `blocks` take units by turns, each several one after the other, so that
/// its loads go on while it finishes. A unit is a stretch of rows of a sequence and
/// head or, `paired`, the first and the last, the second and the last but one, and so on: under a causal rule
/// all pairs see as much.
struct Cut {
  unsigned blocks;
  unsigned sequences;
  unsigned stretches;  // of a sequence
  unsigned per_plane;  // units of a sequence and head
  unsigned units;      // in all
  bool paired;

  /// Sequences of at most `longest` rows, `rows` a stretch.
  template <class Args>
  Cut(const char* what, const Args& args, int64_t longest, int rows, int64_t heads, unsigned together = 1)
      : blocks(together),
        sequences(static_cast<unsigned>(args.segments.count)),
        stretches(static_cast<unsigned>(simt::ceil_div<int64_t>(longest, rows))) {
    const int64_t planes = args.segments.count * heads;
    paired = hides_later(args.visibility.causal) && planes * stretches >= 4 * multiprocessors();
    per_plane = paired ? (stretches + 1) / 2 : stretches;
    HEED_CHECK(planes * per_plane < int64_t{1} << 31, ShapeError, what, ": ", planes,
               " sequences of a head are too many on CUDA");
    units = static_cast<unsigned>(planes * per_plane);
  }

  simt::Grid grid() const {
    const unsigned clusters = std::max(static_cast<unsigned>(multiprocessors()) / blocks, 1u);
    return {dim3(std::min(units, clusters) * blocks), blocks};
  }

  /// work(sequence, head, stretch) for all of a block's, the long ones first.
  template <class F>
  __device__ __forceinline__ void each_task(const F& work) const {
    unsigned unit = blockIdx.x / blocks;
    bool second = false;
#pragma unroll 1
    while (unit < units) {
      const unsigned place = unit % per_plane, plane = unit / per_plane;
      const unsigned stretch = second ? place : stretches - 1 - place;
      work(static_cast<int>(plane % sequences), static_cast<int>(plane / sequences),
           static_cast<int>(stretch));
      second = paired && !second && stretch != place;
      if (!second) unit += gridDim.x / blocks;
    }
  }
};

/// The map of a view's rows, for boxes of `box` rows of one head and 64 columns.
inline simt::TensorMap map_of(const char* what, const kernels::HeadsView<const bfloat16>& view, int64_t rows,
                              int64_t heads, int64_t width, int box) {
  constexpr uint64_t kElement = sizeof(bfloat16);
  const auto bytes = [&](int64_t stride, int64_t count) {  // the stride along an axis of one element is free
    return count == 1 ? width * kElement : static_cast<uint64_t>(stride) * kElement;
  };
  simt::TensorMap map;
  check(simt::make_tensor_map(
            map, view.data,
            {static_cast<uint64_t>(width), static_cast<uint64_t>(heads), static_cast<uint64_t>(rows)},
            {bytes(view.head_stride, heads), bytes(view.row_stride, rows)},
            {kColumns, 1, static_cast<uint32_t>(box)}),
        what);
  return map;
}

/// Rows of a head in shared memory, 64 columns side by side and then the next 64; aligned to 1,024 bytes.
template <int kRows, int kWidth>
struct Panels {
  static constexpr int kPanel = kRows * kColumns;
  static constexpr uint32_t kBytes = kRows * kWidth * sizeof(bfloat16);

  bfloat16 data[kRows * kWidth];

  /// Begins to copy the rows from `row` on, by one thread.
  __device__ __forceinline__ void load(const simt::TensorMap& map, int64_t row, int head,
                                       simt::Mbarrier& barrier) {
#pragma unroll
    for (int panel = 0; panel < kWidth / kColumns; ++panel)
      simt::tma_load(data + panel * kPanel, map, panel * kColumns, head, static_cast<int>(row), barrier);
  }

  /// Likewise by the blocks of a cluster, to all of them: each block's thread brings its share of the rows.
  template <int kBlocks>
  __device__ __forceinline__ void load_share(const simt::TensorMap& map, int64_t row, int head,
                                             simt::Mbarrier& barrier) {
    static_assert(kRows % (8 * kBlocks) == 0, "chunks are permuted in eight rows");
    const int first = static_cast<int>(simt::block_in_cluster()) * (kRows / kBlocks);
#pragma unroll
    for (int panel = 0; panel < kWidth / kColumns; ++panel)
      simt::tma_load_multicast(data + panel * kPanel + first * kColumns, map, panel * kColumns, head,
                               static_cast<int>(row) + first, barrier, (1 << kBlocks) - 1);
  }

  /// Rows from `row` on, columns [16 step, 16 step + 16) as the inner dimension of a product.
  __device__ __forceinline__ uint64_t columns(int row, int step) const {
    constexpr int kSteps = kColumns / 16;
    return simt::matrix_descriptor(data + step / kSteps * kPanel + row * kColumns) +
           static_cast<uint64_t>(step % kSteps) * 2;  // 32 bytes
  }

  /// The columns from those of `panel` on, rows [16 step, 16 step + 16) as the inner dimension.
  __device__ __forceinline__ uint64_t rows(int step, int panel = 0) const {
    return simt::matrix_descriptor(data + panel * kPanel + step * 16 * kColumns, kPanel * sizeof(bfloat16));
  }
};

/// products[64 x kRows] = rows [row, row + 64) of a by those of b.
template <int kRowsA, int kRows, int kWidth>
__device__ __forceinline__ void multiply(float (&products)[kRows / 8][4], const Panels<kRowsA, kWidth>& a,
                                         int row, const Panels<kRows, kWidth>& b) {
#pragma unroll
  for (int step = 0; step < kWidth / 16; ++step)
    simt::wgmma<simt::Major::k>(products, a.columns(row, step), b.columns(0, step), step != 0);
}

/// Weights of 64 rows and kRows of another operand, as the first operand of a product.
template <int kRows>
struct Weights {
  uint32_t word[kRows / 16][4];

  __device__ __forceinline__ void take(const float (&value)[kRows / 8][4]) {
#pragma unroll
    for (int step = 0; step < kRows / 16; ++step)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float(&four)[4] = value[2 * step + i / 2];
        word[step][i] = pair(four[i % 2 * 2], four[i % 2 * 2 + 1]);
      }
  }
};

/// Writes a warpgroup's weights to rows [row, row + 64) of `to`, by all of its threads.
template <int kRows>
__device__ __forceinline__ void write_weights(Panels<kRows, kColumns>& to, int row,
                                              const Weights<kColumns>& weights) {
  const int lane = lane_id(), first = row + static_cast<int>(threadIdx.x) / 32 % 4 * kTile + lane / 4;
#pragma unroll
  for (int step = 0; step < kColumns / 16; ++step)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int chunk = (2 * step + i / 2) ^ (first % 8);  // as the TMA would permute them
      bfloat16* const at = to.data + (first + i % 2 * 8) * kColumns + chunk * 8 + lane % 4 * 2;
      *reinterpret_cast<uint32_t*>(at) = weights.word[step][i];
    }
}

/// sums[64 x kWidth] += weights by the rows of b.
template <int kRows, int kWidth>
__device__ __forceinline__ void add_products(Sums<kWidth>& sums, const Weights<kRows>& weights,
                                             const Panels<kRows, kWidth>& b) {
#pragma unroll
  for (int step = 0; step < kRows / 16; ++step)
    simt::wgmma<simt::Major::mn>(sums.value, weights.word[step], b.rows(step), true);
}

/// The n-th use of a ring of kStages tiles: which of them, and the parity of the phase in which it is filled.
template <int kStages>
struct Turn {
  unsigned n = 0;

  __device__ __forceinline__ unsigned stage() const { return n % kStages; }
  __device__ __forceinline__ uint32_t parity() const { return n / kStages % 2; }
  __device__ __forceinline__ void next() { ++n; }
};

/// The barriers of a tile: `full` when it is there, `free` when all warps that read it are done, in all of
/// the kBlocks blocks that it goes to.
template <int kBlocks = 1>
struct Stage {
  simt::Mbarrier full, free;

  /// `readers`: warps of a block.
  __device__ __forceinline__ void init(uint32_t writers, uint32_t readers) {
    simt::mbarrier_init(full, writers);
    simt::mbarrier_init(free, readers * kBlocks);
  }

  __device__ __forceinline__ void wait_free(uint32_t parity) { simt::mbarrier_wait(free, parity ^ 1); }
  /// Waits until the tile may be written, and begins to: by the only thread that does.
  template <int kRows, int kWidth>
  __device__ __forceinline__ void load(Panels<kRows, kWidth>& tile, const simt::TensorMap& map, int64_t row,
                                       int head, uint32_t parity) {
    wait_free(parity);
    simt::mbarrier_arrive_expect(full, Panels<kRows, kWidth>::kBytes);
    if constexpr (kBlocks == 1)
      tile.load(map, row, head, full);
    else
      tile.template load_share<kBlocks>(map, row, head, full);
  }

  __device__ __forceinline__ void wait(uint32_t parity) { simt::mbarrier_wait(full, parity); }
  /// By every warp that reads the tile.
  __device__ __forceinline__ void done() {
    if constexpr (kBlocks == 1) {
      if (lane_id() == 0) simt::mbarrier_arrive(free);
    } else {
      if (lane_id() < kBlocks) simt::mbarrier_arrive_at(free, lane_id());
    }
  }
};

// What a row sees, or is seen by, is a Range: it has no holes here, since windows are not dilated, and moves
// on with the row.

// Visibility's key_begin() and key_end() for the rules that is_for_hopper() lets through, in fewer registers.
__device__ __forceinline__ Range keys_seen_by(const Visibility& v, int query, const BatchHead& p) {
  if (query >= p.queries) return {0, 0};
  const int diagonal = v.causal == Causal::bottom_right ? query + p.keys - p.queries : query;
  int begin = 0, end = p.keys;
  if (v.causal != Causal::none && diagonal + 1 < end) end = diagonal + 1;
  if (v.window_right >= 0 && int64_t{diagonal} + v.window_right + 1 < end)
    end = diagonal + v.window_right + 1;
  if (v.window_left >= 0 && int64_t{diagonal} - v.window_left > begin) begin = diagonal - v.window_left;
  return {begin, end < 0 ? 0 : end};
}

__device__ __forceinline__ Range queries_that_see(const Visibility& v, int key, const BatchHead& p) {
  if (key >= p.keys) return {0, 0};
  const int on_diagonal = v.causal == Causal::bottom_right ? key - (p.keys - p.queries) : key;
  int begin = 0, end = p.queries;
  if (v.causal != Causal::none && on_diagonal > begin) begin = on_diagonal;
  if (v.window_right >= 0 && on_diagonal - begin > v.window_right) begin = on_diagonal - v.window_right;
  if (v.window_left >= 0 && int64_t{on_diagonal} + v.window_left + 1 < end)
    end = on_diagonal + v.window_left + 1;
  return {begin, end};
}

/// What some of the `rows` rows from `first` on see, or all of them; `count` is how many there are. Of rows
/// that are none, all see everything: what they make is not used.
template <class Of>
__device__ __forceinline__ Range seen_by_some(int first, int rows, int count, const Of& of) {
  const int last = first + rows < count ? first + rows : count;
  return {of(first).begin, of(last - 1).end};
}
template <class Of>
__device__ __forceinline__ Range seen_by_all(int first, int rows, int count, const Of& of) {
  if (first >= count) return {0, INT_MAX};
  const int last = first + rows < count ? first + rows : count;
  return {of(last - 1).begin, of(first).end};
}

/// -inf in the columns that a row does not see; `first`: the place of the first column.
template <int kTiles>
__device__ __forceinline__ void hide(float (&product)[kTiles][4], const Range (&range)[2], int first) {
#pragma unroll
  for (int j = 0; j < kTiles; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int at = first + j * 8 + lane_id() % 4 * 2 + i % 2;
      if (at < range[i / 2].begin || at >= range[i / 2].end) product[j][i] = -kInfinity;
    }
}

}  // namespace heed::cuda::hopper
