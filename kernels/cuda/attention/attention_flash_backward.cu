// The gradients of attention over sequences of any length, in two launches: a block keeps 64 queries and lets
// the keys stream past, then keeps 64 keys and lets the queries of all their heads stream past. Each makes
// the weights again, so that every sum has one owner and nothing is added atomically.
#include <heed/kernels/cuda/attention/attention_gaps.cuh>
#include <heed/kernels/cuda/attention/attention_gradient.cuh>
#include <heed/kernels/cuda/attention/attention_path.h>
#include <heed/kernels/cuda/attention/attention_stream.cuh>
#include <heed/kernels/cuda/device.cuh>

namespace heed::cuda {
namespace {

// Rows of a tile that streams past: what fits into 99 KB together with the rows that stay.
template <int kWidth>
constexpr int kStep = kWidth <= 64 ? 64 : 32;

template <int kWidth>
using Keys = KeyStream<kWidth, kStep<kWidth>, Bf16Backward>;

template <int kWidth>
struct QueryMemory {
  bfloat16 q[kStreamRows * kWidth], gout[kStreamRows * kWidth];
  typename Keys<kWidth>::Memory keys;
  float lse[kStreamRows], delta[kStreamRows], scratch[kStreamWarps][Pairs<Bf16Backward>::kScratch];
  uint8_t kept[kStreamWarps][kTile * kStep<kWidth> / 8];
};

// delta_to: [heads, query_rows], Σ gout * out of each query.
// Budget: 248 registers, 0 bytes shared.
template <int kWidth>
__global__ void __launch_bounds__(kStreamThreads, kStreamBlocks<kWidth>)
    flash_query_kernel(Bf16Backward args, int64_t blocks, float* delta_to) {
  const StreamTask task(blocks, true);
  const BatchHead p(args, task.sequence, static_cast<int>(blockIdx.y));
  clear_query_gaps<8>(args, task.sequence, p.head, task.thread(), task.threads);
  if (task.first >= p.queries) return;
  simt::Arena<> arena;
  auto& memory = *arena.take<QueryMemory<kWidth>>(1, 16);
  const int warp = static_cast<int>(threadIdx.x) / 32, row = warp * kTile, query = task.first + row;
  const int64_t first_row = p.query_first + task.first, at = p.head * args.query_rows + first_row;
  write_deltas<kWidth>(memory.delta + row, args, first_row + row, p.head, p.queries - query);
  __syncwarp();
  if (const int i = lane_id(); i < kTile && query + i < p.queries)
    delta_to[at + row + i] = memory.delta[row + i];
  if (args.gq.data == nullptr) return;

  const int valid = p.queries - task.first;
  stream<kWidth>(memory.q, args.q, first_row, p.head, valid);
  stream<kWidth>(memory.gout, args.gout, first_row, p.head, valid);
  load_values(memory.lse, args.lse + at, kStreamRows, valid, static_cast<int>(threadIdx.x), kStreamThreads);
  simt::cp_async_commit();
  Keys<kWidth> keys(args, p, task.first, memory.keys);
  simt::cp_async_wait<0>();
  __syncthreads();
  const Operand<kWidth> q(memory.q, row), gout(memory.gout, row);
  const Pairs<Bf16Backward> pairs(args, p, memory.scratch[warp]);
  const KeptKeys kept(memory.kept[warp], kStep<kWidth> / 8, args.dropout.active());
  const QueryValues values{memory.lse + row, memory.delta + row};
  Sums<kWidth> gq;
  while (keys.next()) {
    if (query >= p.queries) continue;
    const int key = keys.key(), count = p.keys - key < kStep<kWidth> ? p.keys - key : kStep<kWidth>;
    kept.draw(args, p, query, key / 8, 0, 0, kTile, kStep<kWidth> / 8);
    add_query_gradients(gq, q, gout, args, pairs, kept, values, 0, query, {keys.k(), keys.v()}, key, count);
  }
  if (query < p.queries) write_query_gradients(gq, args, p, query, memory.scratch[warp]);
}

template <int kWidth>
struct KeyMemory {
  bfloat16 k[kStreamRows * kWidth], v[kStreamRows * kWidth];
  bfloat16 q[2][kStep<kWidth> * kWidth], gout[2][kStep<kWidth> * kWidth];
  float lse[2][kStep<kWidth>], delta[2][kStep<kWidth>], scratch[kStreamWarps][Pairs<Bf16Backward>::kScratch];
  uint8_t kept[kStreamWarps][kStep<kWidth> * kTile / 8];
};

// blockIdx.y: the head of the keys.
// Budget: 256 registers, 0 bytes shared.
template <int kWidth>
__global__ void __launch_bounds__(kStreamThreads, kStreamBlocks<kWidth>)
    flash_key_kernel(Bf16Backward args, int64_t blocks, const float* delta) {
  const StreamTask task(blocks, false);
  const int group = heads_of_a_key_head(args);
  const BatchHead first(args, task.sequence, static_cast<int>(blockIdx.y) * group);
  const int queries = first.queries, keys = first.keys;
  clear_key_gaps<8>(args, task.sequence, first.key_head, task.thread(), task.threads);
  if (task.first >= keys) return;
  simt::Arena<> arena;
  auto& memory = *arena.take<KeyMemory<kWidth>>(1, 16);
  const auto load_queries = [&](int head, int query, int stage) {
    const int64_t row = first.query_first + query, at = head * args.query_rows + row;
    const int thread = static_cast<int>(threadIdx.x), valid = queries - query;
    stream<kWidth>(memory.q[stage], args.q, row, head, valid);
    stream<kWidth>(memory.gout[stage], args.gout, row, head, valid);
    load_values(memory.lse[stage], args.lse + at, kStep<kWidth>, valid, thread, kStreamThreads);
    load_values(memory.delta[stage], delta + at, kStep<kWidth>, valid, thread, kStreamThreads);
    simt::cp_async_commit();
  };
  const auto next_visible = [&](int query) {
    return args.visibility.next_query(task.first, task.first + kStreamRows, query, kStep<kWidth>, queries,
                                      keys);
  };

  const int begin = next_visible(0);
  const int64_t row = first.key_first + task.first;
  const int end = first.head + group;
  stream<kWidth>(memory.k, args.k, row, first.key_head, keys - task.first);
  stream<kWidth>(memory.v, args.v, row, first.key_head, keys - task.first);
  int head = begin < queries ? first.head : end;
  int query = begin;
  if (head < end) load_queries(head, query, 0);
  simt::cp_async_commit();
  simt::cp_async_wait<0>();
  __syncthreads();
  const int warp = static_cast<int>(threadIdx.x) / 32, key = task.first + warp * kTile;
  const Operand<kWidth, (kWidth <= 64)> k(memory.k, warp * kTile), v(memory.v, warp * kTile);
  const KeptKeys kept(memory.kept[warp], kTile / 8, args.dropout.active());
  Sums<kWidth> gk, gv;
  for (int stage = 0; head < end; stage ^= 1) {
    simt::cp_async_wait<0>();
    __syncthreads();  // this tile is there, and nobody reads the one before
    const BatchHead p(args, task.sequence, head);
    const int now = query;
    query = next_visible(now + kStep<kWidth>);
    if (query >= queries) {
      query = begin;
      ++head;
    }
    if (head < end) load_queries(head, query, stage ^ 1);
    if (key >= keys) continue;
    kept.draw(args, p, now, key / 8, 0, 0, kStep<kWidth>, kTile / 8);
    const Pairs<Bf16Backward> pairs(args, p, memory.scratch[warp]);
    add_key_gradients(gk, gv, k, v, args, pairs, kept, 0,
                      {memory.q[stage], memory.gout[stage], {memory.lse[stage], memory.delta[stage]}}, now,
                      queries - now < kStep<kWidth> ? queries - now : kStep<kWidth>, key);
  }
  if (key < keys) write_key_gradients(gk, gv, args, first, key, memory.scratch[warp]);
}

template <int kWidth>
void backward(const char* what, const Bf16Backward& args) {
  const SegmentsView& s = args.segments;
  const Scratch scratch(static_cast<size_t>(args.heads * args.query_rows) * sizeof(float));
  float* const delta = scratch.as<float>();
  if (s.max_query > 0) {
    const int64_t blocks = simt::ceil_div<int64_t>(s.max_query, kStreamRows);
    launch(what, flash_query_kernel<kWidth>, attention_grid(s.count * blocks, args.heads),
           dim3(kStreamThreads), sizeof(QueryMemory<kWidth>), args, blocks, delta);
  }
  if (s.max_key > 0 && (args.gk.data != nullptr || args.gv.data != nullptr)) {
    const int64_t blocks = simt::ceil_div<int64_t>(s.max_key, kStreamRows);
    launch(what, flash_key_kernel<kWidth>, attention_grid(s.count * blocks, args.key_heads),
           dim3(kStreamThreads), sizeof(KeyMemory<kWidth>), args, blocks, static_cast<const float*>(delta));
  }
}

}  // namespace

void flash_attention_backward(const char* what, const Bf16Backward& args) {
  with_width(args.width, [&](auto width) { backward<decltype(width)::value>(what, args); });
}

}  // namespace heed::cuda
