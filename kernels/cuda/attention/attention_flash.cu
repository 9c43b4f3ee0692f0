// Attention over sequences of any length: a block keeps 128 queries of a head, 32 a warp, and lets the keys
// stream past, the next tile on its way while one is worked on (Dao, arXiv 2307.08691).
#include <heed/kernels/cuda/attention/attention_gaps.cuh>
#include <heed/kernels/cuda/attention/attention_path.h>
#include <heed/kernels/cuda/attention/attention_softmax.cuh>
#include <heed/kernels/cuda/attention/attention_stream.cuh>
#include <heed/kernels/cuda/device.cuh>

namespace heed::cuda {
namespace {

using Bf16Forward = AttentionForward<bfloat16>;

constexpr int kRows = 32, kQueries = kStreamWarps * kRows;  // of a warp, and of a block

// Keys of a tile: with 64 of them two blocks of width 128 would not fit into the 164 KB of an sm_80.
template <int kWidth>
constexpr int kKeys = kWidth <= 64 ? 64 : 32;

// What there are registers for: keys that a warp weighs at once, and to keep its queries.
template <int kWidth, bool kDropout>
constexpr int kAtOnce = kWidth == 64                ? 64
                        : kWidth == 128 && kDropout ? 16
                                                    : 32;
template <int kWidth>
constexpr bool kKept = kWidth <= 32;

template <int kWidth>
using Keys = KeyStream<kWidth, kQueries, kKeys<kWidth>, Bf16Forward>;

template <int kWidth>
struct ForwardMemory {
  bfloat16 q[kQueries * kWidth];
  typename Keys<kWidth>::Memory keys;
  float scratch[kStreamWarps][kRows / kTile * Pairs<Bf16Forward>::kScratch];
  uint8_t kept[kStreamWarps][kRows * kKeys<kWidth> / 8];
};

// Budget: 256 registers, 0 bytes shared.
template <int kWidth, bool kDropout>
__global__ void __launch_bounds__(kStreamThreads, kStreamBlocks<kWidth>)
    flash_forward_kernel(Bf16Forward args, int64_t blocks) {
  constexpr int kStep = kKeys<kWidth>, kCount = kAtOnce<kWidth, kDropout>;
  const StreamTask<kQueries> task(blocks, true);
  const BatchHead p(args, task.sequence, static_cast<int>(blockIdx.y));
  clear_output_gaps<8>(args, task.sequence, p.head, task.thread(), task.threads);
  if (task.first >= p.queries) return;
  simt::Arena<> arena;
  auto& memory = *arena.take<ForwardMemory<kWidth>>(1, 128);
  stream<kWidth>(memory.q, args.q, p.query_first + task.first, p.head, p.queries - task.first);
  simt::cp_async_commit();
  Keys<kWidth> keys(args, p, task.first, memory.keys);
  simt::cp_async_wait<0>();
  __syncthreads();
  const int warp = static_cast<int>(threadIdx.x) / 32, own = task.first + warp * kRows;
  const Operand<kWidth, kRows, kKept<kWidth>> q(memory.q, warp * kRows);
  const Pairs<Bf16Forward> pairs(args, p, memory.scratch[warp]);
  const KeptKeys kept(memory.kept[warp], kStep / 8, kDropout);
  OnlineSoftmax<kWidth, kRows, kKept<kWidth>> softmax;
  const auto plain_range = [&](int query) { return plain_keys(args, p, query, kRows); };
  const Range plain = plain_range(own);
  while (keys.next()) {
    const int key = keys.key(), query = simt::opaque(own);  // less to keep in registers from tile to tile
    if (query >= p.queries) continue;
    if (args.visibility.blocks.given() && !args.visibility.blocks.holds(query, key)) continue;
    kept.draw(args, p, query, key / 8, 0, 0, kRows, kStep / 8);
    const auto add = [&]<int kOf, bool kMasked>(int i) {
      softmax.template add<kOf, kMasked>(q, keys.k() + i * kWidth, keys.v() + i * kWidth, pairs, kept, 0,
                                         i / 8, kMasked ? simt::opaque(query) : query, key + i, p.keys);
    };
    // Dropout takes long and needs registers: the range is found again.
    if ((kDropout ? plain_range(query) : plain).contains(key, key + kStep)) {
#pragma unroll 1
      for (int i = 0; i < kStep; i += kCount) add.template operator()<kCount, false>(i);
    } else if (pairs.seen(query, kRows, key, kStep) != BlockVisibility::none) {
#pragma unroll 1
      for (int i = 0; i < kStep && key + i < p.keys; i += kTile) add.template operator()<kTile, true>(i);
    }
  }
  const BatchHead again(args, task.sequence, static_cast<int>(blockIdx.y));  // less to keep in registers
  if (own < again.queries) softmax.write(args, again, own, memory.scratch[warp]);
}

template <int kWidth, bool kDropout>
void forward(const char* what, const Bf16Forward& args) {
  const int64_t blocks = simt::ceil_div<int64_t>(args.segments.max_query, kQueries);
  launch(what, flash_forward_kernel<kWidth, kDropout>,
         attention_grid(args.segments.count * blocks, args.heads), dim3(kStreamThreads),
         sizeof(ForwardMemory<kWidth>), args, blocks);
}

}  // namespace

void flash_attention_forward(const char* what, const Bf16Forward& args) {
  with_width(args.width, [&](auto width) {
    constexpr int kWidth = decltype(width)::value;
    args.dropout.active() ? forward<kWidth, true>(what, args) : forward<kWidth, false>(what, args);
  });
}

}  // namespace heed::cuda
