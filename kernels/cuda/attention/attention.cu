// Attention for every dtype, width and bias: a warp takes a query, its lanes the keys.
#include <heed/kernels/attention.h>
#include <heed/kernels/cuda/attention/attention_gaps.cuh>
#include <heed/kernels/cuda/attention/attention_generic.cuh>
#include <heed/kernels/cuda/attention/attention_path.h>
#include <heed/kernels/cuda/device.cuh>

namespace heed::cuda {
namespace {

using kernels::AttentionWeights;

// Budget: 64 registers, 0 bytes shared, 8 bytes stack, 24 bytes spilled.
template <class T, bool kCapped>
__global__ void __launch_bounds__(kAttentionThreads)
    forward_kernel(AttentionForward<T> args, int64_t blocks) {
  const WarpTask task(blocks);
  const BatchHead p(args, task.sequence, blockIdx.y);
  clear_output_gaps<1>(args, task.sequence, p.head, task.thread, task.threads);
  simt::Arena<> arena;
  const WarpRows rows(arena, args.width, 1);
  if (task.place < p.queries) attend_query<kCapped>(args, p, task.place, rows);
}

// Budget: 32 registers, 0 bytes shared.
template <class T, bool kCapped>
__global__ void __launch_bounds__(kAttentionThreads, 16) weights_kernel(AttentionWeights<T> args) {
  const BatchHead p(args, args.sequence, args.head);
  const int64_t i = int64_t{blockIdx.x} * kAttentionThreads + threadIdx.x;
  if (i >= args.queries * p.keys) return;
  const int64_t query = args.first_query + i / p.keys, key = i % p.keys, row = p.query_first + query;
  const float product =
      dot(row_of(args.q, row, p.head), row_of(args.k, p.key_first + key, p.key_head), args.width);
  const bool seen = args.visibility.sees(query, key, p.queries, p.keys);
  args.weights[i] = seen ? weight_of(score_of(args, p, query, key, capped_score<kCapped>(args, product)),
                                     args.lse[p.head * args.query_rows + row])
                         : 0.0f;
}

}  // namespace

template <class T>
void attention_forward(const AttentionForward<T>& args) {
  constexpr const char* kWhat = "attention_forward";
  check_generic_width(args.width);
  const bool any = args.segments.count * args.segments.max_query * args.heads != 0;
  clear_before(kWhat, queries_of(args), any, args.out, args.heads, args.width, args.lse);
  if (!any) return;
  if constexpr (std::is_same_v<T, bfloat16>) {
    const AttentionPath path = attention_path(args);
    if (path == AttentionPath::short_sequences) return short_attention_forward(kWhat, args);
    if (path == AttentionPath::flash) return flash_attention_forward(kWhat, args);
    if (path == AttentionPath::hopper) return hopper::attention_forward(kWhat, args);
  }
  const int64_t blocks = simt::ceil_div<int64_t>(args.segments.max_query, kAttentionWarps);
  launch(kWhat, args.logit_cap > 0 ? forward_kernel<T, true> : forward_kernel<T, false>,
         attention_grid(args.segments.count * blocks, args.heads), dim3(kAttentionThreads),
         warp_rows_bytes(args.width, 1), args, blocks);
}

template <class T>
void attention_weights(const AttentionWeights<T>& args) {
  // The number of its keys is known on the device only.
  const int64_t most = args.queries * args.segments.max_key;
  if (most == 0) return;
  launch("attention_weights", args.logit_cap > 0 ? weights_kernel<T, true> : weights_kernel<T, false>,
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
