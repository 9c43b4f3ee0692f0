// The forward of neighbouring blocks of queries by AMX: each block of keys and values is packed once for all
// of them, while the one before is multiplied. Sums have a row for each column of the values and a column for
// each query, as scores have, so that weights need no transposing.
#if defined(HEED_KERNELS_CPU_ATTENTION_FORWARD_AMX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_CPU_ATTENTION_FORWARD_AMX_INL_H_
#undef HEED_KERNELS_CPU_ATTENTION_FORWARD_AMX_INL_H_
#else
#define HEED_KERNELS_CPU_ATTENTION_FORWARD_AMX_INL_H_
#endif

#include <algorithm>
#include <utility>

#include <heed/core/base/int_math.h>
#include <heed/kernels/cpu/attention/attention_amx-inl.h>
#include <heed/kernels/cpu/attention/attention_forward-inl.h>

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

/// What a task packs.
template <class T>
struct ForwardTiles {
  float* queries[kMaxQueryBlocksPerTask];
  float *keys[2], *values[2];  // of a block, and of the next
  float* weights;

  static int64_t size(int64_t width) {  // in floats
    return (kMaxQueryBlocksPerTask + 4) * packed_tokens<T>(width) + kPackedWeights<T>;
  }
  void bind(float* memory, int64_t width) {
    const auto take = [&](float*& part) {
      part = memory;
      memory += packed_tokens<T>(width);
    };
    for (float*& part : queries) take(part);
    for (float*& part : keys) take(part);
    for (float*& part : values) take(part);
    weights = memory;
  }
};

/// Blocks of keys and values, each packed during the products of the one before.
template <class T>
class NextKeys {
 public:
  NextKeys(const kernels::AttentionForward<T>& args, const BatchHead& p, int64_t end)
      : args_(args), plane_(p), end_(end) {}

  /// The block from `key` on, from now on.
  void begin(int64_t key, float* keys, float* values) {
    const int64_t row = plane_.key_first + key, count = std::min(kKeyBlock, end_ - key), width = args_.width;
    const bool more = key + count < end_;
    const auto begin = [&](PackStream<T>& stream, const auto& view, MatrixView<T> x, int64_t lines,
                           int64_t depth, float* out) {
      x.data = view.data + row * view.row_stride + plane_.key_head * view.head_stride;
      begin_stream<false>(stream, x, lines, depth, reinterpret_cast<bfloat16*>(out),
                          ceil_divide(depth, kAmxDepth) * kParts<T> * kAmxTileElements,
                          more ? kKeyBlock * view.row_stride : 0, inexact_);
    };
    begin(keys_, args_.k, {nullptr, args_.k.row_stride, 1}, count, width, keys);
    begin(values_, args_.v, {nullptr, 1, args_.v.row_stride}, width, count, values);
  }

  /// Makes the first `parts` of `all` parts due.
  void make_due(int64_t parts, int64_t all) {
    for (PackStream<T>* stream : {&keys_, &values_}) stream->due = stream->quarters() * parts / all;
  }

  AmxInterleave<2>& interleave() { return interleave_; }

  /// Packs what is left. False where a number is not finite: weights have parts too, of which one may be 0.
  bool finish() {
    make_due(1, 1);
    interleave_.finish();
    return kIsFloat<T>
               ? !inexact_
               : all_finite(Tag<T>(), values_.x.data, values_.x.column_stride, values_.k, args_.width);
  }

