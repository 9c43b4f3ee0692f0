// The backward of one chunk of keys of a sequence and head: the weights are computed again block by block.
#if defined(HEED_KERNELS_CPU_ATTENTION_BACKWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_CPU_ATTENTION_BACKWARD_INL_H_
#undef HEED_KERNELS_CPU_ATTENTION_BACKWARD_INL_H_
#else
#define HEED_KERNELS_CPU_ATTENTION_BACKWARD_INL_H_
#endif

#include <heed/core/base/int_math.h>
#include <heed/kernels/cpu/attention/attention_bias-inl.h>
#include <heed/kernels/cpu/attention/attention_block-inl.h>
#include <heed/kernels/cpu/attention/attention_dropout-inl.h>
#include <heed/kernels/cpu/simd/horizontal_sums-inl.h>

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

/// Where the gradients of one chunk of keys are summed, a padded row a key, and its part of the queries'.
template <class A>
struct ChunkGradients {
  int64_t key, keys;  // the chunk
  A *gk, *gv;         // [keys, padded], gk without the scale; null if not wanted
  A* gq;              // [queries, gq_stride]; null: gq goes straight to where it belongs
  int64_t gq_stride;
  bool first;     // gq holds nothing yet
  bool straight;  // a single block of queries and keys makes it all, and writes it where it belongs
};

/// The gradient of a score, from its weight and that of the weight. Where the weight is 0, g may be NaN: what
/// a hidden key holds must not count.
template <class D>
HWY_INLINE Vec<D> score_gradient(D d, Vec<D> weight, Vec<D> g, Vec<D> delta) {
  return hn::IfThenZeroElse(hn::Eq(weight, hn::Zero(d)), hn::Mul(weight, hn::Sub(g, delta)));
}

/// Turns scores, scale times what is there, into weights after dropout, and gscores (their gradient) into the
/// gradient of the scores. What the softmax takes off the latter, the sum of weights times their gradients,
/// is found here if the block has all keys, else it is in w.row[1].
template <bool kAllKeys, class D>
HWY_INLINE void gradient_block(D d, const ScoreBlock& at, const VisibleKeys& visible, bool hidden,
                               const KeepMaskBlock& keep_mask, Lane<D> scale,
                               const AttentionScratch<Lane<D>>& w) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t column = 0; column < at.vectors * lanes; column += lanes) {
    const auto lse = hn::LoadU(d, w.row[0] + column);
    auto delta = kAllKeys ? hn::Zero(d) : hn::LoadU(d, w.row[1] + column), total = hn::Zero(d);
    visit_keys(at.keys, [&]<int K>(std::integral_constant<int, K>, int64_t first) HWY_ATTR {
      Vec<D> weights[K];
      for (int j = 0; j < K; ++j) weights[j] = hn::LoadU(d, w.scores + (first + j) * w.block + column);
      weights_of(d, weights, scale, lse, visible, column, at.key + first, hidden);
      for (int j = 0; j < K; ++j) {
        const int64_t k = first + j, i = k * w.block + column;
        const auto g = keep_mask.apply(d, hn::LoadU(d, w.gscores + i), k, column);
        if constexpr (kAllKeys) {
          delta = hn::Add(delta, score_gradient(d, weights[j], g, hn::Zero(d)));
          total = hn::Add(total, weights[j]);
          hn::StoreU(weights[j], d, w.scores + i);
          hn::StoreU(g, d, w.gscores + i);
        } else {
          hn::StoreU(keep_mask.apply(d, weights[j], k, column), d, w.scores + i);
          hn::StoreU(score_gradient(d, weights[j], g, delta), d, w.gscores + i);
        }
      }
    });
    if constexpr (kAllKeys) {
      // Weights add up to 1 but for the rounding of lse, which the quotient takes out.
      delta = hn::Div(delta, total);
      for (int64_t k = 0; k < at.keys; ++k) {
        const int64_t i = k * w.block + column;
        const auto weight = hn::LoadU(d, w.scores + i);
        hn::StoreU(keep_mask.apply(d, weight, k, column), d, w.scores + i);
        hn::StoreU(score_gradient(d, weight, hn::LoadU(d, w.gscores + i), delta), d, w.gscores + i);
      }
    }
  }
}

