#include <algorithm>
#include <limits>

#include <heed/core/base/int_math.h>
#include <heed/core/base/threads/parallel_for.h>
#include <heed/kernels/attention.h>
#include <heed/kernels/cpu/attention/attention_blocking.h>
#include <heed/kernels/cpu/attention/attention_path.h>
#include <heed/kernels/cpu/gemm/amx.h>
#include <heed/kernels/cpu/simd/typed_export.h>
#include <heed/kernels/cpu/tasks/workspace.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/kernels/cpu/attention/attention.cpp"
#include <heed/kernels/cpu/simd/simd.h>
// The -inl headers follow simd.h, which includes this file once per instruction set.
#include <heed/kernels/cpu/attention/attention_forward-inl.h>
#include <heed/kernels/cpu/attention/attention_forward_amx-inl.h>
#include <heed/kernels/cpu/attention/attention_one-inl.h>

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

/// Tasks begin … end - 1; task i is block i % blocks of sequence and head i / blocks.
template <class T>
void attend_tasks(const kernels::AttentionForward<T>& args, int64_t begin, int64_t end) {
  using A = accumulator_t<T>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(Tag<T>()));
  const int64_t blocks = query_blocks(args.segments);
  AttentionScratch<A> w;
  Workspace<A> memory(w.bind(nullptr, args.width, args.segments.max_query, lanes, false));
  w.bind(memory.data(), args.width, args.segments.max_query, lanes, false);
  VisibleKeys visible;
  BatchHead next = batch_head_at(args, begin / blocks);
  for (int64_t i = begin; i < end; ++i) {
    const BatchHead p = next;
    const int64_t query = i % blocks * kQueryBlock;
    if (i + 1 < end) {
      next = batch_head_at(args, (i + 1) / blocks);
      prefetch_block(args, next, (i + 1) % blocks * kQueryBlock);
    }
    prefetch_rows(args.out, p.query_first + query, p.head, std::min(kQueryBlock, p.queries - query),
                  args.width);
    if (query >= p.queries) continue;
    if (attends_one_query(args, p))
      attend_one(args, p, visible, w);
    else
      attend_block(args, p, query, visible, w);
  }
}
HEED_TYPED(attend_tasks, kernels::AttentionForward)

/// The same for groups of `together` blocks, group i % groups of sequence and head i / groups.
template <class T>
void attend_amx_tasks(const kernels::AttentionForward<T>& args, int64_t together, int64_t begin,
                      int64_t end) {
  const int64_t groups = ceil_divide(query_blocks(args.segments), together);
  AttentionScratch<float> w[kMaxQueryBlocksPerTask];
  ForwardTiles<T> buffers;
  const int64_t size = w[0].bind(nullptr, args.width, args.segments.max_query, kAmxLines, false);
  Workspace<float> memory(together * size + ForwardTiles<T>::size(args.width));
  for (int64_t g = 0; g < together; ++g) {
    w[g].bind(memory.data() + g * size, args.width, args.segments.max_query, kAmxLines, false);
    w[g].scores = w[0].scores, w[g].keep_mask = w[0].keep_mask;
  }
  buffers.bind(memory.data() + together * size, args.width);
  const AmxTiles tiles;
  VisibleKeys visible[kMaxQueryBlocksPerTask];
  for (int64_t i = begin; i < end; ++i) {
    const BatchHead p = batch_head_at(args, i / groups);
    const int64_t query = i % groups * together * kQueryBlock;
    if (query >= p.queries) continue;
    const int64_t blocks = std::min(together, ceil_divide(p.queries - query, kQueryBlock));
    if (attend_amx(args, p, query, blocks, visible, buffers, w)) continue;
    for (int64_t g = 0; g < blocks; ++g) attend_block(args, p, query + g * kQueryBlock, visible[g], w[g]);
  }
}
void attend_amx_tasks_f32(const kernels::AttentionForward<float>& args, int64_t together, int64_t begin,
                          int64_t end) {
  attend_amx_tasks(args, together, begin, end);
}
void attend_amx_tasks_bf16(const kernels::AttentionForward<bfloat16>& args, int64_t together, int64_t begin,
                           int64_t end) {
  attend_amx_tasks(args, together, begin, end);
}

