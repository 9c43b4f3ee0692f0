// The gradients of attention over sequences of any length, in two launches: a block keeps the queries of its
// warps and lets the keys stream past, then keeps keys and lets the queries of all their heads stream past.
// Each makes the weights again, so that every sum has one owner and nothing is added atomically.
#include <heed/kernels/cuda/attention/attention_gaps.cuh>
#include <heed/kernels/cuda/attention/attention_gradient.cuh>
#include <heed/kernels/cuda/attention/attention_path.h>
#include <heed/kernels/cuda/attention/attention_stream.cuh>
#include <heed/kernels/cuda/device.cuh>

namespace heed::cuda {
namespace {

// Queries, or keys, of a warp. At width 128 their gradients take half of the registers with sixteen, and with
// more a block would leave no room for a second one in shared memory.
template <int kWidth>
constexpr int kRows = kWidth <= 64 ? 32 : 16;

template <int kWidth>
constexpr int kBlockRows = kStreamWarps* kRows<kWidth>;

// Rows of a tile that streams past: what fits into 99 KB together with the rows that stay.
template <int kWidth>
constexpr int kStep = kWidth <= 64 ? 64 : 32;

template <int kWidth>
using Keys = KeyStream<kWidth, kBlockRows<kWidth>, kStep<kWidth>, Bf16Backward>;

template <int kWidth>
struct QueryMemory {
  bfloat16 q[kBlockRows<kWidth> * kWidth], gout[kBlockRows<kWidth> * kWidth];
  typename Keys<kWidth>::Memory keys;
  float shift[kBlockRows<kWidth>], delta[kBlockRows<kWidth>];
  float scratch[kStreamWarps][kRows<kWidth> / kTile * Pairs<Bf16Backward>::kScratch];
  uint8_t kept[kStreamWarps][kRows<kWidth> * kStep<kWidth> / 8];
};

// values: [heads, query_rows] each, what the second launch needs of each query.
// Budget: 256 registers, 0 bytes shared.
template <int kWidth, bool kDropout>
__global__ void __launch_bounds__(kStreamThreads, kStreamBlocks<kWidth>)
    flash_query_kernel(Bf16Backward args, int64_t blocks, QueryValues values) {
  constexpr int kMine = kRows<kWidth>, kStreamed = kStep<kWidth>;
  const StreamTask<kBlockRows<kWidth>> task(blocks, true);
  const BatchHead p(args, task.sequence, static_cast<int>(blockIdx.y));
  clear_query_gaps<8>(args, task.sequence, p.head, task.thread(), task.threads);
  if (task.first >= p.queries) return;
  simt::Arena<> arena;
  auto& memory = *arena.take<QueryMemory<kWidth>>(1, 128);
  const int warp = static_cast<int>(threadIdx.x) / 32, row = warp * kMine, own = task.first + row;
  const int64_t first_row = p.query_first + task.first, at = p.head * args.query_rows + first_row;
  const QueryValues mine{memory.shift + row, memory.delta + row};
#pragma unroll
  for (int i = 0; i < kMine; i += kTile) write_query_values<kWidth>(mine.from(i), args, p, own + i);
  __syncwarp();
  if (const int i = lane_id(); i < kMine && own + i < p.queries) {
    values.shift[at + row + i] = mine.shift[i];
    values.delta[at + row + i] = mine.delta[i];
  }
  if (args.gq.data == nullptr) return;

  stream<kWidth>(memory.q, args.q, first_row, p.head, p.queries - task.first);
  stream<kWidth>(memory.gout, args.gout, first_row, p.head, p.queries - task.first);
  simt::cp_async_commit();
  Keys<kWidth> keys(args, p, task.first, memory.keys);
  simt::cp_async_wait<0>();
  __syncthreads();
  const Operand<kWidth, kMine> q(memory.q, row), gout(memory.gout, row);
  const Pairs<Bf16Backward> pairs(args, p, memory.scratch[warp]);
  const KeptKeys kept(memory.kept[warp], kStreamed / 8, kDropout);
  LaneQueries<RowsAre::queries> of_lane[kMine / kTile];
#pragma unroll
  for (int t = 0; t < kMine / kTile; ++t) of_lane[t].load(mine, t * kTile);
  Sums<kWidth> gq[kMine / kTile];
  const auto plain_range = [&](int query) { return plain_keys(args, p, query, kMine); };
  const Range plain = plain_range(own);
  while (keys.next()) {
    const int key = keys.key(), query = simt::opaque(own);  // less to keep in registers from tile to tile
    if (query >= p.queries) continue;
    if (args.visibility.blocks.given() && !args.visibility.blocks.holds(query, key)) continue;
    kept.draw(args, p, query, key / 8, 0, 0, kMine, kStreamed / 8);
    const auto add = [&]<bool kMasked>(int i) {
      add_query_gradients<kTile, kMasked>(gq, q, gout, of_lane, args, pairs, kept, 0, i / 8,
                                          kMasked ? simt::opaque(query) : query,
                                          {keys.k() + i * kWidth, keys.v() + i * kWidth}, key + i);
    };
    // Dropout takes long and needs registers: the range is found again.
    if ((kDropout ? plain_range(query) : plain).contains(key, key + kStreamed)) {
#pragma unroll 1
      for (int i = 0; i < kStreamed; i += kTile) add.template operator()<false>(i);
    } else if (pairs.seen(query, kMine, key, kStreamed) != BlockVisibility::none) {
#pragma unroll 1
      for (int i = 0; i < kStreamed && key + i < p.keys; i += kTile) add.template operator()<true>(i);
    }
  }
  const BatchHead again(args, task.sequence, static_cast<int>(blockIdx.y));  // less to keep in registers
  if (own < again.queries) write_query_gradients(gq, args, again, own, memory.scratch[warp]);
}

/// The tiles of queries of all heads that see some of a block's keys, head by head, each on its way while the
/// one before is worked on.
template <int kWidth>
class QueryStream {
 public:
  struct Memory {
    bfloat16 q[2][kStep<kWidth> * kWidth], gout[2][kStep<kWidth> * kWidth];
    float shift[2][kStep<kWidth>], delta[2][kStep<kWidth>];
  };

