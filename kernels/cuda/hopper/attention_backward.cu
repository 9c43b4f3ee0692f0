// Attention's gradients for Hopper, in two launches: blocks that keep queries and let the keys stream past,
// then blocks that keep keys and let the queries of all their heads stream past. Each makes the weights
// again, so that every sum has one owner and nothing is added atomically. What streams is always the second
// operand of a product, in shared memory; weights and their gradients are the first, and stay in registers.
#include <heed/kernels/cuda/attention/attention_gradient.cuh>
#include <heed/kernels/cuda/attention/attention_path.h>
#include <heed/kernels/cuda/hopper/attention.cuh>

namespace heed::cuda::hopper {
namespace {

constexpr int kGroups = 2, kRows = kGroups * kGroupRows;
constexpr int kComputing = kGroups * kGroupThreads, kThreads = kComputing + kGroupThreads;
// Registers of a thread that loads, and of one that computes.
template <int kWidth>
constexpr int kFew = kWidth == 64 ? 40 : 24;
template <int kWidth>
constexpr int kMany = kWidth == 64 ? 232 : 240;
constexpr int kReaders = kGroups * 4;  // warps

constexpr int kQueries = 64;  // of a tile that streams past

template <int kWidth>
struct QueryMemory {
  Panels<kRows, kWidth> q, gout;
  Panels<kKeys, kWidth> k[kStages], v[kStages];
  float delta[kRows], scratch[kReaders][WarpRows::floats(kWidth, 1)];
  Stage q_stage, gout_stage, k_stage[kStages], v_stage[kStages];
};

/// Tiles [begin, end) of keys that some of a block's queries see; the last comes first.
struct KeyTiles {
  int begin, end;

