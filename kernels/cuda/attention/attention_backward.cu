// The gradients of attention for every dtype, width and bias: a warp takes a query, then a key, and makes the
// weights again. Each sum has one owner, so nothing is added atomically.
#include <heed/kernels/attention.h>
#include <heed/kernels/cuda/attention/attention_gaps.cuh>
#include <heed/kernels/cuda/attention/attention_generic.cuh>
#include <heed/kernels/cuda/attention/attention_path.h>
#include <heed/kernels/cuda/device.cuh>

namespace heed::cuda {
namespace {

// One query, and its delta_of for the keys and the biases. delta_to: [heads, query_rows].
template <bool kCapped, class T>
__device__ __forceinline__ void take_query(const AttentionBackward<T>& args, const BatchHead& p, int query,
                                           const WarpRows& rows, float* delta_to) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t row = p.query_first + query;
  const float delta = delta_of(args, row, p.head, lane);
  if (lane == 0) delta_to[p.head * args.query_rows + row] = delta;
  if (args.gq.data != nullptr) query_gradient<kCapped>(args, p, query, delta, rows);
}

template <bool kCapped, class T>
__device__ __forceinline__ void take_key(const AttentionBackward<T>& args, int sequence, int key_head,
                                         int key, const WarpRows& rows, const float* delta) {
  key_gradient<kCapped>(
      args, sequence, key_head, key,
      [&](int64_t row, int64_t head) { return delta[head * args.query_rows + row]; }, rows);
}

// Budget: 112 registers, 0 bytes shared.
template <class T, bool kCapped>
__global__ void __launch_bounds__(kAttentionThreads, 4)
    query_kernel(AttentionBackward<T> args, int64_t blocks, float* delta_to) {
  const WarpTask task(blocks);
  const BatchHead p(args, task.sequence, blockIdx.y);
  clear_query_gaps<1>(args, task.sequence, p.head, task.thread, task.threads);
  simt::Arena<> arena;
  const WarpRows rows(arena, args.width, 1);
  if (task.place < p.queries) take_query<kCapped>(args, p, task.place, rows, delta_to);
}

// Budget: 72 registers, 0 bytes shared.
template <class T, bool kCapped>
__global__ void __launch_bounds__(kAttentionThreads, 7)
    key_kernel(AttentionBackward<T> args, int64_t blocks, const float* delta) {
  const WarpTask task(blocks);
  clear_key_gaps<1>(args, task.sequence, static_cast<int>(blockIdx.y), task.thread, task.threads);
  simt::Arena<> arena;
  const WarpRows rows(arena, args.width, 2);
  if (task.place < args.segments.key_length[task.sequence])
    take_key<kCapped>(args, task.sequence, blockIdx.y, task.place, rows, delta);
}

constexpr int kTogether = 32;  // queries and keys of sequences that one block takes whole

// Both of them where sequences are so short that another launch would take longer: a block has a sequence and
// a head of the keys.
// Budget: 128 registers, 0 bytes shared.
template <class T>
__global__ void __launch_bounds__(kAttentionThreads, 4)
    together_kernel(AttentionBackward<T> args, float* delta) {
  const WarpTask task(1);
  const int key_head = static_cast<int>(blockIdx.y), group = heads_of_a_key_head(args);
  clear_key_gaps<1>(args, task.sequence, key_head, task.thread, task.threads);
  simt::Arena<> arena;
  const WarpRows rows(arena, args.width, 2);
  for (int head = key_head * group; head < (key_head + 1) * group; ++head) {
    clear_query_gaps<1>(args, task.sequence, head, task.thread, task.threads);
    const BatchHead p(args, task.sequence, head);
    for (int query = task.place; query < p.queries; query += kAttentionWarps)
      take_query<false>(args, p, query, rows, delta);
  }
  __syncthreads();  // all deltas are there
  for (int key = task.place; key < args.segments.key_length[task.sequence]; key += kAttentionWarps)
    take_key<false>(args, task.sequence, key_head, key, rows, delta);
}

/// The gradient of one pair's score, for the biases.
template <bool kCapped, class T>
__device__ __forceinline__ float score_gradient(const AttentionBackward<T>& args, const BatchHead& p,
                                                int query, int key, const float* delta_of) {
  const int64_t row = p.query_first + query, at = p.head * args.query_rows + row, key_row = p.key_first + key;
  if (!args.visibility.sees(query, key, p.queries, p.keys)) return 0.0f;
  return pair_gradient<kCapped>(
             args, p, query, key, args.lse[at], delta_of[at],
             dot(row_of(args.q, row, p.head), row_of(args.k, key_row, p.key_head), args.width),
             dot(row_of(args.gout, row, p.head), row_of(args.v, key_row, p.key_head), args.width))
      .score;
}

/// Sequence, head, query, key.
struct Box {
  int64_t size[4];
};

// A warp an element of gbias: `kept` are its axes, `summed` those along which the bias is repeated; an axis
// of one has size 1 in the other.
// Budget: 72 registers, 0 bytes shared.
template <class T, bool kCapped>
__global__ void __launch_bounds__(kAttentionThreads)
    bias_kernel(AttentionBackward<T> args, Box kept, Box summed, int64_t elements, const float* delta_of) {
  int64_t element = int64_t{blockIdx.x} * kAttentionWarps + threadIdx.x / 32;
  if (element >= elements) return;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int64_t place[4], to = 0, terms = 1;
  for (int axis = 3; axis >= 0; --axis) {
    place[axis] = element % kept.size[axis];
    element /= kept.size[axis];
    to += place[axis] * args.bias.bias_stride[axis];
    terms *= summed.size[axis];
  }
  float sum = 0.0f;
  for (int64_t term = lane; term < terms; term += 32) {
    int64_t at[4], rest = term;
    for (int axis = 3; axis >= 0; --axis) {
      at[axis] = place[axis] + rest % summed.size[axis];
      rest /= summed.size[axis];
    }
    const BatchHead p(args, at[0], at[1]);
    if (at[2] < p.queries && at[3] < p.keys) sum += score_gradient<kCapped>(args, p, at[2], at[3], delta_of);
  }
  sum = simt::warp_sum(sum);
  if (lane == 0) args.gbias[to] += sum;
}

// A warp an entry of grelative, blockIdx.y the head: over all pairs of that distance; the outermost entries
// have all that lie beyond, too.
// Budget: 64 registers, 0 bytes shared.
template <class T, bool kCapped>
__global__ void __launch_bounds__(kAttentionThreads)
    relative_kernel(AttentionBackward<T> args, const float* delta_of) {
  const int64_t limit = args.bias.relative_limit, entries = 2 * limit + 1;
  const int64_t entry = int64_t{blockIdx.x} * kAttentionWarps + threadIdx.x / 32;
  if (entry >= entries) return;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t head = blockIdx.y, distance = entry - limit;
  float sum = 0.0f;
  for (int64_t sequence = 0; sequence < args.segments.count; ++sequence) {
    const BatchHead p(args, sequence, head);
    for (int64_t query = lane; query < p.queries; query += 32) {
      const int64_t middle = args.visibility.diagonal(query, p.queries, p.keys) + distance;
      int64_t first = distance == -limit ? 0 : middle, last = distance == limit ? p.keys : middle + 1;
      if (first < 0) first = 0;
      if (last > p.keys) last = p.keys;
      for (int64_t key = first; key < last; ++key)
        sum += score_gradient<kCapped>(args, p, query, key, delta_of);
    }
  }
  sum = simt::warp_sum(sum);
  if (lane == 0) args.grelative[head * entries + entry] += sum;
}

template <class T>
void bias_gradient(const char* what, const AttentionBackward<T>& args, const float* delta) {
  const int64_t sizes[4] = {args.segments.count, args.heads, args.segments.max_query, args.segments.max_key};
  Box kept, summed;
  int64_t elements = 1;
  for (int axis = 0; axis < 4; ++axis) {
    const bool repeated = args.bias.bias_stride[axis] == 0;
    kept.size[axis] = repeated ? 1 : sizes[axis];
    summed.size[axis] = repeated ? sizes[axis] : 1;
    elements *= kept.size[axis];
  }
  launch(what, args.logit_cap > 0 ? bias_kernel<T, true> : bias_kernel<T, false>,
         dim3(static_cast<unsigned>(simt::ceil_div<int64_t>(elements, kAttentionWarps))),
         dim3(kAttentionThreads), 0, args, kept, summed, elements, delta);
}

}  // namespace

