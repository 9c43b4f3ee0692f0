// The backward of one chunk of keys by AMX: its keys and values are packed once for all blocks of queries.
#if defined(HEED_KERNELS_CPU_ATTENTION_BACKWARD_AMX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_CPU_ATTENTION_BACKWARD_AMX_INL_H_
#undef HEED_KERNELS_CPU_ATTENTION_BACKWARD_AMX_INL_H_
#else
#define HEED_KERNELS_CPU_ATTENTION_BACKWARD_AMX_INL_H_
#endif

#include <algorithm>
#include <utility>

#include <heed/core/base/int_math.h>
#include <heed/kernels/cpu/attention/attention_amx-inl.h>
#include <heed/kernels/cpu/attention/attention_backward-inl.h>

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

/// What a task packs: of a chunk the keys, their columns and the values, block after block; of a block of
/// queries them, the gradients of their output, and the columns of both; and weights.
template <class T>
struct BackwardTiles {
  float *keys, *key_columns, *values;
  float *queries, *gout, *query_columns, *gout_columns;
  float* weights;
  int64_t block;  // from one of the chunk to the next

  /// Floats of a chunk, of at most max_key keys.
  static int64_t chunk_size(int64_t width, int64_t max_key) {
    return ceil_divide(std::min(kKeyChunk, max_key), kKeyBlock) * packed_tokens<T>(width);
  }
  static int64_t size(int64_t width, int64_t max_key) {  // in floats
    return 3 * chunk_size(width, max_key) + 4 * packed_tokens<T>(width) + kPackedWeights<T>;
  }
  void bind(float* memory, int64_t width, int64_t max_key) {
    block = packed_tokens<T>(width);
    const int64_t chunk = chunk_size(width, max_key);
    keys = memory;
    key_columns = keys + chunk;
    values = key_columns + chunk;
    queries = values + chunk;
    gout = queries + block;
    query_columns = gout + block;
    gout_columns = query_columns + block;
    weights = gout_columns + block;
  }
};

/// False where numbers have to be multiplied by vectors.
template <class T>
HWY_INLINE bool pack_chunk(const kernels::AttentionBackward<T>& args, const BatchHead& p, int64_t key,
                           int64_t keys, const BackwardTiles<T>& tiles) {
  const T* k = args.k.data + (p.key_first + key) * args.k.row_stride + p.key_head * args.k.head_stride;
  const T* v = args.v.data + (p.key_first + key) * args.v.row_stride + p.key_head * args.v.head_stride;
  for (int64_t i = 0, at = 0; i < keys; i += kKeyBlock, at += tiles.block) {
    const int64_t count = std::min(kKeyBlock, keys - i);
    const T *const of_k = k + i * args.k.row_stride, *const of_v = v + i * args.v.row_stride;
    if (!pack_tokens<true>(of_k, args.k.row_stride, count, args.width, tiles.keys + at) ||
        !pack_columns<true>(of_k, args.k.row_stride, count, args.width, tiles.key_columns + at) ||
        !pack_tokens<true>(of_v, args.v.row_stride, count, args.width, tiles.values + at))
      return false;
  }
  return true;
}

/// backward_block() for a chunk that is packed; false, with nothing written, where some numbers have to be
/// multiplied by vectors or a query sees no key.
template <class T>
HWY_INLINE bool backward_amx(const kernels::AttentionBackward<T>& args, const BatchHead& p, int64_t query,
                             const ChunkGradients<float>& chunk, const BackwardTiles<T>& tiles,
                             VisibleKeys& visible, const AttentionScratch<float>& w) {
  const Tag<float> d;
  const int64_t queries = std::min(kQueryBlock, p.queries - query), row = p.query_first + query;
  if (!load_lse(args.lse + p.head * args.query_rows + row, queries, w.block, w.row[0])) return false;
  const T* const q = args.q.data + row * args.q.row_stride + p.head * args.q.head_stride;
  const T* const g = args.gout.data + row * args.gout.row_stride + p.head * args.gout.head_stride;
  if (!pack_tokens<false>(q, args.q.row_stride, queries, args.width, tiles.queries) ||
      !pack_tokens<false>(g, args.gout.row_stride, queries, args.width, tiles.gout) ||
      !pack_columns<false>(q, args.q.row_stride, queries, args.width, tiles.query_columns) ||
      !pack_columns<false>(g, args.gout.row_stride, queries, args.width, tiles.gout_columns))
    return false;
  find_visible_keys(args.visibility, p, query, queries, visible);
  if (!has_all_keys(p))
    find_deltas(d, args.out.data + row * args.out.row_stride + p.head * args.out.head_stride,
                args.out.row_stride,
                whole_rows(d, g, args.gout.row_stride, queries, args.width, w.padded, w.gout), queries,
                args.width, w);

  const int64_t query_steps = ceil_divide(queries, kAmxDepth);
  bool first = true;
  const int64_t begin = std::max(chunk.key, visible.first / kKeyBlock * kKeyBlock);
  const int64_t end = std::min(chunk.key + chunk.keys, visible.last);
  for (int64_t key = begin; key < end; key += kKeyBlock) {
    const ScoreBlock at{query, queries, key, std::min(kKeyBlock, end - key),
                        ceil_divide(queries, static_cast<int64_t>(hn::Lanes(d)))};
    const BlockVisibility seen = visible.block(key, key + at.keys);
    if (seen == BlockVisibility::none) continue;
    const int64_t block = (key - chunk.key) / kKeyBlock * tiles.block;
    multiply_tiles(score_tiles<T>(tiles.keys + block, tiles.queries, at, args.width, w.scores, w.block));
    multiply_tiles(score_tiles<T>(tiles.values + block, tiles.gout, at, args.width, w.gscores, w.block));
    float scale = static_cast<float>(args.scale);
    if (changes_scores(args)) scale_scores(at, std::exchange(scale, 1.0f), w.scores, w.block);
    gradients_of_scores(args, p, at, visible, seen != BlockVisibility::all, scale, w);
    if (args.gbias || args.grelative) add_bias_gradients(args, p, at, w);
    const auto add_to_keys = [&](const float* weights, const float* columns, float* sum) HWY_ATTR {
      if (sum == nullptr) return;
      pack_weights<true, T>(weights, w.block, at.keys, queries, tiles.weights);
      multiply_tiles({{tiles.weights, kWeightParts<T>, query_steps},
                      {columns, kParts<T>, query_steps},
                      at.keys,
                      args.width,
                      queries,
                      sum + (key - chunk.key) * w.padded,
                      w.padded,
                      true});
    };
    add_to_keys(w.scores, tiles.gout_columns, chunk.gv);
    add_to_keys(w.gscores, tiles.query_columns, chunk.gk);
    if (args.gq.data) {
      const int64_t packed = std::min(kKeyBlock, chunk.key + chunk.keys - key);
      pack_weights<false, T>(w.gscores, w.block, queries, at.keys, tiles.weights);
      multiply_tiles({{tiles.key_columns + block, kParts<T>, ceil_divide(packed, kAmxDepth)},
                      {tiles.weights, kWeightParts<T>, ceil_divide(at.keys, kAmxDepth)},
                      args.width,
                      queries,
                      at.keys,
                      w.out,
                      w.block,
                      !first});
    }
    first = false;
  }
  if (args.gq.data == nullptr) return true;
  if (first)
    zero_rows(d, w.queries, queries * w.padded);
  else
    transpose_tiles(w.out, w.block, round_up(queries, kAmxLines), args.width, w.queries, w.padded);
  write_query_gradients(args, p, query, queries, chunk, w.queries, w.padded);
  return true;
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