  __device__ __forceinline__ KeyTiles(const Bf16Backward& args, const BatchHead& p, int first) {
    const Range seen = seen_by_some(first, kRows, p.queries,
                                    [&](int query) { return keys_seen_by(args.visibility, query, p); });
    begin = seen.begin / kKeys;
    end = simt::ceil_div(seen.end, kKeys);
  }
};

/// The places in the rings of tiles, which go on from task to task.
struct Turns {
  Turn<1> kept;
  Turn<kStages> streamed;
};

struct Maps {
  simt::TensorMap q, gout, k, v;
};

/// By a warpgroup: the gradients of its 64 queries.
template <int kWidth>
__device__ __forceinline__ void query_gradients(const Bf16Backward& args, const BatchHead& p, int block_first,
                                                QueryMemory<kWidth>& memory, int group, Turns& turns) {
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4, first = block_first + group * kGroupRows;
  const int in_block = group * kGroupRows + warp * kTile, query = block_first + in_block;
  const auto seen_by = [&](int row) { return keys_seen_by(args.visibility, row, p); };
  const Range by_all = seen_by_all(first, kGroupRows, p.queries, seen_by);
  const float scale = static_cast<float>(args.scale) * kLog2e;
  float shift[2], delta[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int i = lane_id() / 4 + 8 * half;
    delta[half] = memory.delta[in_block + i];
    shift[half] = query + i < p.queries
                      ? shift_of(args.lse[p.head * args.query_rows + p.query_first + query + i])
                      : kInfinity;
  }

  Sums<kWidth> gq[1];
  const KeyTiles tiles(args, p, block_first);
  if (tiles.begin < tiles.end) {
    int tile = tiles.end - 1;
    float weight[kKeys / 8][4], gradient[kKeys / 8][4];
    Weights<kKeys> operand;
    Turn<kStages>& turn = turns.streamed;
    memory.q_stage.wait(turns.kept.parity);
    memory.k_stage[turn.stage].wait(turn.parity);
    simt::wgmma_fence();
    multiply(weight, memory.q, group * kGroupRows, memory.k[turn.stage]);
    simt::wgmma_commit();
    memory.gout_stage.wait(turns.kept.parity);
    turns.kept.next();
    while (true) {
      memory.v_stage[turn.stage].wait(turn.parity);
      simt::wgmma_fence();
      multiply(gradient, memory.gout, group * kGroupRows, memory.v[turn.stage]);
      simt::wgmma_commit();
      simt::wgmma_wait<1>(weight);
      const int key = tile * kKeys;
      if (!by_all.contains(key, key + kKeys))
        hide(weight, {seen_by(query + lane_id() / 4), seen_by(query + lane_id() / 4 + 8)}, key);
#pragma unroll
      for (int j = 0; j < kKeys / 8; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          weight[j][i] = simt::exp2_approx(fmaf(weight[j][i], scale, -shift[i / 2]));
      simt::wgmma_wait<0>(gradient);
      memory.v_stage[turn.stage].done();
#pragma unroll
      for (int j = 0; j < kKeys / 8; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i) gradient[j][i] = weight[j][i] * (gradient[j][i] - delta[i / 2]);
      operand.take(gradient);
      simt::wgmma_fence();
      add_products(gq[0], operand, memory.k[turn.stage]);
      simt::wgmma_commit();
      if (--tile < tiles.begin) break;
      Turn<kStages> ahead = turn;
      ahead.next();
      memory.k_stage[ahead.stage].wait(ahead.parity);
      simt::wgmma_fence();
      multiply(weight, memory.q, group * kGroupRows, memory.k[ahead.stage]);
      simt::wgmma_commit();
      simt::wgmma_wait<1>(gq[0].value);
      memory.k_stage[turn.stage].done();
      turn = ahead;
    }
    memory.q_stage.done();
    memory.gout_stage.done();
    simt::wgmma_wait<0>(gq[0].value);
    memory.k_stage[turn.stage].done();
    turn.next();
  }
  if (query < p.queries) write_query_gradients(gq, args, p, query, memory.scratch[group * 4 + warp]);
}

/// By one thread: queries with their gradients of outputs, then the tiles of keys and values.
template <int kWidth>
__device__ __forceinline__ void load_keys(const Maps& maps, const Bf16Backward& args, const BatchHead& p,
                                          int first, QueryMemory<kWidth>& memory, Turns& turns) {
  const KeyTiles tiles(args, p, first);
  if (tiles.begin >= tiles.end) return;  // or the block might end during the copies
  const int64_t row = p.query_first + first;
  memory.q_stage.load(memory.q, maps.q, row, p.head, turns.kept.parity);
  memory.gout_stage.load(memory.gout, maps.gout, row, p.head, turns.kept.parity);
  turns.kept.next();
  Turn<kStages>& turn = turns.streamed;
  for (int tile = tiles.end - 1; tile >= tiles.begin; --tile, turn.next()) {
    const int64_t key_row = p.key_first + tile * kKeys;
    memory.k_stage[turn.stage].load(memory.k[turn.stage], maps.k, key_row, p.key_head, turn.parity);
    memory.v_stage[turn.stage].load(memory.v[turn.stage], maps.v, key_row, p.key_head, turn.parity);
  }
}

// delta_to: [heads, query_rows], Σ gout * out of each query.
// Budget: 168 registers, 0 bytes shared.
template <int kWidth>
__global__ void __launch_bounds__(kThreads, 1)
    query_kernel(const __grid_constant__ Maps maps, Bf16Backward args, Cut cut, float* delta_to) {
  simt::Arena<1024> arena;
  auto& memory = *arena.take<QueryMemory<kWidth>>(1, 1024);
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) {
    memory.q_stage.init(1, kReaders);
    memory.gout_stage.init(1, kReaders);
    for (int i = 0; i < kStages; ++i) {
      memory.k_stage[i].init(1, kReaders);
      memory.v_stage[i].init(1, kReaders);
    }
    simt::mbarrier_init_fence();
  }
  __syncthreads();
  const int group = warpgroup() - 1;
  Turns turns;
  if (group < 0) {
    simt::release_registers<kFew<kWidth>>();
    if (thread == 0 && args.gq.data != nullptr)
      cut.each_task([&](int sequence, int head, int stretch) {
        const BatchHead p(args, sequence, head);
        if (stretch * kRows < p.queries) load_keys(maps, args, p, stretch * kRows, memory, turns);
      });
    return;
  }
  simt::take_registers<kMany<kWidth>>();
  cut.each_task([&](int sequence, int head, int stretch) {
    const BatchHead p(args, sequence, head);
    clear_query_gaps<8>(args, sequence, head, stretch * kComputing + thread - kGroupThreads,
                        static_cast<int>(cut.stretches) * kComputing);
    const int first = stretch * kRows, row = group * kGroupRows + thread / 32 % 4 * kTile,
              query = first + row;
    if (first >= p.queries) return;
    __syncwarp();  // nobody reads those of the task before
    write_deltas<kWidth>(memory.delta + row, args, p.query_first + query, p.head, p.queries - query);
    __syncwarp();
    if (const int i = lane_id(); i < kTile && query + i < p.queries)
      delta_to[p.head * args.query_rows + p.query_first + query + i] = memory.delta[row + i];
    if (args.gq.data != nullptr) query_gradients(args, p, first, memory, group, turns);
  });
}

/// Two queries side by side, as a thread has them.
struct alignas(16) TwoQueries {
  float shift[2], delta[2];
};

template <int kWidth>
struct KeyMemory {
  Panels<kRows, kWidth> k, v;
  Panels<kQueries, kWidth> q[kStages], gout[kStages];
  TwoQueries values[kStages][kQueries / 2];
  float scratch[kReaders][WarpRows::floats(kWidth, 2)];
  Stage k_stage, v_stage, stage[kStages];
};

/// The tiles of queries that see some of a block's keys, head by head.
struct QueryTiles {
  int begin, end;  // queries
  int head, last_head;
  int query;  // the first of the tile

