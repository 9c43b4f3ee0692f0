// Attention's gradients for Hopper. Blocks of threads keep 128 keys, whose gradients they own, and let the
// queries of all their heads stream past; what a tile of queries gets from a block's keys they add to sums in
// global memory, in a fixed order (query_sums.cuh). A launch before makes Σ gout * out, one behind it makes
// the sums gradients. Five products a tile; weights and their gradients are the first operands of two in
// registers, and the gradients, in shared memory, of that for the queries.
#include <algorithm>

#include <heed/kernels/cuda/attention/attention_path.h>
#include <heed/kernels/cuda/hopper/query_sums.cuh>

namespace heed::cuda::hopper {
namespace {

constexpr int kGroups = 2;
static_assert(kGroups * kGroupRows == kKeptKeys);
constexpr int kComputing = kGroups * kGroupThreads, kThreads = kComputing + kGroupThreads;
// Registers of a thread that loads or adds, and of one that computes.
template <int kWidth>
constexpr int kFew = kWidth == 64 ? 40 : 24;
template <int kWidth>
constexpr int kMany = kWidth == 64 ? 232 : 240;
constexpr int kReaders = kGroups * 4;  // warps

struct Maps {
  simt::TensorMap q, gout, k, v;
};

/// Two queries side by side, as a thread has them.
struct alignas(16) TwoQueries {
  float shift[2], delta[2];
};

template <int kWidth>
struct Memory {
  Panels<kKeptKeys, kWidth> k, v;
  Panels<kQueries, kWidth> q[kStages], gout[kStages];
  Panels<kKeptKeys, kQueries> gradients[2];  // of scores
  PartStage parts[kGroups];
  TwoQueries values[kStages][kQueries / 2];
  float scratch[kReaders][WarpRows::floats(kWidth, 2)];
  Stage<> k_stage, v_stage, stage[kStages];
  TaskStage tasks[kTaskStages];
};

/// By a warp: keys and values, then tiles of queries with their gradients of outputs, log-sum-exps and
/// deltas.
template <int kWidth>
__device__ __forceinline__ void load_tiles(const Maps& maps, const Bf16Backward& args, const BatchHead& p,
                                           int heads, int first_key, const float* delta,
                                           Memory<kWidth>& memory, Progress& progress) {
  const int lane = lane_id();
  QueryTiles tile(args, p, heads, first_key);
  if (!tile.there()) return;  // or the block might end during the copies
  if (lane == 0) {
    const int64_t row = p.key_first + first_key;
    const uint32_t parity = progress.kept.parity();
    memory.k_stage.load(memory.k, maps.k, row, p.key_head, parity);
    memory.v_stage.load(memory.v, maps.v, row, p.key_head, parity);
  }
  progress.kept.next();
  for (; tile.there(); tile.next(), progress.tiles.next()) {
    const unsigned at_stage = progress.tiles.stage();
    Stage<>& stage = memory.stage[at_stage];
    const int64_t row = p.query_first + tile.query, at = tile.head * args.query_rows + row;
    float shift[kQueries / 32], deltas[kQueries / 32];
#pragma unroll
    for (int i = 0; i < kQueries / 32; ++i) {
      const int query = i * 32 + lane;
      const bool valid = tile.query + query < p.queries;
      shift[i] = valid ? shift_of(args.lse[at + query]) : kInfinity;
      deltas[i] = valid ? delta[at + query] : 0.0f;
    }
    stage.wait_free(progress.tiles.parity());
#pragma unroll
    for (int i = 0; i < kQueries / 32; ++i) {
      const int query = i * 32 + lane;
      TwoQueries& two = memory.values[at_stage][query / 2];
      two.shift[query % 2] = shift[i];
      two.delta[query % 2] = deltas[i];
    }
    if (lane == 0) {
      simt::mbarrier_arrive_expect(stage.full, 2 * Panels<kQueries, kWidth>::kBytes);
      memory.q[at_stage].load(maps.q, row, tile.head, stage.full);
      memory.gout[at_stage].load(maps.gout, row, tile.head, stage.full);
    } else {
      simt::mbarrier_arrive(stage.full);
    }
  }
}

/// By a warpgroup: the gradients of its 64 keys, which are the rows of its products, and its parts of those
/// of the queries.
template <int kWidth>
__device__ __forceinline__ void add_gradients(const Bf16Backward& args, const BatchHead& p, int heads,
                                              int block_first, Memory<kWidth>& memory, int group,
                                              Progress& progress) {
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4, first = block_first + group * kGroupRows;
  const int in_block = group * kGroupRows + warp * kTile, key = block_first + in_block;
  const auto seen_by = [&](int row) { return queries_that_see(args.visibility, row, p); };
  // Of rows that are no keys the queries must get nothing.
  const Range by_all =
      first + kGroupRows <= p.keys ? seen_by_all(first, kGroupRows, p.keys, seen_by) : Range{0, 0};
  const float scale = static_cast<float>(args.scale) * kLog2e;
  Sums<kWidth> gk[1], gv[1];
  QueryTiles tile(args, p, heads, block_first);
  if (tile.there()) {
    float weight[kQueries / 8][4], gradient[kQueries / 8][4];
    Weights<kQueries> weights, gradients;
    Turn<kStages>& turn = progress.tiles;
    memory.k_stage.wait(progress.kept.parity());
    memory.stage[turn.stage()].wait(turn.parity());
    simt::wgmma_fence();
    multiply(weight, memory.k, group * kGroupRows, memory.q[turn.stage()]);
    simt::wgmma_commit();
    memory.v_stage.wait(progress.kept.parity());
    progress.kept.next();
    while (true) {
      const TwoQueries* const values = memory.values[turn.stage()] + lane_id() % 4;
      simt::wgmma_fence();
      multiply(gradient, memory.v, group * kGroupRows, memory.gout[turn.stage()]);
      simt::wgmma_commit();
      simt::wgmma_wait<1>(weight);
      if (!by_all.contains(tile.query, tile.query + kQueries))
        hide(weight, {seen_by(key + lane_id() / 4), seen_by(key + lane_id() / 4 + 8)}, tile.query);
#pragma unroll
      for (int j = 0; j < kQueries / 8; ++j) {
        const TwoQueries two = values[j * 4];
#pragma unroll
        for (int i = 0; i < 4; ++i)
          weight[j][i] = simt::exp2_approx(fmaf(weight[j][i], scale, -two.shift[i % 2]));
      }
      weights.take(weight);
      simt::wgmma_fence();
      add_products(gv[0], weights, memory.gout[turn.stage()]);
      simt::wgmma_commit();
      simt::wgmma_wait<1>(gradient);
#pragma unroll
      for (int j = 0; j < kQueries / 8; ++j) {
        const TwoQueries two = values[j * 4];
#pragma unroll
        for (int i = 0; i < 4; ++i) gradient[j][i] = weight[j][i] * (gradient[j][i] - two.delta[i % 2]);
      }
      gradients.take(gradient);
      Panels<kKeptKeys, kQueries>& shared = memory.gradients[turn.n % 2];
      write_weights(shared, group * kGroupRows, gradients);
      simt::fence_async_shared();
      simt::barrier_sync(1, kComputing);  // both have written theirs, and read those of the tile before
      float part[kColumns / 8][4];
      const PartOf<kWidth> part_of(group, turn.n);
      if (part_of.mine) {
        simt::wgmma_fence();
#pragma unroll
        for (int step = 0; step < kKeptKeys / 16; ++step)
          simt::wgmma<simt::Major::mn, simt::Major::mn>(part, shared.rows(step),
                                                        memory.k.rows(step, part_of.panel), step != 0);
        simt::wgmma_commit();
      }
      simt::wgmma_fence();
      add_products(gk[0], gradients, memory.q[turn.stage()]);
      simt::wgmma_commit();
      simt::wgmma_wait<1>(part, gv[0].value);
      if (part_of.mine) memory.parts[group].put(part, part_of.parity);
      tile.next();
      if (!tile.there()) break;
      Turn<kStages> ahead = turn;
      ahead.next();
      memory.stage[ahead.stage()].wait(ahead.parity());
      simt::wgmma_fence();
      multiply(weight, memory.k, group * kGroupRows, memory.q[ahead.stage()]);
      simt::wgmma_commit();
      simt::wgmma_wait<1>(gk[0].value);
      __syncwarp();  // all lanes have read their values
      memory.stage[turn.stage()].done();
      turn = ahead;
    }
    memory.k_stage.done();
    memory.v_stage.done();
    simt::wgmma_wait<0>(gk[0].value);
    __syncwarp();
    memory.stage[turn.stage()].done();
    turn.next();
  }
  const BatchHead again(args, p.sequence, p.head);  // less to keep in registers over the loop
  if (key < again.keys) write_key_gradients(gk, gv, args, again, key, memory.scratch[group * 4 + warp]);
}

/// work(task) for all of a block's, by warps that compute or by single threads.
template <int kWidth, class F>
__device__ __forceinline__ void each_task(Memory<kWidth>& memory, Progress& progress, bool single,
                                          const F& work) {
  while (true) {
    TaskStage& from = memory.tasks[progress.tasks.stage()];
    from.stage.wait(progress.tasks.parity());
    const KeyTask task = from.task;
    progress.tasks.next();
    if (!single) __syncwarp();
    if (single || lane_id() == 0) simt::mbarrier_arrive(from.stage.free);
    if (!task.there()) return;
    work(task);
  }
}

/// By a warp: takes tasks, tells the other roles, and does its own work(task) for each.
template <int kWidth, class F>
__device__ __forceinline__ void give_tasks(Memory<kWidth>& memory, const Tickets& tickets, Progress& progress,
                                           const F& work) {
  for (bool more = true; more; progress.tasks.next()) {
    KeyTask task = KeyTask::none();
    if (lane_id() == 0) {
      if (progress.tasks.n < tickets.most) task = tickets.take();
      TaskStage& to = memory.tasks[progress.tasks.stage()];
      to.stage.wait_free(progress.tasks.parity());
      to.task = task;
      simt::mbarrier_arrive(to.stage.full);
    }
    task = {__shfl_sync(0xffffffffu, task.sequence, 0), __shfl_sync(0xffffffffu, task.key_head, 0),
            __shfl_sync(0xffffffffu, task.stretch, 0)};
    more = task.there();
    if (more) work(task);
  }
}

// Budget: 168 registers, 0 bytes shared, 64 bytes stack, 264 bytes spilled.
template <int kWidth>
__global__ void __launch_bounds__(kThreads, 1)
    key_kernel(const __grid_constant__ Maps maps, Bf16Backward args, Tickets tickets, const float* delta,
               QuerySums sums) {
  simt::Arena<1024> arena;
  auto& memory = *arena.take<Memory<kWidth>>(1, 1024);
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32;
  if (thread == 0) {
    memory.k_stage.init(1, kReaders);
    memory.v_stage.init(1, kReaders);
    for (Stage<>& stage : memory.stage) stage.init(32, kReaders);
    for (PartStage& parts : memory.parts) parts.stage.init(4, 1);
    for (TaskStage& tasks : memory.tasks) tasks.stage.init(1, kReaders + kGroups);
    simt::mbarrier_init_fence();
  }
  __syncthreads();
  const int heads = heads_of_a_key_head(args), group = warpgroup() - 1;
  Progress progress;
  if (group >= 0) {
    simt::take_registers<kMany<kWidth>>();
    each_task(memory, progress, false, [&](const KeyTask& task) {
      const BatchHead p(args, task.sequence, task.key_head * heads);
      clear_key_gaps<8>(args, task.sequence, task.key_head,
                        task.stretch * kComputing + thread - kGroupThreads,
                        static_cast<int>(tickets.tasks.stretches) * kComputing);
      if (task.stretch * kKeptKeys < p.keys)
        add_gradients(args, p, heads, task.stretch * kKeptKeys, memory, group, progress);
    });
    return;
  }
  simt::release_registers<kFew<kWidth>>();
  if (warp == 0) {
    give_tasks(memory, tickets, progress, [&](const KeyTask& task) {
      const BatchHead p(args, task.sequence, task.key_head * heads);
      if (task.stretch * kKeptKeys < p.keys)
        load_tiles(maps, args, p, heads, task.stretch * kKeptKeys, delta, memory, progress);
    });
  } else if (warp <= kGroups && lane_id() == 0) {
    each_task(memory, progress, true, [&](const KeyTask& task) {
      const BatchHead p(args, task.sequence, task.key_head * heads);
      if (task.stretch * kKeptKeys < p.keys)
        add_parts<kWidth>(args, p, heads, task.stretch, sums, memory.parts[warp - 1], warp - 1, progress);
    });
  }
}

constexpr int kRowWarps = 8, kStretchRows = kRowWarps * kTile;  // of the launches before and behind it

/// delta: [heads, query_rows], Σ gout * out of each query. No ticket is taken, nothing added to the sums.
// Budget: 32 registers, 1024 bytes shared.
template <int kWidth>
__global__ void __launch_bounds__(kRowWarps * 32)
    prepare_kernel(Bf16Backward args, Cut cut, float* delta, QuerySums sums, unsigned* taken) {
  struct Deltas {
    float of[kRowWarps][kTile];
  };
  auto& deltas = simt::shared<Deltas>();
  if (blockIdx.x == 0 && threadIdx.x == 0) *taken = 0;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  cut.each_task([&](int sequence, int head, int stretch) {
    const BatchHead p(args, sequence, head);
    const int first = stretch * kStretchRows, query = first + warp * kTile;
    if (query >= p.queries) return;
    if (args.gq.data != nullptr && query % kQueries == 0 && lane_id() < kWidth / kColumns)
      sums.last[sums.place<kWidth>(p, head, query) + lane_id()] = 0;
    __syncwarp();
    write_deltas<kWidth>(deltas.of[warp], args, p.query_first + query, head, p.queries - query);
    __syncwarp();
    if (const int i = lane_id(); i < kTile && query + i < p.queries)
      delta[head * args.query_rows + p.query_first + query + i] = deltas.of[warp][i];
  });
}

// Budget: 104 registers, 5120 bytes shared, 32 bytes stack, 80 bytes spilled.
template <int kWidth>
__global__ void __launch_bounds__(kRowWarps * 32) finish_kernel(Bf16Backward args, Cut cut, QuerySums sums) {
  struct Scratch {
    float of[kRowWarps][WarpRows::floats(kWidth, 1)];
  };
  auto& scratch = simt::shared<Scratch>();
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32;
  cut.each_task([&](int sequence, int head, int stretch) {
    clear_query_gaps<8>(args, sequence, head, stretch * kRowWarps * 32 + thread,
                        static_cast<int>(cut.stretches) * kRowWarps * 32);
    const BatchHead p(args, sequence, head);
    const int query = stretch * kStretchRows + warp * kTile;
    if (query >= p.queries) return;
    Sums<kWidth> gq[1];
    const int64_t place = sums.place<kWidth>(p, head, query - query % kQueries);
    if (sums.last[place] != 0) {
#pragma unroll
      for (int n = 0; n < kWidth / 8; ++n) {
        const Part& part = sums.parts[place + n / (kColumns / 8)];
        const auto four =
            simt::load_as<float4>(&part.four[n % (kColumns / 8)][query % kQueries / kTile * 32 + lane_id()]);
        gq[0].value[n][0] = four.x, gq[0].value[n][1] = four.y;
        gq[0].value[n][2] = four.z, gq[0].value[n][3] = four.w;
      }
    }
    write_query_gradients(gq, args, p, query, scratch.of[warp]);
  });
}

template <int kWidth>
void backward(const char* what, const Bf16Backward& args) {
  const SegmentsView& s = args.segments;
  const bool for_queries = args.gq.data != nullptr;
  const int64_t tiles = QuerySums::tiles_of(args),
                parts = for_queries ? args.heads * tiles * (kWidth / kColumns) : 0;
  const Scratch deltas(static_cast<size_t>(args.heads * args.query_rows) * sizeof(float));
  const Scratch data(static_cast<size_t>(parts) * sizeof(Part));
  const Scratch counters(static_cast<size_t>(parts + 1) * sizeof(unsigned));
  unsigned* const taken = counters.as<unsigned>();
  const QuerySums sums{data.as<Part>(), taken + 1, tiles};
  const Cut cut(what, args, s.max_query, kStretchRows, args.heads);
  launch(what, prepare_kernel<kWidth>, dim3(std::max(cut.units, 1u)), dim3(kRowWarps * 32), 0, args, cut,
         deltas.as<float>(), sums, taken);
  if (for_queries || args.gk.data != nullptr || args.gv.data != nullptr) {
    const Maps maps{map_of(what, args.q, args.query_rows, args.heads, kWidth, kQueries),
                    map_of(what, args.gout, args.query_rows, args.heads, kWidth, kQueries),
                    map_of(what, args.k, args.key_rows, args.key_heads, kWidth, kKeptKeys),
                    map_of(what, args.v, args.key_rows, args.key_heads, kWidth, kKeptKeys)};
    const Tickets tickets(what, args, taken);
    launch(what, key_kernel<kWidth>, dim3(tickets.blocks), dim3(kThreads), sizeof(Memory<kWidth>), maps, args,
           tickets, static_cast<const float*>(deltas.as<float>()), sums);
  }
  if (cut.units > 0 && for_queries)
    launch(what, finish_kernel<kWidth>, dim3(cut.units), dim3(kRowWarps * 32), 0, args, cut, sums);
}

}  // namespace

void attention_backward(const char* what, const Bf16Backward& args) {
  if (args.width == 64) return backward<64>(what, args);
  backward<128>(what, args);
}

}  // namespace heed::cuda::hopper
