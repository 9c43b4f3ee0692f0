// The forward of neighbouring blocks of queries by AMX: each block of keys and values is packed once for all
// of them. Sums have a row for each column of the values and a column for each query, as scores have, so that
// weights need no transposing.
#if defined(HEED_KERNELS_CPU_ATTENTION_FORWARD_AMX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_CPU_ATTENTION_FORWARD_AMX_INL_H_
#undef HEED_KERNELS_CPU_ATTENTION_FORWARD_AMX_INL_H_
#else
#define HEED_KERNELS_CPU_ATTENTION_FORWARD_AMX_INL_H_
#endif

#include <algorithm>
#include <utility>

#include <heed/core/base/divide.h>
#include <heed/kernels/cpu/attention_amx-inl.h>
#include <heed/kernels/cpu/attention_forward-inl.h>

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

/// What a task packs.
template <class T>
struct ForwardTiles {
  float *keys, *values, *weights;
  float* queries[kMostBlocksTogether];

  static int64_t size(int64_t width) {  // in floats
    return (kMostBlocksTogether + 2) * packed_tokens<T>(width) + kPackedWeights<T>;
  }
  void place(float* memory, int64_t width) {
    const int64_t block = packed_tokens<T>(width);
    for (int64_t g = 0; g < kMostBlocksTogether; ++g) queries[g] = memory + g * block;
    keys = memory + kMostBlocksTogether * block;
    values = keys + block;
    weights = values + block;
  }
};

/// out [width, stride] *= shrink, a number for each column.
template <class D>
HWY_INLINE void shrink_columns(D d, const float* shrink, float* out, int64_t stride, int64_t width) {
  for (int64_t column = 0; column < stride; column += static_cast<int64_t>(hn::Lanes(d))) {
    const auto factor = hn::LoadU(d, shrink + column);
    if (hn::AllTrue(d, hn::Eq(factor, hn::Set(d, 1.0f)))) continue;
    for (float* o = out + column; o < out + width * stride; o += stride)
      hn::StoreU(hn::Mul(hn::LoadU(d, o), factor), d, o);
  }
}

/// A block of queries of those that are attended together.
struct QueriesByTiles {
  int64_t query, queries;
  RunningSoftmax<float> run;
  bool first = true;  // no keys yet
};

/// It against a block of keys, of which `packed` are.
template <class T>
HWY_INLINE void attend_keys(const kernels::AttentionForward<T>& args, const Plane& p, int64_t key,
                            int64_t packed, const VisibleKeys& visible, const float* queries,
                            const ForwardTiles<T>& tiles, const AttentionScratch<float>& w,
                            QueriesByTiles& block) {
  const Tag<float> d;
  const ScoreBlock at{block.query, block.queries, key, std::min(packed, visible.last - key),
                      ceil_divide(block.queries, static_cast<int64_t>(hn::Lanes(d)))};
  const Sight sight = at.keys > 0 ? visible.sight(key, key + at.keys) : Sight::none;
  if (sight == Sight::none) return;
  score_tiles<T>(tiles.keys, queries, at, args.width, w.scores, w.block);
  float scale = static_cast<float>(args.scale);
  const bool changed = changes_scores(args.bias, args.visibility);
  if (changed || scale <= 0) scale_scores(at, std::exchange(scale, 1.0f), w.scores, w.block);
  if (changed) change_scores(args.bias, args.visibility, p, at, w.scores, w.block);
  const auto kept = draw_block(d, args, args.dropout, p, at, args.kept, w);
  softmax_block(d, at, sight, visible, kept, w.scores, w.block, scale, block.run, block.first);
  if (!block.first) shrink_columns(d, block.run.shrink, w.out, w.block, args.width);
  pack_weights<false, T>(w.scores, w.block, at.queries, at.keys, tiles.weights);
  multiply_tiles({tiles.values, kParts<T>, ceil_divide(packed, kAmxDepth)},
                 {tiles.weights, kWeightParts<T>, ceil_divide(at.keys, kAmxDepth)}, args.width, at.queries,
                 at.keys, w.out, w.block, !block.first);
  block.first = false;
}

/// `count` blocks of queries from `query` on, each with scratch of its own but for the scores; false, with
/// what was written to be written again, if some numbers have to be multiplied by vectors.
template <class T>
HWY_INLINE bool attend_by_tiles(const kernels::AttentionForward<T>& args, const Plane& p, int64_t query,
                                int64_t count, VisibleKeys* visible, const ForwardTiles<T>& tiles,
                                const AttentionScratch<float>* scratch) {
  const Tag<float> d;
  const auto row_of = [](const auto& view, int64_t row, int64_t head) {
    return view.data + row * view.row_stride + head * view.head_stride;
  };
  QueriesByTiles blocks[kMostBlocksTogether];
  int64_t begin = p.keys, end = 0;
  for (int64_t g = 0; g < count; ++g) {
    const AttentionScratch<float>& w = scratch[g];
    const int64_t from = query + g * kQueryBlock, queries = std::min(kQueryBlock, p.queries - from);
    blocks[g] = {from, queries, {w.row[0], w.row[1], w.row[2]}};
    find_visible_keys(args.visibility, p, from, queries, visible[g]);
    begin = std::min(begin, visible[g].first), end = std::max(end, visible[g].last);
    if (!pack_tokens<false>(row_of(args.q, p.query_first + from, p.head), args.q.row_stride, queries,
                            args.width, tiles.queries[g]))
      return false;
  }
  for (int64_t key = begin / kKeyBlock * kKeyBlock; key < end; key += kKeyBlock) {
    const int64_t keys = std::min(kKeyBlock, end - key), row = p.key_first + key;
    if (!pack_tokens<true>(row_of(args.k, row, p.key_head), args.k.row_stride, keys, args.width,
                           tiles.keys) ||
        !pack_columns<true>(row_of(args.v, row, p.key_head), args.v.row_stride, keys, args.width,
                            tiles.values))
      return false;
    const int64_t next = std::min(kKeyBlock, end - key - keys);
    prefetch_rows(args.k, row + keys, p.key_head, next, args.width);
    prefetch_rows(args.v, row + keys, p.key_head, next, args.width);
    for (int64_t g = 0; g < count; ++g)
      attend_keys(args, p, key, keys, visible[g], tiles.queries[g], tiles, scratch[g], blocks[g]);
  }
  for (int64_t g = 0; g < count; ++g) {
    const AttentionScratch<float>& w = scratch[g];
    const auto& [from, queries, run, first] = blocks[g];
    if (first)
      zero_rows(d, run.sum, w.block);
    else
      transpose_tiles(w.out, w.block, round_up(queries, kAmxLines), args.width, w.queries, w.padded);
    finish_sums(d, args, p, from, queries, run);
    write_sums(d, run, w.queries, w.padded, row_of(args.out, p.query_first + from, p.head),
               args.out.row_stride, queries, args.width);
  }
  return true;
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