/// The weights of the asked-for queries begin … end - 1, at most a block of them.
template <class T>
void rebuild_weights(const kernels::AttentionWeights<T>& args, int64_t begin, int64_t end) {
  using A = accumulator_t<T>;
  const Tag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), queries = end - begin,
                query = args.first_query + begin;
  const BatchHead p = make_batch_head(args, args.sequence, args.head);
  AttentionScratch<A> w;
  Workspace<A> memory(w.bind(nullptr, args.width, queries, lanes, false));
  w.bind(memory.data(), args.width, queries, lanes, false);
  const T* q = args.q.data + (p.query_first + query) * args.q.row_stride + p.head * args.q.head_stride;
  const bool pairs = multiplies_pairs(args.q, args.k, args.width);
  const auto rows = score_rows(d, pairs, q, args.q.row_stride, queries, args.width, w.padded, w.queries);
  transpose_rows(d, rows, queries, args.width, w, w.queries_t);
  load_lse(args.lse + p.head * args.query_rows + p.query_first + query, queries, w.block, w.row[0]);
  VisibleKeys visible;
  find_visible_keys(args.visibility, p, query, queries, visible);
  for (int64_t key = 0; key < p.keys; key += kKeyBlock) {
    const ScoreBlock at{query, queries, key, std::min(kKeyBlock, p.keys - key), ceil_divide(queries, lanes)};
    const T* k = args.k.data + (p.key_first + key) * args.k.row_stride + p.key_head * args.k.head_stride;
    const auto keys = score_rows(d, pairs, k, args.k.row_stride, at.keys, args.width, w.padded, w.keys);
    score_product(d, keys, w.queries_t, at, args.width, static_cast<A>(args.scale), w, w.scores);
    // The queries asked for may lie across blocks of a pattern.
    if (changes_scores(args) || args.visibility.blocks.given()) change_scores(args, p, at, w.scores, w.block);
    for (int64_t j = 0; j < at.keys; ++j) {
      for (int64_t c = 0; c < at.vectors * lanes; c += lanes) {
        A* const s = w.scores + j * w.block + c;
        Vec<decltype(d)> weights[] = {hn::LoadU(d, s)};
        weights_of(d, weights, A(1), hn::LoadU(d, w.row[0] + c), visible, c, key + j, true);
        hn::StoreU(weights[0], d, s);
      }
    }
    for (int64_t i = 0; i < queries; ++i) {
      A* const to = args.weights + (begin + i) * p.keys + key;
      for (int64_t j = 0; j < at.keys; ++j) to[j] = w.scores[j * w.block + i];
    }
  }
}
HEED_TYPED(rebuild_weights, kernels::AttentionWeights)

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::cpu {
namespace {

HEED_EXPORT_TYPED(attend_tasks)
HWY_EXPORT(attend_amx_tasks_f32);
HWY_EXPORT(attend_amx_tasks_bf16);
HEED_EXPORT_TYPED(rebuild_weights)

}  // namespace

template <class T>
void attention_forward(const kernels::AttentionForward<T>& args) {
  using A = accumulator_t<T>;
  const SegmentsView& s = args.segments;
  for_gap_rows(s.count, s.query_first, s.query_length, s.total_query, args.query_rows, [&](int64_t row) {
    for (int64_t head = 0; head < args.heads; ++head) {
      std::fill_n(args.out.data + row * args.out.row_stride + head * args.out.head_stride, args.width,
                  T(A(0)));
      if (args.lse) args.lse[head * args.query_rows + row] = -std::numeric_limits<A>::infinity();
    }
  });
  const int64_t batch_heads = s.count * args.heads, blocks = query_blocks(s);
  if constexpr (!std::is_same_v<T, double>) {
    if (attention_path<T>(args) == AttentionPath::amx) {
      const auto groups =
          choose_by_type<T>(HEED_SIMD(attend_amx_tasks_f32), HEED_SIMD(attend_amx_tasks_bf16), 0);
      const int64_t together = query_blocks_per_task(batch_heads, blocks);
      return parallel_for(batch_heads * ceil_divide(blocks, together), 1,
                          [&](int64_t begin, int64_t end) { groups(args, together, begin, end); });
    }
  }
  const auto tasks = HEED_SIMD_OF(T, attend_tasks);
  const int64_t work = std::min<int64_t>(s.max_query, kQueryBlock) * s.max_key * args.width;
  parallel_for(batch_heads * blocks, attention_grain(work),
               [&](int64_t begin, int64_t end) { tasks(args, begin, end); });
}

template <class T>
int64_t attention_keep_mask_size(const SegmentsView& s, int64_t heads, const Dropout& dropout) {
  if (!dropout.active() || s.max_query > kQueryBlock || s.max_key > kKeyBlock) return 0;
  return s.count * heads * s.max_key * keep_mask_stride<accumulator_t<T>>(s.max_query);
}

template <class T>
void attention_weights(const kernels::AttentionWeights<T>& args) {
  const auto block = HEED_SIMD_OF(T, rebuild_weights);
  parallel_for(args.queries, kQueryBlock, [&](int64_t begin, int64_t end) { block(args, begin, end); });
}

#define HEED_INSTANTIATE(T)                                                                   \
  template int64_t attention_keep_mask_size<T>(const SegmentsView&, int64_t, const Dropout&); \
  template void attention_forward<T>(const kernels::AttentionForward<T>&);                    \
  template void attention_weights<T>(const kernels::AttentionWeights<T>&);
HEED_INSTANTIATE(float)
HEED_INSTANTIATE(bfloat16)
HEED_INSTANTIATE(double)
#undef HEED_INSTANTIATE

}  // namespace heed::cpu
#endif