/// Adds a block of the scores' gradient to those of the bias and of the relative table.
template <class T>
HWY_NOINLINE void add_bias_gradients(const kernels::AttentionBackward<T>& args, const BatchHead& p,
                                     const ScoreBlock& at, const AttentionScratch<accumulator_t<T>>& w) {
  using A = accumulator_t<T>;
  const auto& b = args.bias;
  const int64_t limit = b.relative_limit;
  const int64_t diagonal = args.visibility.diagonal(at.query, p.queries, p.keys);
  for (int64_t i = 0; i < at.queries; ++i) {
    const A* g = w.gscores + i;
    if (args.gbias) {
      A* to = args.gbias + p.sequence * b.bias_stride[0] + p.head * b.bias_stride[1] +
              (at.query + i) * b.bias_stride[2] + at.key * b.bias_stride[3];
      for (int64_t k = 0; k < at.keys; ++k) to[k * b.bias_stride[3]] += g[k * w.block];
    }
    if (args.grelative) {
      A* table = args.grelative + p.head * (2 * limit + 1) + limit;
      for (int64_t k = 0; k < at.keys; ++k)
        table[std::clamp(at.key + k - diagonal - i, -limit, limit)] += g[k * w.block];
    }
  }
}

/// `count` rows as whole_rows() gives them, or packed, with zeros where load_lse() found that the query sees
/// no key.
template <class D, class T>
HWY_INLINE Rows<Lane<D>> seen_rows(D d, const T* from, int64_t row_stride, int64_t count, int64_t width,
                                   bool as_they_lie, const AttentionScratch<Lane<D>>& w, Lane<D>* buffer) {
  if (as_they_lie) return whole_rows(d, from, row_stride, count, width, w.padded, buffer);
  for (int64_t i = 0; i < count; ++i) {
    if (w.row[0][i] == std::numeric_limits<Lane<D>>::infinity())
      zero_rows(d, buffer + i * w.padded, w.padded);
    else
      pack_row(d, from + i * row_stride, buffer + i * w.padded, width, w.padded, Lane<D>(1));
  }
  return {buffer, w.padded};
}

/// Whether a block holds all keys of its sequence.
inline bool has_all_keys(const BatchHead& p) { return p.keys <= kKeyBlock; }

/// Σ gout * out of each query, which is the sum of its weights times their gradients, of all keys.
template <class D, class T>
HWY_INLINE void find_deltas(D d, const T* out, int64_t row_stride, Rows<Lane<D>> gout, int64_t queries,
                            int64_t width, const AttentionScratch<Lane<D>>& w) {
  constexpr int64_t kLanes = kHorizontalSums<D>;
  for (int64_t first = 0; first < queries; first += kLanes) {
    Vec<D> sum[kLanes];
    for (int64_t i = 0; i < kLanes; ++i) {
      sum[i] = hn::Zero(d);
      if (first + i >= queries) continue;
      const T* const row = out + (first + i) * row_stride;
      for (int64_t c = 0; c < width; c += kLanes)
        sum[i] = hn::MulAdd(load_up_to(d, row + c, width - c),
                            hn::LoadU(d, gout.data + (first + i) * gout.stride + c), sum[i]);
    }
    const auto none =
        hn::Eq(hn::LoadU(d, w.row[0] + first), hn::Set(d, std::numeric_limits<Lane<D>>::infinity()));
    hn::StoreU(hn::IfThenZeroElse(none, horizontal_sums(d, sum)), d, w.row[1] + first);
  }
}

/// The gradients of scores before the cap, from those of scores after it. Where the latter is 0 the slope may
/// be NaN, of what a hidden key holds.
template <class A>
HWY_INLINE void take_through_cap(const ScoreBlock& at, const AttentionScratch<A>& w) {
  const Tag<A> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t k = 0; k < at.keys; ++k) {
    for (int64_t c = k * w.block; c < k * w.block + at.queries; c += lanes) {
      const auto g = hn::LoadU(d, w.gscores + c);
      hn::StoreU(hn::IfThenZeroElse(hn::Eq(g, hn::Zero(d)), hn::Mul(g, hn::LoadU(d, w.slopes + c))), d,
                 w.gscores + c);
    }
  }
}

