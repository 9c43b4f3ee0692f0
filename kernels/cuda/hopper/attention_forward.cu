// Attention's forward for Hopper: one warp loads tiles of keys and values, two or three warpgroups each keep
// 64 queries. A warpgroup computes the softmax of one tile while its product with the next one's keys runs,
// and the warpgroups take turns at the tensor cores (Shah et al., arXiv 2407.08608). Where every query sees
// all keys, two blocks with the queries of one head are a cluster: each loads half of every tile, for both.
#include <heed/kernels/cuda/attention/attention_path.h>
#include <heed/kernels/cuda/attention/attention_softmax.cuh>
#include <heed/kernels/cuda/hopper/attention.cuh>

namespace heed::cuda::hopper {
namespace {

using Bf16Forward = AttentionForward<bfloat16>;

// Tiles of keys where every query sees all keys; others, of which some tiles are seen in part, are smaller.
constexpr int kManyKeys = 176;

template <int kWidth, int kKeys>
struct Shape {
  static constexpr int kBlocks = kKeys == kManyKeys ? 2 : 1;  // of a cluster
  static constexpr int kGroups = kWidth == 64 ? 3 : 2;        // warpgroups that compute
  static constexpr int kQueries = kGroups * kGroupRows, kThreads = (kGroups + 1) * kGroupThreads;
  // Registers of a thread that loads and of one that computes: what the block has, in the shares that it
  // allows.
  static constexpr int kFew = kGroups == 3 ? 32 : 24, kMany = kGroups == 3 ? 160 : 240;
};

template <int kWidth, int kKeys>
struct Memory {
  using S = Shape<kWidth, kKeys>;
  Panels<S::kQueries, kWidth> q;
  Panels<kKeys, kWidth> k[kStages], v[kStages];
  float scratch[4 * S::kGroups][WarpRows::floats(kWidth, 1)];
  Stage<> q_stage;
  Stage<S::kBlocks> k_stage[kStages], v_stage[kStages];
};

struct Maps {
  simt::TensorMap q, k, v;
};

/// Online softmax of 64 queries over tiles of keys; a thread has rows lane / 4 and lane / 4 + 8 of its warp.
class Softmax {
 public:
  __device__ __forceinline__ Softmax(float scale) : scale_(scale) {}

  /// Products become weights; `factor` is what sums so far are to be multiplied by.
  template <int kTiles>
  __device__ __forceinline__ void weigh(float (&product)[kTiles][4], float (&factor)[2]) {
    float shift[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float most = most_[half];
#pragma unroll
      for (int j = 0; j < kTiles; ++j)
        most = fmaxf(most, fmaxf(product[j][2 * half], product[j][2 * half + 1]));
      most = row_max(most);
      shift[half] = most == -kInfinity ? 0.0f : most * scale_;
      factor[half] = simt::exp2_approx(most_[half] * scale_ - shift[half]);
      most_[half] = most;
      total_[half] *= factor[half];
    }
#pragma unroll
    for (int j = 0; j < kTiles; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        product[j][i] = simt::exp2_approx(fmaf(product[j][i], scale_, -shift[i / 2]));
        total_[i / 2] += product[j][i];
      }
  }

  /// The sum of a row's weights, by all lanes; then its log-sum-exp.
  __device__ __forceinline__ float total(int half) { return total_[half] = row_sum(total_[half]); }
  __device__ __forceinline__ float log_sum(int half) const {
    return total_[half] == 0.0f ? -kInfinity : (most_[half] * scale_ + log2f(total_[half])) * kLn2;
  }

 private:
  float scale_, most_[2] = {-kInfinity, -kInfinity}, total_[2] = {};
};

/// A block's queries of a sequence and head, from `first` on, with the tiles of keys that they see:
/// [begin, end), last first. Where all blocks of the cluster are behind the last query there is nothing to
/// do; one that is alone there goes along, since the others count on it.
template <int kWidth, int kKeys>
struct Task {
  BatchHead p;
  int first, begin, end;
  bool empty;