  /// Begins to copy the first tile for keys from `key` on; plane: that of the first of `heads` heads.
  __device__ __forceinline__ QueryStream(const Bf16Backward& args, const QueryValues& values,
                                         const BatchHead& plane, int heads, int key, Memory& memory)
      : args_(args),
        plane_(plane),
        memory_(memory),
        copy_q_(args.q, plane.query_first, plane.head),
        copy_gout_(args.gout, plane.query_first, plane.head),
        values_(values),
        key_(key),
        heads_(heads) {
    find();
    load(0);
  }

  /// On to the next tile, if there is one: by the whole block, which is then done with the one before.
  __device__ __forceinline__ bool next() {
    if (next_head_ >= heads_) return false;
    simt::cp_async_wait<0>();
    __syncthreads();
    head_ = next_head_;
    query_ = next_;
    stage_ ^= 1;
    next_ += kStep<kWidth>;
    find();
    load(stage_ ^ 1);
    return true;
  }

  __device__ __forceinline__ int head() const { return head_; }    // of all heads, from the first on
  __device__ __forceinline__ int query() const { return query_; }  // the first of the tile
  /// The tile from row `row` on.
  __device__ __forceinline__ QueryTile tile(int row) const {
    return {memory_.q[stage_] + row * kWidth,
            memory_.gout[stage_] + row * kWidth,
            {memory_.shift[stage_] + row, memory_.delta[stage_] + row}};
  }

 private:
  // To the first tile from next_ on that may be seen, or to that of the next head.
  __device__ __forceinline__ void find() {
    const int key = simt::opaque(key_);  // less to keep in registers from tile to tile
    while (true) {
      const int found = args_.visibility.next_query(key, key + kBlockRows<kWidth>, next_, kStep<kWidth>,
                                                    plane_.queries, plane_.keys);
      const bool seen = found < plane_.queries;
      skip(seen ? 0 : 1, (seen ? found : 0) - next_);
      next_ = seen ? found : 0;
      if (seen || ++next_head_ >= heads_) return;
    }
  }

  __device__ __forceinline__ void skip(int heads, int queries) {
    copy_q_.skip(heads * args_.q.head_stride + queries * args_.q.row_stride);
    copy_gout_.skip(heads * args_.gout.head_stride + queries * args_.gout.row_stride);
  }

  __device__ __forceinline__ void load(int stage) {
    if (next_head_ >= heads_) return;
    const int thread = static_cast<int>(threadIdx.x), valid = plane_.queries - next_;
    const QueryValues values =
        values_.from((plane_.head + next_head_) * args_.query_rows + plane_.query_first + next_);
    copy_q_.next(memory_.q[stage], valid);
    copy_gout_.next(memory_.gout[stage], valid);
    load_values(memory_.shift[stage], values.shift, kStep<kWidth>, valid, thread, kStreamThreads);
    load_values(memory_.delta[stage], values.delta, kStep<kWidth>, valid, thread, kStreamThreads);
    simt::cp_async_commit();
  }

