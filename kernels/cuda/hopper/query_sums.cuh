// The gradients of queries, summed in f32 in global memory over the blocks of threads that keep keys: one
// block after another in an order that never changes, so that the sums do not either (Qiang et al., arXiv
// 2601.21824). A block waits only for one that took its ticket before, which runs or is over.
#pragma once

#include <algorithm>

#include <heed/kernels/cuda/attention/attention_gradient.cuh>
#include <heed/kernels/cuda/hopper/attention.cuh>
#include <heed/kernels/cuda/hopper/key_tasks.cuh>

namespace heed::cuda::hopper {

inline constexpr int kQueries = 64, kKeptKeys = 128;  // of a tile that streams past, of a block

/// How blocks take tasks, one after another.
struct Tickets {
  unsigned* taken;  // how many were
  KeyTasks tasks;
  unsigned blocks;
  unsigned most;  // of a block: twice its share, or where blocks run one after another the first took all

  Tickets(const char* what, const Bf16Backward& args, unsigned* counter) : taken(counter) {
    const int64_t planes = args.segments.count * args.key_heads,
                  stretches = simt::ceil_div<int64_t>(args.segments.max_key, kKeptKeys);
    HEED_CHECK(planes * stretches < int64_t{1} << 30, ShapeError, what, ": ", planes,
               " sequences of a head are too many on CUDA");
    const auto processors = static_cast<unsigned>(multiprocessors());
    tasks = {static_cast<unsigned>(args.segments.count), static_cast<unsigned>(args.key_heads),
             static_cast<unsigned>(stretches), std::max(processors / static_cast<unsigned>(stretches), 1u)};
    blocks = std::min(tasks.count(), processors);
    most = 2 * simt::ceil_div(tasks.count(), blocks);
  }

  /// By one thread of a block, until there are none or it has taken the most.
  __device__ __forceinline__ KeyTask take() const { return tasks[atomicAdd(taken, 1u)]; }
};

/// Where the thread that takes tasks leaves them for the other roles of its block.
struct TaskStage {
  KeyTask task;
  Stage<> stage;
};
inline constexpr int kTaskStages = 2;

/// How far a role of a block has come: all roles see the same tasks and tiles.
struct Progress {
  Turn<kTaskStages> tasks;
  Turn<1> kept;         // keys that were loaded
  Turn<kStages> tiles;  // of queries
};

/// The tiles of queries that see some of a block's keys, head by head.
struct QueryTiles {
  int begin, end;  // queries; none: equal
  int head, last_head;
  int query;  // the first of the tile

  __device__ __forceinline__ QueryTiles(const Bf16Backward& args, const BatchHead& p, int heads,
                                        int first_key)
      : head(p.head), last_head(p.head + heads) {
    Range seen{0, 0};
    if (first_key < p.keys)
      seen = seen_by_some(first_key, kKeptKeys, p.keys,
                          [&](int key) { return queries_that_see(args.visibility, key, p); });
    begin = seen.begin / kQueries * kQueries;
    end = seen.end;
    query = begin;
    if (seen.begin >= seen.end) {
      end = begin;
      head = last_head;
    }
  }

  __device__ __forceinline__ bool there() const { return head < last_head; }
  __device__ __forceinline__ bool contain(int first) const { return begin <= first && first < end; }
  __device__ __forceinline__ void next() {
    query += kQueries;
    if (query < end) return;
    query = begin;
    ++head;
  }
};

/// 64 queries by 64 columns as a warpgroup has them: of each eight columns, the four sums of each thread.
struct Part {
  static constexpr uint32_t kBytes = kQueries * kColumns * sizeof(float);

  float4 four[kColumns / 8][kGroupThreads];
};

struct QuerySums {
  Part* parts;     // [heads, tiles, columns / 64]
  unsigned* last;  // likewise: one more than the stretch of keys that was added last; 0: none was
  int64_t tiles;   // of a head

  /// Tiles are a sequence's own; where sequences are in order, they find room between those of its
  /// neighbours.
  static int64_t tiles_of(const Bf16Backward& args) {
    return args.query_rows / kQueries + args.segments.count;
  }
  /// The first part of a tile, which begins with `query`.
  template <int kWidth>
  __device__ __forceinline__ int64_t place(const BatchHead& p, int head, int query) const {
    return (head * tiles + (p.query_first + query) / kQueries + p.sequence) * (kWidth / kColumns);
  }
};

/// The way of a warpgroup's parts to global memory.
struct PartStage {
  Part part;
  Stage<> stage;

  /// By a warpgroup.
  __device__ __forceinline__ void put(const float (&sums)[kColumns / 8][4], uint32_t parity) {
    stage.wait_free(parity);
#pragma unroll
    for (int n = 0; n < kColumns / 8; ++n)
      part.four[n][threadIdx.x % kGroupThreads] = {sums[n][0], sums[n][1], sums[n][2], sums[n][3]};
    simt::fence_async_shared();
    __syncwarp();
    if (lane_id() == 0) simt::mbarrier_arrive(stage.full);
  }
};

/// Whether a warpgroup makes a part of the n-th tile: of two parts one each; of one in turn. Then which part
/// of the tile it is, and the parity of its stage.
template <int kWidth>
struct PartOf {
  static constexpr bool kBoth = kWidth > kColumns;
  bool mine;
  int panel;
  uint32_t parity;

  __device__ __forceinline__ PartOf(int group, unsigned tile)
      : mine(kBoth || tile % 2 == static_cast<unsigned>(group)),
        panel(kBoth ? group : 0),
        parity(kBoth ? tile % 2 : tile / 2 % 2) {}
};

/// By one thread: adds a part to the sums at `place` when the stretch of keys behind this one has; the first
/// one sets them. Then `part` may be written again.
__device__ __forceinline__ void add_part(const QuerySums& sums, int64_t place, PartStage& from, int stretch,
                                         bool first) {
  const auto number = static_cast<unsigned>(stretch) + 1;
  if (first) {
    simt::bulk_store(sums.parts + place, &from.part, Part::kBytes);
  } else {
    while (atomicAdd(sums.last + place, 0u) != number + 1) simt::spin_pause();
    __threadfence();
    simt::fence_async_global();
    simt::bulk_add(&sums.parts[place].four[0][0].x, &from.part.four[0][0].x, Part::kBytes);
  }
  simt::bulk_commit();
  simt::bulk_wait_read<0>();
  simt::mbarrier_arrive(from.stage.free);
  simt::bulk_wait<0>();
  __threadfence();
  atomicExch(sums.last + place, number);
}

/// By one thread: takes the parts of a warpgroup of all tiles of a task, and adds them where the gradients
/// are wanted.
template <int kWidth>
__device__ __forceinline__ void add_parts(const Bf16Backward& args, const BatchHead& p, int heads,
                                          int stretch, const QuerySums& sums, PartStage& from, int group,
                                          Progress& progress) {
  const QueryTiles before(args, p, heads, (stretch + 1) * kKeptKeys);
  for (QueryTiles tile(args, p, heads, stretch * kKeptKeys); tile.there();
       tile.next(), progress.tiles.next()) {
    const PartOf<kWidth> part(group, progress.tiles.n);
    if (!part.mine) continue;
    from.stage.wait(part.parity);
    if (args.gq.data != nullptr)
      add_part(sums, sums.place<kWidth>(p, tile.head, tile.query) + part.panel, from, stretch,
               !before.contain(tile.query));
    else
      simt::mbarrier_arrive(from.stage.free);
  }
}

}  // namespace heed::cuda::hopper
