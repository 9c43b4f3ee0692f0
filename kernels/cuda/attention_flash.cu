// Attention over sequences of any length: a block keeps 64 queries of a head and lets the keys stream past in
// tiles of 64, the next on its way while one is worked on (Dao, arXiv 2307.08691).
#include <heed/kernels/cuda/attention_path.h>
#include <heed/kernels/cuda/attention_softmax.cuh>
#include <heed/kernels/cuda/attention_stream.cuh>
#include <heed/kernels/cuda/device.cuh>

namespace heed::cuda {
namespace {

using Bf16Forward = AttentionForward<bfloat16>;

template <int kWidth>
struct ForwardMemory {
  bfloat16 q[kStreamRows * kWidth], k[2][kStreamRows * kWidth], v[2][kStreamRows * kWidth];
  float scratch[kStreamWarps][Pairs<Bf16Forward>::kScratch];
  uint8_t kept[kStreamWarps][kTile * kStreamRows / 8];
};

// Budget: 248 registers, 0 bytes shared.
template <int kWidth>
__global__ void __launch_bounds__(kStreamThreads, 2) flash_forward_kernel(Bf16Forward args, int64_t blocks) {
  const StreamTask task(blocks, true);
  const Plane p(args, task.sequence, static_cast<int>(blockIdx.y));
  const int queries = p.queries, keys = p.keys;
  if (task.first >= queries) return;
  simt::Arena<> arena;
  auto& memory = *arena.take<ForwardMemory<kWidth>>(1, 16);
  const auto load_keys = [&](int key, int stage) {
    const int64_t row = p.key_first + key;
    stream<kWidth>(memory.k[stage], args.k, row, p.key_head, keys - key);
    stream<kWidth>(memory.v[stage], args.v, row, p.key_head, keys - key);
    simt::cp_async_commit();
  };
  const auto next_visible = [&](int key) {
    while (key < keys && args.visibility.block(task.first, task.first + kStreamRows, key, key + kStreamRows,
                                               queries, keys) == BlockVisibility::none)
      key += kStreamRows;
    return key;
  };

  int key = next_visible(0);
  stream<kWidth>(memory.q, args.q, p.query_first + task.first, p.head, queries - task.first);
  if (key < keys) load_keys(key, 0);
  simt::cp_async_commit();
  simt::cp_async_wait<0>();
  __syncthreads();
  const int warp = static_cast<int>(threadIdx.x) / 32, query = task.first + warp * kTile;
  const Operand<kWidth> q(memory.q, warp * kTile);
  const Pairs<Bf16Forward> pairs(args, p, memory.scratch[warp]);
  const KeptKeys kept(memory.kept[warp], kStreamRows / 8, args.dropout.active());
  OnlineSoftmax<kWidth> softmax;
  for (int stage = 0; key < keys; stage ^= 1) {
    simt::cp_async_wait<0>();
    __syncthreads();  // this tile is there, and nobody reads the one before
    const int next = next_visible(key + kStreamRows);
    if (next < keys) load_keys(next, stage ^ 1);
    if (query < queries) {
      kept.draw(args, p, query, key / 8, 0, 0, kTile, kStreamRows / 8);
      softmax.template add<kStreamRows>(q, memory.k[stage], memory.v[stage], pairs, kept, 0, query, key,
                                        keys);
    }
    key = next;
  }
  if (query < queries) softmax.write(args, p, query, memory.scratch[warp]);
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