  const Bf16Backward& args_;
  const BatchHead plane_;
  Memory& memory_;
  TileCopy<kWidth, kStep<kWidth>> copy_q_, copy_gout_;
  const QueryValues& values_;
  int key_, heads_, next_ = 0, next_head_ = 0, head_ = 0, query_ = 0, stage_ = 1;
};

template <int kWidth>
struct KeyMemory {
  bfloat16 k[kBlockRows<kWidth> * kWidth], v[kBlockRows<kWidth> * kWidth];
  typename QueryStream<kWidth>::Memory queries;
  float scratch[kStreamWarps][kRows<kWidth> / kTile * Pairs<Bf16Backward>::kScratch];
  uint8_t kept[kStreamWarps][kStep<kWidth> * kRows<kWidth> / 8];
};

// blockIdx.y: the head of the keys.
// Budget: 256 registers, 0 bytes shared.
template <int kWidth, bool kDropout>
__global__ void __launch_bounds__(kStreamThreads, kStreamBlocks<kWidth>)
    flash_key_kernel(Bf16Backward args, int64_t blocks, QueryValues values) {
  constexpr int kMine = kRows<kWidth>, kStreamed = kStep<kWidth>;
  const StreamTask<kBlockRows<kWidth>> task(blocks, false);
  const int group = heads_of_a_key_head(args);
  const BatchHead first(args, task.sequence, static_cast<int>(blockIdx.y) * group);
  clear_key_gaps<8>(args, task.sequence, first.key_head, task.thread(), task.threads);
  if (task.first >= first.keys) return;
  simt::Arena<> arena;
  auto& memory = *arena.take<KeyMemory<kWidth>>(1, 128);
  const int64_t row = first.key_first + task.first;
  stream<kWidth>(memory.k, args.k, row, first.key_head, first.keys - task.first);
  stream<kWidth>(memory.v, args.v, row, first.key_head, first.keys - task.first);
  simt::cp_async_commit();
  QueryStream<kWidth> queries(args, values, first, group, task.first, memory.queries);
  simt::cp_async_wait<0>();
  __syncthreads();
  const int warp = static_cast<int>(threadIdx.x) / 32, own = task.first + warp * kMine;
  const Operand<kWidth, kMine, false> k(memory.k, warp * kMine), v(memory.v, warp * kMine);
  const KeptKeys kept(memory.kept[warp], kMine / 8, kDropout);
  const auto plain_range = [&](int key) { return plain_queries(args, first, key, kMine); };
  const Range plain = plain_range(own);
  constexpr bool kApart = kWidth != 64 || !kDropout;  // else there are no registers for both loops
  Sums<kWidth> gk[kMine / kTile], gv[kMine / kTile];
  while (queries.next()) {
    const int query = queries.query(),
              key = simt::opaque(own);  // less to keep in registers from tile to tile
    if (key >= first.keys) continue;
    if (args.visibility.blocks.given() && !args.visibility.blocks.holds(query, key)) continue;
    BatchHead p = first;
    p.head += queries.head();
    p.queries = simt::opaque(p.queries);
    const Pairs<Bf16Backward> pairs(args, p, memory.scratch[warp]);
    kept.draw(args, p, query, key / 8, 0, 0, kStreamed, kMine / 8);
    const auto add = [&]<bool kMasked>(int i) {
      add_key_gradients<kTile, kMasked>(gk, gv, k, v, args, pairs, kept, i, 0, query + i, queries.tile(i),
                                        kMasked ? simt::opaque(key) : key);
    };
    // Dropout takes long and needs registers: the range is found again.
    if (kApart && (kDropout ? plain_range(key) : plain).contains(query, query + kStreamed)) {
#pragma unroll 1
      for (int i = 0; i < kStreamed; i += kTile) add.template operator()<false>(i);
    } else if (pairs.seen(query, kStreamed, key, kMine) != BlockVisibility::none) {
#pragma unroll 1
      for (int i = 0; i < kStreamed && query + i < p.queries; i += kTile) add.template operator()<true>(i);
    }
  }
  const BatchHead again(args, task.sequence,
                        static_cast<int>(blockIdx.y) * group);  // less to keep in registers
  if (own < again.keys) write_key_gradients(gk, gv, args, again, own, memory.scratch[warp]);
}

template <int kWidth, bool kDropout>
void backward(const char* what, const Bf16Backward& args) {
  const SegmentsView& s = args.segments;
  const auto rows = args.heads * args.query_rows;
  const Scratch scratch(static_cast<size_t>(2 * rows) * sizeof(float));
  const QueryValues values{scratch.as<float>(), scratch.as<float>() + rows};
  const auto blocks = [](int64_t longest) { return simt::ceil_div<int64_t>(longest, kBlockRows<kWidth>); };
  if (s.max_query > 0)
    launch(what, flash_query_kernel<kWidth, kDropout>,
           attention_grid(s.count * blocks(s.max_query), args.heads), dim3(kStreamThreads),
           sizeof(QueryMemory<kWidth>), args, blocks(s.max_query), values);
  if (s.max_key > 0 && (args.gk.data != nullptr || args.gv.data != nullptr))
    launch(what, flash_key_kernel<kWidth, kDropout>,
           attention_grid(s.count * blocks(s.max_key), args.key_heads), dim3(kStreamThreads),
           sizeof(KeyMemory<kWidth>), args, blocks(s.max_key), values);
}

}  // namespace

void flash_attention_backward(const char* what, const Bf16Backward& args) {
  with_width(args.width, [&](auto width) {
    constexpr int kWidth = decltype(width)::value;
    args.dropout.active() ? backward<kWidth, true>(what, args) : backward<kWidth, false>(what, args);
  });
}

}  // namespace heed::cuda
