// Attention over short sequences: a block holds all queries and keys of a sequence for one or several heads,
// and a warp takes sixteen queries, for the backward then sixteen keys. One launch each way, every sum with
// one owner.
#include <algorithm>

#include <heed/kernels/cuda/attention/attention_gaps.cuh>
#include <heed/kernels/cuda/attention/attention_gradient.cuh>
#include <heed/kernels/cuda/attention/attention_path.h>
#include <heed/kernels/cuda/attention/attention_softmax.cuh>
#include <heed/kernels/cuda/device.cuh>

namespace heed::cuda {
namespace {

constexpr int kMaxBlockWarps = 8;

__host__ __device__ constexpr int whole_tiles(int rows) { return simt::ceil_div(rows, kTile) * kTile; }

/// How a block is cut: `slots` heads at a time, so that the rows of neighbouring heads are read together,
/// each with `warps` warps and a barrier of their own.
struct Cut {
  unsigned slots, warps;
  int query_rows, key_rows;  // rows: the longest, in whole tiles

  /// For sequences of which a head takes `tiles` warps.
  Cut(const SegmentsView& segments, int64_t heads, int64_t width, int tiles)
      : warps(static_cast<unsigned>(std::max(1, tiles))),
        query_rows(whole_tiles(segments.max_query)),
        key_rows(whole_tiles(segments.max_key)) {
    slots = static_cast<unsigned>(std::min<int64_t>({64 / width, kMaxBlockWarps / warps, heads}));
  }

  dim3 grid(int64_t sequences, int64_t heads) const {
    return attention_grid(sequences, simt::ceil_div<int64_t>(heads, slots));
  }
  dim3 block() const { return {slots * warps * 32}; }
};

/// A warp's place in the block.
struct WarpPlace {
  unsigned slot;
  int first;                  // query or key of the warp
  int head, thread, threads;  // of the slot

  __device__ __forceinline__ explicit WarpPlace(const Cut& cut)
      : slot(threadIdx.x / 32 / cut.warps),
        first(static_cast<int>(threadIdx.x / 32 % cut.warps) * kTile),
        head(static_cast<int>(blockIdx.y * cut.slots + slot)),
        thread(static_cast<int>(threadIdx.x % (cut.warps * 32))),
        threads(static_cast<int>(cut.warps * 32)) {}
};

/// Waits for the copies of the slot's warps.
__device__ __forceinline__ void meet(const WarpPlace& me) {
  simt::cp_async_wait<0>();
  simt::barrier_sync(1 + static_cast<int>(me.slot), me.threads);
}

/// The shared memory of a slot; scratch is the warp's own. The forward has no gout, shift and delta.
template <int kWidth, bool kBackward>
struct SlotMemory {
  static constexpr int kScratch = Pairs<Bf16Backward>::kScratch;

  bfloat16 *q, *k, *v, *gout;
  float *scratch, *shift, *delta;
  uint8_t* kept;

  __device__ __forceinline__ SlotMemory(const Cut& cut, const WarpPlace& me) {
    simt::Arena<> arena;
    q = arena.take<bfloat16>(cut.slots * elements(cut), 128) + me.slot * elements(cut);
    k = q + cut.query_rows * kWidth;
    v = k + cut.key_rows * kWidth;
    gout = v + cut.key_rows * kWidth;
    scratch = arena.take<float>(cut.slots * cut.warps * kScratch) + threadIdx.x / 32 * kScratch;
    shift = arena.take<float>(cut.slots * values(cut)) + me.slot * values(cut);
    delta = shift + cut.query_rows;
    kept = arena.take<uint8_t>(cut.slots * decisions(cut)) + me.slot * decisions(cut);
  }

  static size_t bytes(const Cut& cut) {
    return simt::SharedLayout()
        .add<bfloat16>(cut.slots * elements(cut), 128)
        .add<float>(cut.slots * cut.warps * kScratch)
        .add<float>(cut.slots * values(cut))
        .add<uint8_t>(cut.slots * decisions(cut))
        .bytes;
  }

