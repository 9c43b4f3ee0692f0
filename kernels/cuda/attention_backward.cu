// The gradients of attention for every dtype, width and bias: a warp takes a query, then a key, and makes the
// weights again. Each sum has one owner, so nothing is added atomically.
#include <heed/kernels/attention.h>
#include <heed/kernels/cuda/attention_rows.cuh>
#include <heed/kernels/cuda/attention_score.cuh>
#include <heed/kernels/cuda/device.cuh>

namespace heed::cuda {
namespace {

using kernels::AttentionBackward;

/// A weight after dropout, and the gradient of its score.
struct PairGradient {
  float weight, score;
};

template <class T>
__device__ __forceinline__ PairGradient pair_gradient(const AttentionBackward<T>& args, const Plane& p,
                                                      int64_t query, int64_t key, float lse, float delta,
                                                      float score, float gweight) {
  const float weight = weight_of(score_of(args, p, query, key, score), lse);
  if (weight == 0.0f) return {0.0f, 0.0f};  // what a hidden key holds must not count
  const float factor = dropout_factor(args, p, query, key);
  return {weight * factor, weight * (gweight * factor - delta)};
}

/// to (+)= values, by the lanes of a warp.
template <class T>
__device__ __forceinline__ void write_row(T* to, const float* values, float scale, int64_t width,
                                          bool accumulate, int lane) {
  for (int64_t c = lane; c < width; c += 32)
    to[c] = T((accumulate ? static_cast<float>(to[c]) : 0.0f) + values[c] * scale);
}

/// Adds up factor[j] * rows(j)[c] over j < count into sum; zero factors are left out with what they multiply.
template <class Rows>
__device__ __forceinline__ void add_products(float* sum, const float* factor, int count, int64_t width,
                                             int lane, Rows rows) {
  for (int64_t c = lane; c < width; c += 32) {
    float total = sum[c];
    for (int j = 0; j < count; ++j)
      if (const float f = factor[j]; f != 0.0f) total += f * static_cast<float>(rows(j)[c]);
    sum[c] = total;
  }
}

// delta: [heads, query_rows], Σ gout * out of each query: what the softmax takes off every score's gradient.
// Budget: 112 registers, 0 bytes shared.
template <class T>
__global__ void __launch_bounds__(kAttentionThreads, 4)
    query_kernel(AttentionBackward<T> args, int64_t blocks, float* delta_of) {
  const WarpTask task(blocks);
  const Plane p(args, task.sequence, blockIdx.y);
  simt::Arena<> arena;
  const WarpRows rows(arena, args.width, 1);
  if (task.place >= p.queries) return;
  const int64_t query = task.place, row = p.query_first + query, at = p.head * args.query_rows + row;
  const T *q = row_of(args.q, row, p.head), *gout = row_of(args.gout, row, p.head),
          *out = row_of(args.out, row, p.head);
  float* const sum = rows.row(0);
  float delta = 0.0f;
  for (int64_t c = task.lane; c < args.width; c += 32) {
    sum[c] = 0.0f;
    delta += static_cast<float>(gout[c]) * static_cast<float>(out[c]);
  }
  delta = simt::warp_sum(delta);
  if (task.lane == 0) delta_of[at] = delta;
  if (args.gq.data == nullptr) return;

  const float lse = args.lse[at];
  const int64_t end = args.visibility.key_end(query, p.queries, p.keys);
  for (int64_t first = args.visibility.key_begin(query, p.queries, p.keys); first < end; first += 32) {
    const int64_t key = first + task.lane;
    PairGradient g{0.0f, 0.0f};
    if (key < end)
      g = pair_gradient(args, p, query, key, lse, delta,
                        dot(q, row_of(args.k, p.key_first + key, p.key_head), args.width),
                        dot(gout, row_of(args.v, p.key_first + key, p.key_head), args.width));
    __syncwarp();
    rows.value(0)[task.lane] = g.score;
    __syncwarp();
    add_products(sum, rows.value(0), static_cast<int>(end - first < 32 ? end - first : 32), args.width,
                 task.lane, [&](int j) { return row_of(args.k, p.key_first + first + j, p.key_head); });
  }
  write_row(row_of(args.gq, row, p.head), sum, static_cast<float>(args.scale), args.width, args.accumulate_q,
            task.lane);
}

// Budget: 56 registers, 0 bytes shared.
template <class T>
__global__ void __launch_bounds__(kAttentionThreads)
    key_kernel(AttentionBackward<T> args, int64_t blocks, const float* delta_of) {
  const WarpTask task(blocks);
  const int64_t group = static_cast<unsigned>(args.heads) / static_cast<unsigned>(args.key_heads),
                key_head = blockIdx.y;
  const Plane first_plane(args, task.sequence, key_head * group);
  simt::Arena<> arena;
  const WarpRows rows(arena, args.width, 2);
  if (task.place >= first_plane.keys) return;
  const int64_t key = task.place, row = first_plane.key_first + key;
  const T *k = row_of(args.k, row, key_head), *v = row_of(args.v, row, key_head);
  for (int64_t c = task.lane; c < args.width; c += 32) rows.row(0)[c] = rows.row(1)[c] = 0.0f;
  for (int64_t head = key_head * group; head < (key_head + 1) * group; ++head) {
    const Plane p(args, task.sequence, head);
    for (int64_t first = 0; first < p.queries; first += 32) {
      const int64_t query = first + task.lane, query_row = p.query_first + query;
      PairGradient g{0.0f, 0.0f};
      if (query < p.queries && args.visibility.visible(query, key, p.queries, p.keys)) {
        const int64_t at = head * args.query_rows + query_row;
        g = pair_gradient(args, p, query, key, args.lse[at], delta_of[at],
                          dot(row_of(args.q, query_row, head), k, args.width),
                          dot(row_of(args.gout, query_row, head), v, args.width));
      }
      __syncwarp();
      rows.value(0)[task.lane] = g.score;
      rows.value(1)[task.lane] = g.weight;
      __syncwarp();
      const int count = static_cast<int>(p.queries - first < 32 ? p.queries - first : 32);
      const int64_t from = p.query_first + first;
      if (args.gk.data != nullptr)
        add_products(rows.row(0), rows.value(0), count, args.width, task.lane,
                     [&](int j) { return row_of(args.q, from + j, head); });
      if (args.gv.data != nullptr)
        add_products(rows.row(1), rows.value(1), count, args.width, task.lane,
                     [&](int j) { return row_of(args.gout, from + j, head); });
    }
  }
  if (args.gk.data != nullptr)
    write_row(row_of(args.gk, row, key_head), rows.row(0), static_cast<float>(args.scale), args.width,
              args.accumulate_k, task.lane);
  if (args.gv.data != nullptr)
    write_row(row_of(args.gv, row, key_head), rows.row(1), 1.0f, args.width, args.accumulate_v, task.lane);
}

/// The gradient of one pair's score, for the biases.
template <class T>
__device__ __forceinline__ float score_gradient(const AttentionBackward<T>& args, const Plane& p,
                                                int64_t query, int64_t key, const float* delta_of) {
  const int64_t row = p.query_first + query, at = p.head * args.query_rows + row, key_row = p.key_first + key;
  if (!args.visibility.visible(query, key, p.queries, p.keys)) return 0.0f;
  return pair_gradient(args, p, query, key, args.lse[at], delta_of[at],
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
// Budget: 64 registers, 0 bytes shared.
template <class T>
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
    const Plane p(args, at[0], at[1]);
    if (at[2] < p.queries && at[3] < p.keys) sum += score_gradient(args, p, at[2], at[3], delta_of);
  }
  sum = simt::warp_sum(sum);
  if (lane == 0) args.gbias[to] += sum;
}

// A warp an entry of grelative, blockIdx.y the head: over all pairs of that distance; the outermost entries
// have all that lie beyond, too.
// Budget: 48 registers, 0 bytes shared.
template <class T>
__global__ void __launch_bounds__(kAttentionThreads)
    relative_kernel(AttentionBackward<T> args, const float* delta_of) {
  const int64_t limit = args.bias.relative_limit, entries = 2 * limit + 1;
  const int64_t entry = int64_t{blockIdx.x} * kAttentionWarps + threadIdx.x / 32;
  if (entry >= entries) return;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t head = blockIdx.y, distance = entry - limit;
  float sum = 0.0f;
  for (int64_t sequence = 0; sequence < args.segments.count; ++sequence) {
    const Plane p(args, sequence, head);
    for (int64_t query = lane; query < p.queries; query += 32) {
      const int64_t middle = args.visibility.diagonal(query, p.queries, p.keys) + distance;
      int64_t first = distance == -limit ? 0 : middle, last = distance == limit ? p.keys : middle + 1;
      if (first < 0) first = 0;
      if (last > p.keys) last = p.keys;
      for (int64_t key = first; key < last; ++key) sum += score_gradient(args, p, query, key, delta_of);
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
  launch(what, bias_kernel<T>,
         dim3(static_cast<unsigned>(simt::ceil_div<int64_t>(elements, kAttentionWarps))),
         dim3(kAttentionThreads), 0, args, kept, summed, elements, delta);
}

}  // namespace

template <class T>
void attention_backward(const AttentionBackward<T>& args) {
  constexpr const char* kWhat = "attention_backward";
  const SegmentsView& s = args.segments;
  const auto clear_gaps = [&](const kernels::HeadsView<T>& view, bool accumulate, int64_t total, int64_t rows,
                              int64_t heads) {
    if (view.data != nullptr && !accumulate && total != rows)
      clear_rows(kWhat, view, nullptr, rows, heads, args.width);
  };
  clear_gaps(args.gq, args.accumulate_q, s.total_query, args.query_rows, args.heads);
  clear_gaps(args.gk, args.accumulate_k, s.total_key, args.key_rows, args.key_heads);
  clear_gaps(args.gv, args.accumulate_v, s.total_key, args.key_rows, args.key_heads);
  if (s.count * args.heads == 0) return;

  const Scratch scratch(static_cast<size_t>(args.heads * args.query_rows) * sizeof(float));
  float* const delta = scratch.as<float>();
  if (s.max_query > 0) {
    const int64_t blocks = simt::ceil_div<int64_t>(s.max_query, kAttentionWarps);
    launch(kWhat, query_kernel<T>, attention_grid(s.count * blocks, args.heads), dim3(kAttentionThreads),
           warp_rows_bytes(args.width, 1), args, blocks, delta);
  }
  if (s.max_key > 0 && (args.gk.data != nullptr || args.gv.data != nullptr)) {
    const int64_t blocks = simt::ceil_div<int64_t>(s.max_key, kAttentionWarps);
    launch(kWhat, key_kernel<T>, attention_grid(s.count * blocks, args.key_heads), dim3(kAttentionThreads),
           warp_rows_bytes(args.width, 2), args, blocks, static_cast<const float*>(delta));
  }
  if (s.max_query == 0 || s.max_key == 0) return;
  if (args.gbias != nullptr) bias_gradient(kWhat, args, delta);
  if (args.grelative != nullptr)
    launch(kWhat, relative_kernel<T>,
           attention_grid(simt::ceil_div<int64_t>(2 * int64_t{args.bias.relative_limit} + 1, kAttentionWarps),
                          args.heads),
           dim3(kAttentionThreads), 0, args, static_cast<const float*>(delta));
}

#define HEED_INSTANTIATE(T) template void attention_backward<T>(const AttentionBackward<T>&);
HEED_INSTANTIATE(float)
HEED_INSTANTIATE(bfloat16)
#undef HEED_INSTANTIATE

}  // namespace heed::cuda
