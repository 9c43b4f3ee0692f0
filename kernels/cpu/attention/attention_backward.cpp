#include <algorithm>
#include <limits>
#include <optional>

#include <heed/core/base/int_math.h>
#include <heed/core/base/threads/parallel_for.h>
#include <heed/kernels/attention.h>
#include <heed/kernels/cpu/attention/attention_blocking.h>
#include <heed/kernels/cpu/attention/attention_path.h>
#include <heed/kernels/cpu/gemm/amx.h>
#include <heed/kernels/cpu/simd/typed_export.h>
#include <heed/kernels/cpu/tasks/workspace.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/kernels/cpu/attention/attention_backward.cpp"
#include <heed/kernels/cpu/simd/simd.h>
// The -inl headers follow simd.h, which includes this file once per instruction set.
#include <heed/kernels/cpu/attention/attention_backward-inl.h>
#include <heed/kernels/cpu/attention/attention_backward_amx-inl.h>

#ifndef HEED_KERNELS_CPU_ATTENTION_BACKWARD_ONCE_
#define HEED_KERNELS_CPU_ATTENTION_BACKWARD_ONCE_
namespace heed::cpu {

template <class T>
struct BackwardWork {
  const kernels::AttentionBackward<T>& args;
  BackwardPlan plan;
  bool uses_amx;
  int64_t stride;
  accumulator_t<T>* gq_parts;  // [heads, splits, query_rows, stride] if plan.sums_queries

  accumulator_t<T>* gq_part(int64_t head, int64_t split, int64_t row) const {
    return gq_parts + ((head * plan.splits + split) * args.query_rows + row) * stride;
  }
};

}  // namespace heed::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

/// Whether one block of queries and keys makes all gradients of its keys, in whole vectors.
template <class T>
HWY_INLINE bool stands_alone(const kernels::AttentionBackward<T>& args, const BatchHead& p,
                             VisibleKeys& visible, int64_t padded) {
  if (args.heads != args.key_heads || p.queries == 0 || p.queries > kQueryBlock || !has_all_keys(p) ||
      args.width != padded || args.accumulate_k || args.accumulate_v)
    return false;
  find_visible_keys(args.visibility, p, 0, p.queries, visible);
  return visible.last == p.keys && visible.block(0, p.keys) != BlockVisibility::none;
}

/// All blocks of queries of a sequence and head against a chunk of keys. Where gq is summed from parts, only
/// those that see some of the keys.
template <class T>
HWY_INLINE void backward_batch_head(const BackwardWork<T>& work, const BatchHead& p,
                                    const ChunkGradients<accumulator_t<T>>& chunk, bool packed,
                                    const BackwardTiles<T>& tiles, VisibleKeys& visible,
                                    const AttentionScratch<accumulator_t<T>>& w) {
  const Tag<T> d;
  const auto next = [&](int64_t query) -> int64_t {
    if (chunk.gq == nullptr) return query;
    const auto number = [](int64_t x) { return static_cast<int32_t>(x); };
    return work.args.visibility.next_query(number(chunk.key), number(chunk.key + chunk.keys), number(query),
                                           kQueryBlock, number(p.queries), number(p.keys));
  };
  int64_t written = 0;  // queries that have their part
  const auto zero_to = [&](int64_t query) {
    if (chunk.gq && chunk.first && query > written)
      zero_rows(d, chunk.gq + written * chunk.gq_stride, (query - written) * chunk.gq_stride);
    written = query + kQueryBlock;
  };
  for (int64_t query = next(0); query < p.queries; query = next(query + kQueryBlock)) {
    zero_to(query);
    if constexpr (!std::is_same_v<T, double>) {
      if (packed && backward_amx(work.args, p, query, chunk, tiles, visible, w)) continue;
    }
    backward_block(work.args, p, query, chunk, visible, w);
  }
  zero_to(p.queries);
}