/// Scores before their scale and the gradients of their weights, in w.scores and w.gscores, become weights
/// and score gradients.
template <class T>
HWY_INLINE void gradients_of_scores(const kernels::AttentionBackward<T>& args, const BatchHead& p,
                                    const ScoreBlock& at, const VisibleKeys& visible, bool hidden,
                                    accumulator_t<T> scale, const AttentionScratch<accumulator_t<T>>& w) {
  const Tag<T> d;
  if (changes_scores(args)) change_scores(args, p, at, w.scores, w.block, w.slopes);
  const auto keep_mask = find_block(d, args, p, at, w);
  if (has_all_keys(p))
    gradient_block<true>(d, at, visible, hidden, keep_mask, scale, w);
  else
    gradient_block<false>(d, at, visible, hidden, keep_mask, scale, w);
}

/// One block of queries against one of keys: fills w.scores and w.gscores with weights and score gradients.
template <class T>
HWY_INLINE void score_gradients(const kernels::AttentionBackward<T>& args, const BatchHead& p,
                                const ScoreBlock& at, const VisibleKeys& visible, bool hidden,
                                Rows<accumulator_t<T>> keys, const AttentionScratch<accumulator_t<T>>& w) {
  using A = accumulator_t<T>;
  const Tag<T> d;
  const T* v = args.v.data + (p.key_first + at.key) * args.v.row_stride + p.key_head * args.v.head_stride;
  const auto values =
      score_rows(d, keys.pairs, v, args.v.row_stride, at.keys, args.width, w.padded, w.values);
  score_product(d, keys, w.queries_t, at, args.width, static_cast<A>(args.scale), w, w.scores);
  score_product(d, values, w.gout_t, at, args.width, A(1), w, w.gscores);
  gradients_of_scores(args, p, at, visible, hidden, A(1), w);
}

/// What a block of queries adds to the gradient of its keys or values.
template <class T>
HWY_INLINE void key_gradients(const accumulator_t<T>* weights, Rows<accumulator_t<T>> rows,
                              const BatchHead& p, const ScoreBlock& at,
                              const ChunkGradients<accumulator_t<T>>& chunk, accumulator_t<T>* sum,
                              const kernels::HeadsView<T>& to, accumulator_t<T> scale,
                              const AttentionScratch<accumulator_t<T>>& w) {
  const Tag<T> d;
  const int64_t vectors = w.padded / static_cast<int64_t>(hn::Lanes(d));
  if (to.data == nullptr) return;
  if (chunk.straight)
    product<Operands::rows>(d, weights, w.block, rows.data, rows.stride,
                            to.data + p.key_first * to.row_stride + p.key_head * to.head_stride,
                            to.row_stride, at.keys, vectors, at.queries, scale, false);
  else
    product<Operands::rows>(d, weights, w.block, rows.data, rows.stride,
                            sum + (at.key - chunk.key) * w.padded, w.padded, at.keys, vectors, at.queries,
                            accumulator_t<T>(1), true);
}

/// Brings what a chunk gives to a block of queries to where it belongs.
template <class T>
HWY_INLINE void write_query_gradients(const kernels::AttentionBackward<T>& args, const BatchHead& p,
                                      int64_t query, int64_t queries,
                                      const ChunkGradients<accumulator_t<T>>& chunk,
                                      const accumulator_t<T>* sums, int64_t padded) {
  using A = accumulator_t<T>;
  const Tag<T> d;
  T* const gq = args.gq.data + (p.query_first + query) * args.gq.row_stride + p.head * args.gq.head_stride;
  for (int64_t i = 0; i < queries; ++i) {
    const A* from = sums + i * padded;
    if (chunk.gq)
      write_row(d, from, chunk.gq + (query + i) * chunk.gq_stride, args.width, A(1), !chunk.first);
    else
      write_row(d, from, gq + i * args.gq.row_stride, args.width, static_cast<A>(args.scale),
                args.accumulate_q);
  }
}