  __device__ __forceinline__ Task(const Bf16Forward& args, int sequence, int head, int part)
      : p(args, sequence, head) {
    using S = Shape<kWidth, kKeys>;
    first = part * S::kQueries;
    empty = part / S::kBlocks * S::kBlocks * S::kQueries >= p.queries;
    const Range seen = seen_by_some(first, S::kQueries, p.queries,
                                    [&](int query) { return keys_seen_by(args.visibility, query, p); });
    begin = seen.begin / kKeys;
    end = simt::ceil_div(seen.end, kKeys);
  }
};

/// The places in the rings of tiles, which go on from task to task.
struct Turns {
  Turn<1> q;
  Turn<kStages> keys;
};

/// By one thread: queries, then keys and values of each tile in turn.
template <int kWidth, int kKeys>
__device__ __forceinline__ void load_tiles(const Maps& maps, const Task<kWidth, kKeys>& task,
                                           Memory<kWidth, kKeys>& memory, Turns& turns) {
  const BatchHead& p = task.p;
  if (task.begin >= task.end) return;
  memory.q_stage.load(memory.q, maps.q, p.query_first + task.first, p.head, turns.q.parity());
  turns.q.next();
  Turn<kStages>& turn = turns.keys;
#pragma unroll 1
  for (int tile = task.end - 1; tile >= task.begin; --tile, turn.next()) {
    const int64_t row = p.key_first + tile * kKeys;
    memory.k_stage[turn.stage()].load(memory.k[turn.stage()], maps.k, row, p.key_head, turn.parity());
    memory.v_stage[turn.stage()].load(memory.v[turn.stage()], maps.v, row, p.key_head, turn.parity());
  }
}

/// Waits until all that read the tiles are done, with values last, or the block might end before others of
/// the cluster arrive at its barriers.
template <int kWidth, int kKeys>
__device__ __forceinline__ void wait_until_free(Memory<kWidth, kKeys>& memory, Turn<kStages> turn) {
  for (int i = 0; i < kStages; ++i, turn.next()) memory.v_stage[turn.stage()].wait_free(turn.parity());
}

/// By a warpgroup: its 64 queries.
template <int kWidth, int kKeys>
__device__ __forceinline__ void attend(const Bf16Forward& args, const Task<kWidth, kKeys>& task,
                                       Memory<kWidth, kKeys>& memory, int group, Turns& turns) {
  constexpr int kGroups = Shape<kWidth, kKeys>::kGroups;
  const BatchHead& p = task.p;
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4, first = task.first + group * kGroupRows;
  const auto seen_by = [&](int query) { return keys_seen_by(args.visibility, query, p); };
  const Range by_all = seen_by_all(first, kGroupRows, p.queries, seen_by);
  const auto hide_some = [&](float(&product)[kKeys / 8][4], int tile) {
    const int key = tile * kKeys, query = first + warp * kTile + lane_id() / 4;
    if (!by_all.contains(key, key + kKeys)) hide(product, {seen_by(query), seen_by(query + 8)}, key);
  };

  Softmax softmax(static_cast<float>(args.scale) * kLog2e);
  Sums<kWidth> out;
  if (task.begin < task.end) {
    int tile = task.end - 1;
    float product[kKeys / 8][4], factor[2];
    Weights<kKeys> weights;
    Turn<kStages>& turn = turns.keys;
    memory.q_stage.wait(turns.q.parity());
    turns.q.next();
    memory.k_stage[turn.stage()].wait(turn.parity());
    simt::wgmma_fence();
    multiply(product, memory.q, group * kGroupRows, memory.k[turn.stage()]);
    simt::wgmma_commit();
    simt::wgmma_wait<0>(product);
    memory.k_stage[turn.stage()].done();
    hide_some(product, tile);
    softmax.weigh(product, factor);
    weights.take(product);
    if (group == 0 && tile > task.begin) simt::barrier_arrive(1, 2 * kGroupThreads);
    while (--tile >= task.begin) {
      Turn<kStages> ahead = turn;
      ahead.next();
      memory.k_stage[ahead.stage()].wait(ahead.parity());
      simt::barrier_sync(1 + group, 2 * kGroupThreads);  // its turn at the tensor cores
      simt::wgmma_fence();
      multiply(product, memory.q, group * kGroupRows, memory.k[ahead.stage()]);
      simt::wgmma_commit();
      memory.v_stage[turn.stage()].wait(turn.parity());
      simt::wgmma_fence();
      add_products(out, weights, memory.v[turn.stage()]);
      simt::wgmma_commit();
      if (tile > task.begin || group + 1 < kGroups)
        simt::barrier_arrive(1 + (group + 1) % kGroups, 2 * kGroupThreads);
      simt::wgmma_wait<1>(product);
      memory.k_stage[ahead.stage()].done();
      hide_some(product, tile);
      softmax.weigh(product, factor);
      simt::wgmma_wait<0>(out.value);
      memory.v_stage[turn.stage()].done();
#pragma unroll
      for (int n = 0; n < kWidth / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) out.value[n][i] *= factor[i / 2];
      weights.take(product);
      turn = ahead;
    }
    memory.q_stage.done();
    memory.v_stage[turn.stage()].wait(turn.parity());
    simt::wgmma_fence();
    add_products(out, weights, memory.v[turn.stage()]);
    simt::wgmma_commit();
    simt::wgmma_wait<0>(out.value);
    memory.v_stage[turn.stage()].done();
    turn.next();
  }

  const BatchHead again(args, p.sequence, p.head);  // less to keep in registers over the loop
  const int row = first + warp * kTile, valid = again.queries - row;
  if (valid <= 0) return;
  float scale[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float total = softmax.total(half);
    scale[half] = total == 0.0f ? 0.0f : 1.0f / total;
  }
  if (!out.finite(valid)) {  // perhaps 0 * NaN of a hidden key
    float* const scratch = memory.scratch[group * 4 + warp];
    __syncwarp();
    for (int i = 0; i < kTile && i < valid; ++i)
      attend_query(args, again, row + i, WarpRows(scratch, kWidth, 1));
    return;
  }
  out.write(row_of(args.out, again.query_first + row, again.head), args.out.row_stride, valid, scale, false);
  if (args.lse == nullptr || lane_id() % 4 != 0) return;
#pragma unroll
  for (int half = 0; half < 2; ++half)
    if (const int i = lane_id() / 4 + half * 8; i < valid)
      args.lse[again.head * args.query_rows + again.query_first + row + i] = softmax.log_sum(half);
}

/// The barriers have been initialised: before any other block of the cluster uses them.
template <int kBlocks>
__device__ __forceinline__ void begin_together() {
  if constexpr (kBlocks == 1)
    __syncthreads();
  else
    simt::cluster_sync();
}

// Budget: 168 registers, 0 bytes shared, 16 bytes stack, 44 bytes spilled.
template <int kWidth, int kKeys>
__global__ void __launch_bounds__(Shape<kWidth, kKeys>::kThreads, 1)
    forward_kernel(const __grid_constant__ Maps maps, Bf16Forward args, Cut cut) {
  using S = Shape<kWidth, kKeys>;
  simt::Arena<1024> arena;
  auto& memory = *arena.take<Memory<kWidth, kKeys>>(1, 1024);
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) {
    memory.q_stage.init(1, S::kGroups * 4);
    for (int i = 0; i < kStages; ++i) {
      memory.k_stage[i].init(1, S::kGroups * 4);
      memory.v_stage[i].init(1, S::kGroups * 4);
    }
    simt::mbarrier_init_fence();
  }
  begin_together<S::kBlocks>();
  const auto part_of = [](int stretch) {
    return S::kBlocks == 1 ? stretch : stretch * S::kBlocks + static_cast<int>(simt::block_in_cluster());
  };
  const int group = warpgroup() - 1;
  Turns turns;
  if (group < 0) {
    simt::release_registers<S::kFew>();
    if (thread == 0)
      cut.each_task([&](int sequence, int head, int stretch) {
        const Task<kWidth, kKeys> task(args, sequence, head, part_of(stretch));
        if (!task.empty) load_tiles(maps, task, memory, turns);
      });
    if (S::kBlocks > 1 && thread == 0) wait_until_free(memory, turns.keys);
  } else {
    simt::take_registers<S::kMany>();
    cut.each_task([&](int sequence, int head, int stretch) {
      constexpr int kThreads = S::kThreads - kGroupThreads;
      const int part = part_of(stretch);
      const Task<kWidth, kKeys> task(args, sequence, head, part);
      clear_output_gaps<8>(args, sequence, head, part * kThreads + thread - kGroupThreads,
                           static_cast<int>(cut.stretches) * S::kBlocks * kThreads);
      if (!task.empty) attend(args, task, memory, group, turns);
    });
  }
}

template <int kWidth, int kKeys = 128>
void forward(const char* what, const Bf16Forward& args) {
  using S = Shape<kWidth, kKeys>;
  const Maps maps{map_of(what, args.q, args.query_rows, args.heads, kWidth, S::kQueries),
                  map_of(what, args.k, args.key_rows, args.key_heads, kWidth, kKeys / S::kBlocks),
                  map_of(what, args.v, args.key_rows, args.key_heads, kWidth, kKeys / S::kBlocks)};
  const Cut cut(what, args, args.segments.max_query, S::kQueries * S::kBlocks, args.heads, S::kBlocks);
  launch(what, forward_kernel<kWidth, kKeys>, cut.grid(), dim3(S::kThreads), sizeof(Memory<kWidth, kKeys>),
         maps, args, cut);
}

}  // namespace

void attention_forward(const char* what, const kernels::AttentionForward<bfloat16>& args) {
  if (args.width == 64) return forward<64>(what, args);
  const Visibility& v = args.visibility;
  const bool all = v.causal == Causal::none && v.window_left < 0 && v.window_right < 0;
  // From 1,024 keys on less than a seventh of what is computed lies behind the last.
  all&& args.segments.max_key >= 1024 ? forward<128, kManyKeys>(what, args) : forward<128>(what, args);
}

}  // namespace heed::cuda::hopper