/// The chunks that belong to one split of the keys of a sequence, for one key head and all its query heads.
template <class T>
void backward_unit(const BackwardWork<T>& work, int64_t sequence, int64_t key_head, int64_t split,
                   VisibleKeys& visible, const BackwardTiles<T>& tiles,
                   const AttentionScratch<accumulator_t<T>>& w, accumulator_t<T>* gk, accumulator_t<T>* gv) {
  using A = accumulator_t<T>;
  const auto& args = work.args;
  const Tag<T> d;
  const int64_t group = args.heads / args.key_heads;
  const BatchHead first = make_batch_head(args, sequence, key_head * group);
  const int64_t chunks = std::max<int64_t>(1, ceil_divide(first.keys, kKeyChunk));
  const int64_t begin = chunks * split / work.plan.splits, end = chunks * (split + 1) / work.plan.splits;
  for (int64_t head = first.head; head < first.head + group && begin == end && args.gq.data; ++head)
    zero_rows(d, work.gq_part(head, split, first.query_first), first.queries * work.stride);
  for (int64_t c = begin; c < end; ++c) {
    ChunkGradients<A> chunk{c * kKeyChunk,
                            std::min(kKeyChunk, first.keys - c * kKeyChunk),
                            gk,
                            gv,
                            nullptr,
                            work.stride,
                            c == begin,
                            !work.uses_amx && stands_alone(args, first, visible, w.padded)};
    bool packed = false;
    if constexpr (!std::is_same_v<T, double>)
      packed = work.uses_amx && pack_chunk(args, first, chunk.key, chunk.keys, tiles);
    if (gk && !chunk.straight) zero_rows(d, gk, chunk.keys * w.padded);
    if (gv && !chunk.straight) zero_rows(d, gv, chunk.keys * w.padded);
    for (int64_t head = first.head; head < first.head + group; ++head) {
      const BatchHead p = make_batch_head(args, sequence, head);
      if (work.plan.sums_queries) chunk.gq = work.gq_part(head, split, p.query_first);
      backward_batch_head(work, p, chunk, packed, tiles, visible, w);
    }
    if (chunk.straight) continue;
    if (gk)
      write_keys(gk, w.padded, args.gk, first, chunk.key, chunk.keys, args.width, static_cast<A>(args.scale),
                 args.accumulate_k);
    if (gv)
      write_keys(gv, w.padded, args.gv, first, chunk.key, chunk.keys, args.width, A(1), args.accumulate_v);
  }
}

/// Prefetches what task i reads first, and where it writes that.
template <class T>
HWY_INLINE void prefetch_task(const BackwardWork<T>& work, int64_t i) {
  const auto& args = work.args;
  const int64_t group = i / work.plan.splits, head_groups = work.plan.head_groups(args.key_heads);
  const int64_t head = group % head_groups * (args.heads / args.key_heads);
  const BatchHead p = make_batch_head(args, group / head_groups, head);
  const int64_t queries = std::min(kQueryBlock, p.queries), keys = std::min(kKeyBlock, p.keys);
  prefetch_block(args, p, 0);
  prefetch_rows(args.gout, p.query_first, p.head, queries, args.width);
  if (!has_all_keys(p)) prefetch_rows(args.out, p.query_first, p.head, queries, args.width);
  prefetch_rows(args.gq, p.query_first, p.head, queries, args.width);
  prefetch_rows(args.gk, p.key_first, p.key_head, keys, args.width);
  prefetch_rows(args.gv, p.key_first, p.key_head, keys, args.width);
  prefetch_lines(args.lse + p.head * args.query_rows + p.query_first, queries);
}

/// Tasks begin … end - 1; task i is split i % splits of a group of key heads of a group of sequences.
template <class T>
void backward_tasks(const BackwardWork<T>& work, int64_t begin, int64_t end) {
  using A = accumulator_t<T>;
  const auto& args = work.args;
  const BackwardPlan& plan = work.plan;
  const int64_t unit = work.uses_amx ? kAmxLines : static_cast<int64_t>(hn::Lanes(Tag<T>()));
  AttentionScratch<A> w;
  BackwardTiles<T> tiles{};
  const int64_t max_query = args.segments.max_query, max_key = args.segments.max_key;
  const int64_t size = w.bind(nullptr, args.width, max_query, unit, true);
  const int64_t chunk = round_up(std::min(kKeyChunk, max_key), unit) * w.padded;
  Workspace<A> memory(size + 2 * chunk);
  Workspace<float> packed(work.uses_amx ? BackwardTiles<T>::size(args.width, max_key) : 0);
  w.bind(memory.data(), args.width, max_query, unit, true);
  if (work.uses_amx) tiles.bind(packed.data(), args.width, max_key);
  A* const gk = args.gk.data ? memory.data() + size : nullptr;
  A* const gv = args.gv.data ? memory.data() + size + chunk : nullptr;
  std::optional<AmxTiles> ready;
  if (work.uses_amx) ready.emplace();
  const int64_t head_groups = plan.head_groups(args.key_heads);
  VisibleKeys visible;
  for (int64_t i = begin; i < end; ++i) {
    if (i + 1 < end) prefetch_task(work, i + 1);
    const int64_t split = i % plan.splits, head = i / plan.splits % head_groups;
    const int64_t sequence = i / plan.splits / head_groups;
    for (int64_t s = sequence; s < (plan.serial_sequences ? args.segments.count : sequence + 1); ++s) {
      for (int64_t h = head; h < (plan.serial_heads ? args.key_heads : head + 1); ++h)
        backward_unit(work, s, h, split, visible, tiles, w, gk, gv);
    }
  }
}
HEED_TYPED(backward_tasks, BackwardWork)