/// Gradients that a block of queries from `query` on gives to a chunk of keys and receives from it.
template <class T>
HWY_INLINE void backward_block(const kernels::AttentionBackward<T>& args, const BatchHead& p, int64_t query,
                               const ChunkGradients<accumulator_t<T>>& chunk, VisibleKeys& visible,
                               const AttentionScratch<accumulator_t<T>>& w) {
  using A = accumulator_t<T>;
  const Tag<T> d;
  const A scale = static_cast<A>(args.scale);
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t queries = std::min(kQueryBlock, p.queries - query), row = p.query_first + query;
  find_visible_keys(args.visibility, p, query, queries, visible);
  const bool all_seen = load_lse(args.lse + p.head * args.query_rows + row, queries, w.block, w.row[0]);
  const bool as_they_lie = all_seen && has_all_keys(p);  // many blocks of keys read packed rows faster
  const bool pairs = all_seen && multiplies_pairs(args.q, args.k, args.width) &&
                     multiplies_pairs(args.gout, args.v, args.width);
  const auto rows = [&](const kernels::HeadsView<const T>& x, A* buffer, A* transpose) {
    const T* from = x.data + row * x.row_stride + p.head * x.head_stride;
    const Rows<A> r = seen_rows(d, from, x.row_stride, queries, args.width, as_they_lie, w, buffer);
    transpose_rows(d, pairs ? pair_rows(from, x.row_stride) : r, queries, args.width, w, transpose);
    return r;
  };
  const Rows<A> q = rows(args.q, w.queries, w.queries_t), gout = rows(args.gout, w.gout, w.gout_t);
  if (!has_all_keys(p))
    find_deltas(d, args.out.data + row * args.out.row_stride + p.head * args.out.head_stride,
                args.out.row_stride, gout, queries, args.width, w);

  T* const gq =
      args.gq.data ? args.gq.data + row * args.gq.row_stride + p.head * args.gq.head_stride : nullptr;
  bool first = true;
  const int64_t begin = std::max(chunk.key, visible.first / kKeyBlock * kKeyBlock);
  const int64_t end = std::min(chunk.key + chunk.keys, visible.last);
  for (int64_t key = begin; key < end; key += kKeyBlock) {
    const ScoreBlock at{query, queries, key, std::min(kKeyBlock, end - key), ceil_divide(queries, lanes)};
    const BlockVisibility seen = visible.block(key, key + at.keys);
    if (seen == BlockVisibility::none) continue;
    const T* k = args.k.data + (p.key_first + key) * args.k.row_stride + p.key_head * args.k.head_stride;
    const auto keys = whole_rows(d, k, args.k.row_stride, at.keys, args.width, w.padded, w.keys);
    score_gradients(args, p, at, visible, seen != BlockVisibility::all,
                    pairs ? pair_rows(k, args.k.row_stride) : keys, w);
    if (args.gbias || args.grelative) add_bias_gradients(args, p, at, w);
    if (args.logit_cap > 0) take_through_cap(at, w);
    key_gradients(w.scores, gout, p, at, chunk, chunk.gv, args.gv, A(1), w);
    key_gradients(w.gscores, q, p, at, chunk, chunk.gk, args.gk, scale, w);
    const bool guarded = seen != BlockVisibility::all || changes_scores(args);
    if (gq && chunk.straight && !guarded && !chunk.gq && !args.accumulate_q)
      return product<Operands::transposed>(d, w.gscores, w.block, keys.data, keys.stride, gq,
                                           args.gq.row_stride, queries, w.padded / lanes, at.keys, scale,
                                           false);
    if (gq) weigh(d, w.gscores, keys, w, queries, at.keys, guarded, !first);
    first = false;
  }
  if (gq == nullptr) return;
  if (first) zero_rows(d, w.out, queries * w.padded);
  write_query_gradients(args, p, query, queries, chunk, w.out, w.padded);
}

/// Writes the gradients of a chunk of keys, times scale, of rows `padded` apart.
template <class T>
HWY_INLINE void write_keys(const accumulator_t<T>* from, int64_t padded, const kernels::HeadsView<T>& to,
                           const BatchHead& p, int64_t key, int64_t keys, int64_t width,
                           accumulator_t<T> scale, bool accumulate) {
  const Tag<T> d;
  T* row = to.data + (p.key_first + key) * to.row_stride + p.key_head * to.head_stride;
  for (int64_t i = 0; i < keys; ++i, row += to.row_stride)
    write_row(d, from + i * padded, row, width, scale, accumulate);
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