template <class T>
void attention_backward(const AttentionBackward<T>& args) {
  constexpr const char* kWhat = "attention_backward";
  check_generic_width(args.width);
  const SegmentsView& s = args.segments;
  const int64_t sequences = s.count * args.heads;
  const auto clear = [&](const kernels::HeadsView<T>& view, bool accumulate, const Side& side,
                         int32_t longest, int64_t heads) {
    if (view.data != nullptr && !accumulate)
      clear_before(kWhat, side, sequences * longest > 0, view, heads, args.width);
  };
  clear(args.gq, args.accumulate_q, queries_of(args), s.max_query, args.heads);
  clear(args.gk, args.accumulate_k, keys_of(args), s.max_key, args.key_heads);
  clear(args.gv, args.accumulate_v, keys_of(args), s.max_key, args.key_heads);
  if (sequences == 0) return;
  if constexpr (std::is_same_v<T, bfloat16>) {
    const AttentionPath path = attention_path(args);
    if (path == AttentionPath::short_sequences) return short_attention_backward(kWhat, args);
    if (path == AttentionPath::flash) return flash_attention_backward(kWhat, args);
    if (path == AttentionPath::hopper) return hopper::attention_backward(kWhat, args);
  }

  const Scratch scratch(static_cast<size_t>(args.heads * args.query_rows) * sizeof(float));
  float* const delta = scratch.as<float>();
  const bool wants_keys = s.max_key > 0 && (args.gk.data != nullptr || args.gv.data != nullptr);
  const bool together = wants_keys && s.max_query > 0 && s.max_query <= kTogether && s.max_key <= kTogether &&
                        !(args.logit_cap > 0);
  if (together)
    launch(kWhat, together_kernel<T>, attention_grid(s.count, args.key_heads), dim3(kAttentionThreads),
           warp_rows_bytes(args.width, 2), args, delta);
  if (s.max_query > 0 && !together) {
    const int64_t blocks = simt::ceil_div<int64_t>(s.max_query, kAttentionWarps);
    launch(kWhat, args.logit_cap > 0 ? query_kernel<T, true> : query_kernel<T, false>,
           attention_grid(s.count * blocks, args.heads), dim3(kAttentionThreads),
           warp_rows_bytes(args.width, 1), args, blocks, delta);
  }
  if (wants_keys && !together) {
    const int64_t blocks = simt::ceil_div<int64_t>(s.max_key, kAttentionWarps);
    launch(kWhat, args.logit_cap > 0 ? key_kernel<T, true> : key_kernel<T, false>,
           attention_grid(s.count * blocks, args.key_heads), dim3(kAttentionThreads),
           warp_rows_bytes(args.width, 2), args, blocks, static_cast<const float*>(delta));
  }
  if (s.max_query == 0 || s.max_key == 0) return;
  if (args.gbias != nullptr) bias_gradient(kWhat, args, delta);
  if (args.grelative != nullptr)
    launch(kWhat, args.logit_cap > 0 ? relative_kernel<T, true> : relative_kernel<T, false>,
           attention_grid(simt::ceil_div<int64_t>(2 * int64_t{args.bias.relative_limit} + 1, kAttentionWarps),
                          args.heads),
           dim3(kAttentionThreads), 0, args, static_cast<const float*>(delta));
}

#define HEED_INSTANTIATE(T) template void attention_backward<T>(const AttentionBackward<T>&);
HEED_INSTANTIATE(float)
HEED_INSTANTIATE(bfloat16)
#undef HEED_INSTANTIATE

}  // namespace heed::cuda