/// gq of sequences and heads begin … end - 1, from its parts in order.
template <class T>
void sum_queries(const BackwardWork<T>& work, int64_t begin, int64_t end) {
  using A = accumulator_t<T>;
  const auto& args = work.args;
  const Tag<T> d;
  const int64_t blocks = query_blocks(args.segments);
  for (int64_t i = begin; i < end; ++i) {
    const BatchHead p = make_batch_head(args, i / blocks / args.heads, i / blocks % args.heads);
    const int64_t query = i % blocks * kQueryBlock;
    for (int64_t row = p.query_first + query; row < p.query_first + std::min(query + kQueryBlock, p.queries);
         ++row) {
      A* const sum = work.gq_part(p.head, 0, row);
      for (int64_t split = 1; split < work.plan.splits; ++split)
        write_row(d, work.gq_part(p.head, split, row), sum, args.width, A(1), true);
      write_row(d, sum, args.gq.data + row * args.gq.row_stride + p.head * args.gq.head_stride, args.width,
                static_cast<A>(args.scale), args.accumulate_q);
    }
  }
}
HEED_TYPED(sum_queries, BackwardWork)

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::cpu {
namespace {

HEED_EXPORT_TYPED(backward_tasks)
HEED_EXPORT_TYPED(sum_queries)

template <class T>
BackwardPlan make_plan(const kernels::AttentionBackward<T>& args) {
  constexpr int64_t kTasks = 16;  // enough for the threads of a usual machine
  const auto& bias = args.bias;
  BackwardPlan plan{};
  plan.serial_sequences = args.grelative || (args.gbias && bias.bias_stride[0] == 0);
  plan.serial_heads = args.gbias && bias.bias_stride[1] == 0;
  const int64_t chunks = std::max<int64_t>(1, ceil_divide(args.segments.max_key, kKeyChunk));
  const int64_t units = std::max<int64_t>(1, args.segments.count * args.key_heads);
  plan.splits = args.gbias || args.grelative ? 1 : std::clamp<int64_t>(kTasks / units, 1, chunks);
  plan.sums_queries = args.gq.data != nullptr && chunks > 1;
  return plan;
}

template <class T>
void zero_gap_rows(const kernels::HeadsView<T>& view, int64_t heads, int64_t width, int64_t count,
                   const int64_t* first, const int32_t* length, int64_t total, int64_t rows) {
  for_gap_rows(count, first, length, total, rows, [&](int64_t row) {
    for (int64_t head = 0; head < heads; ++head)
      std::fill_n(view.data + row * view.row_stride + head * view.head_stride, width, T(accumulator_t<T>(0)));
  });
}

}  // namespace

template <class T>
void attention_backward(const kernels::AttentionBackward<T>& args) {
  using A = accumulator_t<T>;
  const SegmentsView& s = args.segments;
  if (args.gq.data && !args.accumulate_q)
    zero_gap_rows(args.gq, args.heads, args.width, s.count, s.query_first, s.query_length, s.total_query,
                  args.query_rows);
  if (args.gk.data && !args.accumulate_k)
    zero_gap_rows(args.gk, args.key_heads, args.width, s.count, s.key_first, s.key_length, s.total_key,
                  args.key_rows);
  if (args.gv.data && !args.accumulate_v)
    zero_gap_rows(args.gv, args.key_heads, args.width, s.count, s.key_first, s.key_length, s.total_key,
                  args.key_rows);

  BackwardWork<T> work{args, make_plan(args), attention_path<T>(args) == AttentionPath::amx,
                       padded_width(args.width, sizeof(A)), nullptr};
  const BackwardPlan& plan = work.plan;
  Workspace<A> parts(plan.sums_queries ? args.heads * plan.splits * args.query_rows * work.stride : 0);
  work.gq_parts = parts.data();
  const auto tasks = HEED_SIMD_OF(T, backward_tasks);
  const int64_t size = int64_t{s.max_query} * s.max_key * args.width * 2;
  parallel_for(plan.sequence_groups(s.count) * plan.head_groups(args.key_heads) * plan.splits,
               attention_grain(size), [&](int64_t begin, int64_t end) { tasks(work, begin, end); });
  if (!plan.sums_queries) return;
  const auto sum = HEED_SIMD_OF(T, sum_queries);
  parallel_for(s.count * args.heads * query_blocks(s), 4,
               [&](int64_t begin, int64_t end) { sum(work, begin, end); });
}

#define HEED_INSTANTIATE(T) template void attention_backward<T>(const kernels::AttentionBackward<T>&);
HEED_INSTANTIATE(float)
HEED_INSTANTIATE(bfloat16)
HEED_INSTANTIATE(double)
#undef HEED_INSTANTIATE

}  // namespace heed::cpu
#endif