 private:
  const kernels::AttentionForward<T>& args_;
  const BatchHead& plane_;
  const int64_t end_;
  bool inexact_ = false;
  PackStream<T> keys_{}, values_{};
  AmxInterleave<2> interleave_{{&keys_, &values_}};
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

/// A block of queries of those that are attended together, packed.
struct QueriesByTiles {
  int64_t query, queries;
  const float* packed;
  const VisibleKeys* visible;
  const AttentionScratch<float>* scratch;
  bool first = true;  // no keys yet
};

/// A block of keys, packed, with its values.
struct KeysByTiles {
  int64_t key, count;
  const float *keys, *values;
};

/// A block of queries against one of keys. What is due of `next` is packed during the sums.
template <class T>
HWY_INLINE void attend_keys(const kernels::AttentionForward<T>& args, const BatchHead& p,
                            const KeysByTiles& tiles, QueriesByTiles& block, float* packed_weights,
                            AmxInterleave<2>& next) {
  const Tag<float> d;
  const VisibleKeys& visible = *block.visible;
  const AttentionScratch<float>& w = *block.scratch;
  const RunningSoftmax<float> run = running_softmax(w);
  const ScoreBlock at{block.query, block.queries, tiles.key, std::min(tiles.count, visible.last - tiles.key),
                      ceil_divide(block.queries, static_cast<int64_t>(hn::Lanes(d)))};
  const BlockVisibility seen = at.keys > 0 ? visible.block(at.key, at.key + at.keys) : BlockVisibility::none;
  if (seen == BlockVisibility::none) return;
  const TileProduct scores = score_tiles<T>(tiles.keys, block.packed, at, args.width, w.scores, w.block),
                    sums{{tiles.values, kParts<T>, ceil_divide(tiles.count, kAmxDepth)},
                         {packed_weights, kWeightParts<T>, ceil_divide(at.keys, kAmxDepth)},
                         args.width,
                         at.queries,
                         at.keys,
                         w.out,
                         w.block,
                         !block.first};
  multiply_tiles(scores);
  float scale = static_cast<float>(args.scale);
  const bool changed = changes_scores(args);
  if (changed || scale <= 0) scale_scores(at, std::exchange(scale, 1.0f), w.scores, w.block);
  if (changed) change_scores(args, p, at, w.scores, w.block);
  const auto keep_mask = draw_block(d, args, args.dropout, p, at, args.keep_mask, w);
  softmax_block(d, at, seen, visible, keep_mask, w.scores, w.block, scale, run, block.first);
  if (!block.first) shrink_columns(d, run.shrink, w.out, w.block, args.width);
  pack_weights<false, T>(w.scores, w.block, at.queries, at.keys, packed_weights);
  next.schedule(sums.turns());  // not during scores too, which took longer
  multiply_tiles(sums, next);
  block.first = false;
}

/// `count` blocks of queries from `query` on, each with scratch of its own but for the scores; false, with
/// what was written to be written again, if some numbers have to be multiplied by vectors.
template <class T>
HWY_INLINE bool attend_amx(const kernels::AttentionForward<T>& args, const BatchHead& p, int64_t query,
                           int64_t count, VisibleKeys* visible, const ForwardTiles<T>& tiles,
                           const AttentionScratch<float>* scratch) {
  const Tag<float> d;
  const auto row_of = [](const auto& view, int64_t row, int64_t head) {
    return view.data + row * view.row_stride + head * view.head_stride;
  };
  QueriesByTiles blocks[kMaxQueryBlocksPerTask];
  int64_t begin = p.keys, end = 0;
  for (int64_t g = 0; g < count; ++g) {
    const int64_t from = query + g * kQueryBlock, queries = std::min(kQueryBlock, p.queries - from);
    blocks[g] = {from, queries, tiles.queries[g], &visible[g], &scratch[g]};
    find_visible_keys(args.visibility, p, from, queries, visible[g]);
    begin = std::min(begin, visible[g].first), end = std::max(end, visible[g].last);
    if (!pack_tokens<false>(row_of(args.q, p.query_first + from, p.head), args.q.row_stride, queries,
                            args.width, tiles.queries[g]))
      return false;
  }
  const auto seen_from = [&](int64_t key) {
    const auto sees = [&](int64_t g) {
      return visible[g].block(key, std::min(key + kKeyBlock, end)) != BlockVisibility::none;
    };
    for (; key < end; key += kKeyBlock)
      for (int64_t g = 0; g < count; ++g)
        if (sees(g)) return key;
    return end;
  };
  NextKeys<T> next(args, p, end);
  int64_t slot = 0, key = seen_from(begin / kKeyBlock * kKeyBlock);
  if (key < end) next.begin(key, tiles.keys[slot], tiles.values[slot]);
  for (int64_t following; key < end; key = following, slot ^= 1) {
    if (!next.finish()) return false;
    const int64_t keys = std::min(kKeyBlock, end - key);
    following = seen_from(key + kKeyBlock);
    if (following < end) next.begin(following, tiles.keys[slot ^ 1], tiles.values[slot ^ 1]);
    for (int64_t g = 0; g < count; ++g) {
      next.make_due(g + 1, count);
      attend_keys(args, p, {key, keys, tiles.keys[slot], tiles.values[slot]}, blocks[g], tiles.weights,
                  next.interleave());
    }
  }
  for (int64_t g = 0; g < count; ++g) {
    const QueriesByTiles& block = blocks[g];
    const AttentionScratch<float>& w = *block.scratch;
    const RunningSoftmax<float> run = running_softmax(w);
    if (block.first)
      zero_rows(d, run.sum, w.block);
    else
      transpose_tiles(w.out, w.block, round_up(block.queries, kAmxLines), args.width, w.queries, w.padded);
    finish_sums(d, args, p, block.query, block.queries, run);
    write_sums(d, run, w.queries, w.padded, row_of(args.out, p.query_first + block.query, p.head),
               args.out.row_stride, block.queries, args.width);
  }
  return true;
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
