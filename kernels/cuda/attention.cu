// Attention for every dtype, width and bias: a warp takes a query, its lanes the keys.
#include <heed/kernels/attention.h>
#include <heed/kernels/cuda/attention_rows.cuh>
#include <heed/kernels/cuda/attention_score.cuh>
#include <heed/kernels/cuda/device.cuh>

namespace heed::cuda {
namespace {

using kernels::AttentionForward;
using kernels::AttentionWeights;

// Budget: 72 registers, 0 bytes shared.
template <class T>
__global__ void __launch_bounds__(kAttentionThreads)
    forward_kernel(AttentionForward<T> args, int64_t blocks) {
  constexpr float kNothing = -kInfinity;
  const WarpTask task(blocks);
  const Plane p(args, task.sequence, blockIdx.y);
  simt::Arena<> arena;
  const WarpRows rows(arena, args.width, 1);
  if (task.place >= p.queries) return;
  const int64_t query = task.place, row = p.query_first + query;
  const T* q = row_of(args.q, row, p.head);
  float* const sum = rows.row(0);
  for (int64_t c = task.lane; c < args.width; c += 32) sum[c] = 0.0f;

  float most = kNothing, total = 0.0f;
  const int64_t end = args.visibility.key_end(query, p.queries, p.keys);
  for (int64_t first = args.visibility.key_begin(query, p.queries, p.keys); first < end; first += 32) {
    const int64_t key = first + task.lane;
    float score = kNothing;
    if (key < end)
      score =
          score_of(args, p, query, key, dot(q, row_of(args.k, p.key_first + key, p.key_head), args.width));
    // NaN must come through; fmaxf passes it over, and the sum has it.
    const float now = fmaxf(most, simt::warp_max(score));
    const float shift = now == kNothing ? 0.0f : now;
    const float before = most == kNothing ? 0.0f : expf(most - shift);
    const float weight = expf(score - shift);
    total = total * before + simt::warp_sum(weight);
    most = now;
    __syncwarp();
    rows.value(0)[task.lane] = weight == 0.0f ? 0.0f : weight * dropout_factor(args, p, query, key);
    __syncwarp();
    const int count = static_cast<int>(end - first < 32 ? end - first : 32);
    for (int64_t c = task.lane; c < args.width; c += 32) {
      float value = sum[c] * before;
      for (int j = 0; j < count; ++j)  // what a key holds that has no weight must not count
        if (const float w = rows.value(0)[j]; w != 0.0f)
          value += w * static_cast<float>(row_of(args.v, p.key_first + first + j, p.key_head)[c]);
      sum[c] = value;
    }
  }
  const float inverse = total == 0.0f ? 0.0f : 1.0f / total;
  T* out = row_of(args.out, row, p.head);
  for (int64_t c = task.lane; c < args.width; c += 32) out[c] = T(sum[c] * inverse);
  if (args.lse != nullptr && task.lane == 0)
    args.lse[p.head * args.query_rows + row] = total == 0.0f ? kNothing : most + logf(total);
}

// Budget: 32 registers, 0 bytes shared.
template <class T>
__global__ void __launch_bounds__(kAttentionThreads) weights_kernel(AttentionWeights<T> args) {
  const Plane p(args, args.sequence, args.head);
  const int64_t i = int64_t{blockIdx.x} * kAttentionThreads + threadIdx.x;
  if (i >= p.queries * p.keys) return;
  const int64_t query = i / p.keys, key = i % p.keys, row = p.query_first + query;
  const float product =
      dot(row_of(args.q, row, p.head), row_of(args.k, p.key_first + key, p.key_head), args.width);
  args.weights[i] =
      weight_of(score_of(args, p, query, key, product), args.lse[p.head * args.query_rows + row]);
}

}  // namespace

template <class T>
void attention_forward(const AttentionForward<T>& args) {
  constexpr const char* kWhat = "attention_forward";
  if (args.segments.total_query != args.query_rows)
    clear_rows(kWhat, args.out, args.lse, args.query_rows, args.heads, args.width);
  const int64_t blocks = simt::ceil_div<int64_t>(args.segments.max_query, kAttentionWarps);
  if (args.segments.count * blocks * args.heads == 0) return;
  launch(kWhat, forward_kernel<T>, attention_grid(args.segments.count * blocks, args.heads),
         dim3(kAttentionThreads), warp_rows_bytes(args.width, 1), args, blocks);
}

template <class T>
void attention_weights(const AttentionWeights<T>& args) {
  // The lengths of this sequence are known on the device only.
  const int64_t most = int64_t{args.segments.max_query} * args.segments.max_key;
  if (most == 0) return;
  launch("attention_weights", weights_kernel<T>,
         dim3(static_cast<unsigned>(simt::ceil_div<int64_t>(most, kAttentionThreads))),
         dim3(kAttentionThreads), 0, args);
}

#define HEED_INSTANTIATE(T)                                       \
  template void attention_forward<T>(const AttentionForward<T>&); \
  template void attention_weights<T>(const AttentionWeights<T>&);
HEED_INSTANTIATE(float)
HEED_INSTANTIATE(bfloat16)
#undef HEED_INSTANTIATE

}  // namespace heed::cuda