  __device__ __forceinline__ QueryTiles(const Bf16Backward& args, const BatchHead& p, int heads,
                                        int first_key)
      : head(p.head), last_head(p.head + heads) {
    const Range seen = seen_by_some(first_key, kRows, p.keys,
                                    [&](int key) { return queries_that_see(args.visibility, key, p); });
    begin = seen.begin / kQueries * kQueries;
    end = seen.end;
    query = begin;
    if (seen.begin >= seen.end) head = last_head;
  }

  __device__ __forceinline__ bool there() const { return head < last_head; }
  __device__ __forceinline__ void next() {
    query += kQueries;
    if (query < end) return;
    query = begin;
    ++head;
  }
};

/// By the first warp of a block: tiles of queries with their gradients of outputs, log-sum-exps and deltas.
template <int kWidth>
__device__ __forceinline__ void load_queries(const Maps& maps, const Bf16Backward& args,
                                             const BatchHead& first, int heads, int first_key,
                                             const float* delta, KeyMemory<kWidth>& memory, Turns& turns) {
  constexpr int kStep = kQueries;
  const int lane = lane_id();
  QueryTiles tile(args, first, heads, first_key);
  if (!tile.there()) return;  // or the block might end during the copies
  if (lane == 0) {
    const int64_t row = first.key_first + first_key;
    memory.k_stage.load(memory.k, maps.k, row, first.key_head, turns.kept.parity);
    memory.v_stage.load(memory.v, maps.v, row, first.key_head, turns.kept.parity);
  }
  turns.kept.next();
  Turn<kStages>& turn = turns.streamed;
  for (; tile.there(); tile.next(), turn.next()) {
    Stage& stage = memory.stage[turn.stage];
    const int64_t row = first.query_first + tile.query, at = tile.head * args.query_rows + row;
    float shift[kStep / 32], deltas[kStep / 32];
#pragma unroll
    for (int i = 0; i < kStep / 32; ++i) {
      const int query = i * 32 + lane;
      const bool valid = tile.query + query < first.queries;
      shift[i] = valid ? shift_of(args.lse[at + query]) : kInfinity;
      deltas[i] = valid ? delta[at + query] : 0.0f;
    }
    stage.wait_free(turn.parity);
#pragma unroll
    for (int i = 0; i < kStep / 32; ++i) {
      const int query = i * 32 + lane;
      TwoQueries& two = memory.values[turn.stage][query / 2];
      two.shift[query % 2] = shift[i];
      two.delta[query % 2] = deltas[i];
    }
    if (lane == 0) {
      simt::mbarrier_arrive_expect(stage.full, 2 * Panels<kStep, kWidth>::kBytes);
      memory.q[turn.stage].load(maps.q, row, tile.head, stage.full);
      memory.gout[turn.stage].load(maps.gout, row, tile.head, stage.full);
    } else {
      simt::mbarrier_arrive(stage.full);
    }
  }
}

/// By a warpgroup: the gradients of its 64 keys, which are the rows of its products.
template <int kWidth>
__device__ __forceinline__ void key_gradients(const Bf16Backward& args, const BatchHead& p, int heads,
                                              int block_first, KeyMemory<kWidth>& memory, int group,
                                              Turns& turns) {
  constexpr int kStep = kQueries;
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4, first = block_first + group * kGroupRows;
  const int in_block = group * kGroupRows + warp * kTile, key = block_first + in_block;
  const auto seen_by = [&](int row) { return queries_that_see(args.visibility, row, p); };
  const Range by_all = seen_by_all(first, kGroupRows, p.keys, seen_by);
  const float scale = static_cast<float>(args.scale) * kLog2e;
  Sums<kWidth> gk[1], gv[1];
  QueryTiles tile(args, p, heads, block_first);
  if (tile.there()) {
    float weight[kStep / 8][4], gradient[kStep / 8][4];
    Weights<kStep> weights, gradients;
    Turn<kStages>& turn = turns.streamed;
    memory.k_stage.wait(turns.kept.parity);
    memory.stage[turn.stage].wait(turn.parity);
    simt::wgmma_fence();
    multiply(weight, memory.k, group * kGroupRows, memory.q[turn.stage]);
    simt::wgmma_commit();
    memory.v_stage.wait(turns.kept.parity);
    turns.kept.next();
    while (true) {
      const TwoQueries* const values = memory.values[turn.stage] + lane_id() % 4;
      simt::wgmma_fence();
      multiply(gradient, memory.v, group * kGroupRows, memory.gout[turn.stage]);
      simt::wgmma_commit();
      simt::wgmma_wait<1>(weight);
      if (!by_all.contains(tile.query, tile.query + kStep))
        hide(weight, {seen_by(key + lane_id() / 4), seen_by(key + lane_id() / 4 + 8)}, tile.query);
#pragma unroll
      for (int j = 0; j < kStep / 8; ++j) {
        const TwoQueries two = values[j * 4];
#pragma unroll
        for (int i = 0; i < 4; ++i)
          weight[j][i] = simt::exp2_approx(fmaf(weight[j][i], scale, -two.shift[i % 2]));
      }
      weights.take(weight);
      simt::wgmma_fence();
      add_products(gv[0], weights, memory.gout[turn.stage]);
      simt::wgmma_commit();
      simt::wgmma_wait<1>(gradient);
#pragma unroll
      for (int j = 0; j < kStep / 8; ++j) {
        const TwoQueries two = values[j * 4];
#pragma unroll
        for (int i = 0; i < 4; ++i) gradient[j][i] = weight[j][i] * (gradient[j][i] - two.delta[i % 2]);
      }
      gradients.take(gradient);
      simt::wgmma_fence();
      add_products(gk[0], gradients, memory.q[turn.stage]);
      simt::wgmma_commit();
      tile.next();
      if (!tile.there()) break;
      Turn<kStages> ahead = turn;
      ahead.next();
      memory.stage[ahead.stage].wait(ahead.parity);
      simt::wgmma_fence();
      multiply(weight, memory.k, group * kGroupRows, memory.q[ahead.stage]);
      simt::wgmma_commit();
      simt::wgmma_wait<1>(gk[0].value, gv[0].value);
      __syncwarp();  // all lanes have read their values
      memory.stage[turn.stage].done();
      turn = ahead;
    }
    memory.k_stage.done();
    memory.v_stage.done();
    simt::wgmma_wait<0>(gk[0].value, gv[0].value);
    __syncwarp();
    memory.stage[turn.stage].done();
    turn.next();
  }
  const BatchHead again(args, p.sequence, p.head);  // less to keep in registers over the loop
  if (key < again.keys) write_key_gradients(gk, gv, args, again, key, memory.scratch[group * 4 + warp]);
}

// Budget: 168 registers, 0 bytes shared, 56 bytes stack, 164 bytes spilled.
template <int kWidth>
__global__ void __launch_bounds__(kThreads, 1)
    key_kernel(const __grid_constant__ Maps maps, Bf16Backward args, Cut cut, const float* delta) {
  simt::Arena<1024> arena;
  auto& memory = *arena.take<KeyMemory<kWidth>>(1, 1024);
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) {
    memory.k_stage.init(1, kReaders);
    memory.v_stage.init(1, kReaders);
    for (Stage& stage : memory.stage) stage.init(32, kReaders);
    simt::mbarrier_init_fence();
  }
  __syncthreads();
  const int heads = heads_of_a_key_head(args), group = warpgroup() - 1;
  Turns turns;
  if (group < 0) {
    simt::release_registers<kFew<kWidth>>();
    if (thread < 32)
      cut.each_task([&](int sequence, int key_head, int stretch) {
        const BatchHead p(args, sequence, key_head * heads);
        if (stretch * kRows < p.keys)
          load_queries(maps, args, p, heads, stretch * kRows, delta, memory, turns);
      });
    return;
  }
  simt::take_registers<kMany<kWidth>>();
  cut.each_task([&](int sequence, int key_head, int stretch) {
    const BatchHead p(args, sequence, key_head * heads);
    clear_key_gaps<8>(args, sequence, key_head, stretch * kComputing + thread - kGroupThreads,
                      static_cast<int>(cut.stretches) * kComputing);
    if (stretch * kRows < p.keys) key_gradients(args, p, heads, stretch * kRows, memory, group, turns);
  });
}

template <int kWidth>
void backward(const char* what, const Bf16Backward& args) {
  const SegmentsView& s = args.segments;
  const Scratch scratch(static_cast<size_t>(args.heads * args.query_rows) * sizeof(float));
  float* const delta = scratch.as<float>();
  const auto maps = [&](int queries, int keys) {
    return Maps{map_of(what, args.q, args.query_rows, args.heads, kWidth, queries),
                map_of(what, args.gout, args.query_rows, args.heads, kWidth, queries),
                map_of(what, args.k, args.key_rows, args.key_heads, kWidth, keys),
                map_of(what, args.v, args.key_rows, args.key_heads, kWidth, keys)};
  };
  if (s.max_query > 0) {
    const Cut cut(what, args, s.max_query, kRows, args.heads);
    launch(what, query_kernel<kWidth>, cut.grid(), dim3(kThreads), sizeof(QueryMemory<kWidth>),
           maps(kRows, kKeys), args, cut, delta);
  }
  if (s.max_key > 0 && (args.gk.data != nullptr || args.gv.data != nullptr)) {
    const Cut cut(what, args, s.max_key, kRows, args.key_heads);
    launch(what, key_kernel<kWidth>, cut.grid(), dim3(kThreads), sizeof(KeyMemory<kWidth>),
           maps(kQueries, kRows), args, cut, static_cast<const float*>(delta));
  }
}

}  // namespace

void attention_backward(const char* what, const Bf16Backward& args) {
  if (args.width == 64) return backward<64>(what, args);
  backward<128>(what, args);
}

}  // namespace heed::cuda::hopper
