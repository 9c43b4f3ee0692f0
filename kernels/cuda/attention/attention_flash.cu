// Attention over sequences of any length: a block keeps 64 queries of a head and lets the keys stream past in
// tiles of 64, the next on its way while one is worked on (Dao, arXiv 2307.08691).
#include <heed/kernels/cuda/attention/attention_gaps.cuh>
#include <heed/kernels/cuda/attention/attention_path.h>
#include <heed/kernels/cuda/attention/attention_softmax.cuh>
#include <heed/kernels/cuda/attention/attention_stream.cuh>
#include <heed/kernels/cuda/device.cuh>

namespace heed::cuda {
namespace {

using Bf16Forward = AttentionForward<bfloat16>;

template <int kWidth>
using Keys = KeyStream<kWidth, kStreamRows, Bf16Forward>;

template <int kWidth>
struct ForwardMemory {
  bfloat16 q[kStreamRows * kWidth];
  typename Keys<kWidth>::Memory keys;
  float scratch[kStreamWarps][Pairs<Bf16Forward>::kScratch];
  uint8_t kept[kStreamWarps][kTile * kStreamRows / 8];
};

// Budget: 256 registers, 0 bytes shared.
template <int kWidth>
__global__ void __launch_bounds__(kStreamThreads, kStreamBlocks<kWidth>)
    flash_forward_kernel(Bf16Forward args, int64_t blocks) {
  const StreamTask task(blocks, true);
  const BatchHead p(args, task.sequence, static_cast<int>(blockIdx.y));
  clear_output_gaps<8>(args, task.sequence, p.head, task.thread(), task.threads);
  if (task.first >= p.queries) return;
  simt::Arena<> arena;
  auto& memory = *arena.take<ForwardMemory<kWidth>>(1, 16);
  stream<kWidth>(memory.q, args.q, p.query_first + task.first, p.head, p.queries - task.first);
  simt::cp_async_commit();
  Keys<kWidth> keys(args, p, task.first, memory.keys);
  simt::cp_async_wait<0>();
  __syncthreads();
  const int warp = static_cast<int>(threadIdx.x) / 32, query = task.first + warp * kTile;
  const Operand<kWidth> q(memory.q, warp * kTile);
  const Pairs<Bf16Forward> pairs(args, p, memory.scratch[warp]);
  const KeptKeys kept(memory.kept[warp], kStreamRows / 8, args.dropout.active());
  OnlineSoftmax<kWidth> softmax;
  while (keys.next()) {
    if (query >= p.queries) continue;
    kept.draw(args, p, query, keys.key() / 8, 0, 0, kTile, kStreamRows / 8);
    softmax.template add<kStreamRows>(q, keys.k(), keys.v(), pairs, kept, 0, query, keys.key(), p.keys);
  }
  if (query < p.queries) softmax.write(args, p, query, memory.scratch[warp]);
}

template <int kWidth>
void forward(const char* what, const Bf16Forward& args) {
  const int64_t blocks = simt::ceil_div<int64_t>(args.segments.max_query, kStreamRows);
  if (blocks == 0) return;
  launch(what, flash_forward_kernel<kWidth>, attention_grid(args.segments.count * blocks, args.heads),
         dim3(kStreamThreads), sizeof(ForwardMemory<kWidth>), args, blocks);
}

}  // namespace

void flash_attention_forward(const char* what, const Bf16Forward& args) {
  with_width(args.width, [&](auto width) { forward<decltype(width)::value>(what, args); });
}

}  // namespace heed::cuda