 private:
  static __host__ __device__ size_t elements(const Cut& cut) {
    return static_cast<size_t>((kBackward ? 2 : 1) * cut.query_rows + 2 * cut.key_rows) * kWidth;
  }
  static __host__ __device__ size_t values(const Cut& cut) {
    return kBackward ? 2 * static_cast<size_t>(cut.query_rows) : 0;
  }
  static __host__ __device__ size_t decisions(const Cut& cut) {
    return static_cast<size_t>(cut.query_rows * cut.key_rows / 8);
  }
};

template <class Args>
struct ShortWork {
  Args args;
  Cut cut;
};

// Budget: 152 registers, 0 bytes shared.
template <int kWidth>
__global__ void __launch_bounds__(kMaxBlockWarps * 32, (kWidth < 64 ? 2 : 1))
    forward_kernel(simt::Dependent<ShortWork<AttentionForward<bfloat16>>> arguments) {
  const ShortWork<AttentionForward<bfloat16>>& work = arguments.wait();
  const AttentionForward<bfloat16>& args = work.args;
  const Cut& cut = work.cut;
  const WarpPlace me(cut);
  if (me.head >= args.heads) return;
  const BatchHead p(args, static_cast<int>(blockIdx.x), me.head);
  const int queries = p.queries, keys = p.keys;
  clear_output_gaps<8>(args, p.sequence, me.head, me.thread, me.threads);
  if (queries == 0) return;
  const SlotMemory<kWidth, false> memory(cut, me);
  Tile<kWidth>::load(memory.q, args.q, p.query_first, p.head, cut.query_rows, queries, me.thread, me.threads);
  Tile<kWidth>::load(memory.k, args.k, p.key_first, p.key_head, cut.key_rows, keys, me.thread, me.threads);
  Tile<kWidth>::load(memory.v, args.v, p.key_first, p.key_head, cut.key_rows, keys, me.thread, me.threads);
  simt::cp_async_commit();
  const int query = me.first;
  const KeptKeys kept(memory.kept, cut.key_rows / 8, args.dropout.active());
  kept.draw(args, p, query, 0, query, 0, query < queries ? kTile : 0, whole_tiles(keys) / 8);
  meet(me);
  if (query >= queries) return;

  const Operand<kWidth, kTile> q(memory.q, query);
  const Pairs<AttentionForward<bfloat16>> pairs(args, p, memory.scratch);
  OnlineSoftmax<kWidth, kTile> softmax;
  softmax.template add<kShortLength, true>(q, memory.k, memory.v, pairs, kept, query, 0, query, 0, keys);
  softmax.write(args, p, query, memory.scratch);
}

// blockIdx.y and the slot: the head of the keys, whose queries' heads the block takes one after the other.
// Budget: 248 registers, 0 bytes shared.
template <int kWidth>
__global__ void __launch_bounds__(kMaxBlockWarps * 32, 1)
    backward_kernel(simt::Dependent<ShortWork<Bf16Backward>> arguments) {
  const ShortWork<Bf16Backward>& work = arguments.wait();
  const Bf16Backward& args = work.args;
  const Cut& cut = work.cut;
  const WarpPlace me(cut);
  if (me.head >= args.key_heads) return;
  const int group = heads_of_a_key_head(args);
  const BatchHead first(args, static_cast<int>(blockIdx.x), me.head * group);
  const int queries = first.queries, keys = first.keys;
  clear_key_gaps<8>(args, first.sequence, me.head, me.thread, me.threads);
  const SlotMemory<kWidth, true> memory(cut, me);
  const int mine = me.first;
  Tile<kWidth>::load(memory.k, args.k, first.key_first, me.head, cut.key_rows, keys, me.thread, me.threads);
  Tile<kWidth>::load(memory.v, args.v, first.key_first, me.head, cut.key_rows, keys, me.thread, me.threads);
  const KeptKeys kept(memory.kept, cut.key_rows / 8, args.dropout.active());
  const QueryValues query_values{memory.shift, memory.delta};
  Sums<kWidth> gk[1], gv[1];
  for (int head = me.head * group; head < (me.head + 1) * group; ++head) {
    const BatchHead p(args, static_cast<int>(blockIdx.x), head);
    clear_query_gaps<8>(args, p.sequence, head, me.thread, me.threads);
    Tile<kWidth>::load(memory.q, args.q, p.query_first, head, cut.query_rows, queries, me.thread, me.threads);
    Tile<kWidth>::load(memory.gout, args.gout, p.query_first, head, cut.query_rows, queries, me.thread,
                       me.threads);
    simt::cp_async_commit();
    if (mine < cut.query_rows) {
      write_query_values<kWidth>(query_values.from(mine), args, p, mine);
      kept.draw(args, p, mine, 0, mine, 0, kTile, whole_tiles(keys) / 8);
    }
    meet(me);
    const Pairs<Bf16Backward> pairs(args, p, memory.scratch);
    if (mine < queries && args.gq.data != nullptr) {
      const Operand<kWidth, kTile, (kWidth < 64)> q(memory.q, mine), gout(memory.gout, mine);
      LaneQueries<RowsAre::queries> of_lane[1];
      of_lane[0].load(query_values, mine);
      Sums<kWidth> gq[1];
#pragma unroll 1
      for (int key = 0; key < keys; key += kTile)
        add_query_gradients<kTile, true>(gq, q, gout, of_lane, args, pairs, kept, mine, key / 8, mine,
                                         {memory.k + key * kWidth, memory.v + key * kWidth}, key);
      write_query_gradients(gq, args, p, mine, memory.scratch);
    }
    if (mine < keys && (args.gk.data != nullptr || args.gv.data != nullptr)) {
      const Operand<kWidth, kTile, (kWidth < 64)> k(memory.k, mine), v(memory.v, mine);
#pragma unroll 1
      for (int query = 0; query < queries; query += kTile)
        add_key_gradients<kTile, true>(
            gk, gv, k, v, args, pairs, kept, query, mine / 8, query,
            {memory.q + query * kWidth, memory.gout + query * kWidth, query_values.from(query)}, mine);
    }
    meet(me);  // before the next head's queries come
  }
  if (mine < keys) write_key_gradients(gk, gv, args, first, mine, memory.scratch);
}

template <int kWidth>
void forward(const char* what, const AttentionForward<bfloat16>& args) {
  const SegmentsView& s = args.segments;
  const Cut cut(s, args.heads, kWidth, simt::ceil_div(s.max_query, kTile));
  launch(what, forward_kernel<kWidth>, cut.grid(s.count, args.heads), cut.block(),
         SlotMemory<kWidth, false>::bytes(cut), ShortWork<AttentionForward<bfloat16>>{args, cut});
}

template <int kWidth>
void backward(const char* what, const Bf16Backward& args) {
  const SegmentsView& s = args.segments;
  const Cut cut(s, args.key_heads, kWidth, simt::ceil_div(std::max(s.max_query, s.max_key), kTile));
  launch(what, backward_kernel<kWidth>, cut.grid(s.count, args.key_heads), cut.block(),
         SlotMemory<kWidth, true>::bytes(cut), ShortWork<Bf16Backward>{args, cut});
}

}  // namespace

void short_attention_forward(const char* what, const AttentionForward<bfloat16>& args) {
  const auto run = args.width == 16 ? forward<16> : args.width == 32 ? forward<32> : forward<64>;
  run(what, args);
}

void short_attention_backward(const char* what, const Bf16Backward& args) {
  const auto run = args.width == 16 ? backward<16> : args.width == 32 ? backward<32> : backward<64>;
  run(what, args);
}

}  // namespace heed::cuda
