// The backward of one chunk of keys of a plane: the weights are computed again block by block.
#if defined(HEED_KERNELS_CPU_ATTENTION_BACKWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_CPU_ATTENTION_BACKWARD_INL_H_
#undef HEED_KERNELS_CPU_ATTENTION_BACKWARD_INL_H_
#else
#define HEED_KERNELS_CPU_ATTENTION_BACKWARD_INL_H_
#endif

#include <heed/kernels/cpu/attention_block-inl.h>

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

/// Where the gradients of one chunk of keys are summed, a padded row a key, and its part of the queries'.
template <class A>
struct ChunkGradients {
  int64_t key, keys;  // the chunk
  A *gk, *gv;         // [keys, padded]; null if not wanted
  A* gq;              // [queries, gq_stride]; null: gq goes straight to where it belongs
  int64_t gq_stride;
  bool first;  // gq holds nothing yet
};

/// Turns scores into weights after dropout, and gscores (their gradient) into the gradient of the scores.
template <class D>
HWY_INLINE void gradient_block(D d, const ScoreBlock& at, const VisibleKeys& visible, bool hidden,
                               bool dropout, const AttentionScratch<Lane<D>>& w) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t column = 0; column < at.vectors * lanes; column += lanes) {
    const auto lse = hn::LoadU(d, w.row[0] + column), delta = hn::LoadU(d, w.row[1] + column);
    for (int64_t k = 0; k < at.keys; ++k) {
      const int64_t i = k * w.block + column;
      const auto weight = weight_of(d, hn::LoadU(d, w.scores + i), lse, visible, column, at.key + k, hidden);
      auto g = hn::LoadU(d, w.gscores + i);
      if (dropout) {
        const auto factor = hn::LoadU(d, w.dropout + i);
        hn::StoreU(hn::Mul(weight, factor), d, w.scores + i);
        g = hn::Mul(g, factor);
      } else {
        hn::StoreU(weight, d, w.scores + i);
      }
      // Where the weight is 0, g may be NaN: what a hidden key holds must not count.
      const auto unseen = hn::Eq(weight, hn::Zero(d));
      hn::StoreU(hn::IfThenZeroElse(unseen, hn::Mul(weight, hn::Sub(g, delta))), d, w.gscores + i);
    }
  }
}

/// Adds a block of the scores' gradient to those of the bias and of the relative table.
template <class T>
HWY_NOINLINE void add_bias_gradients(const kernels::AttentionBackward<T>& args, const Plane& p,
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

/// Σ gout * out of each query: what the softmax takes off every score's gradient.
template <class D, class T>
HWY_INLINE void find_deltas(D d, const T* out, int64_t row_stride, int64_t queries, int64_t width,
                            const AttentionScratch<Lane<D>>& w) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  Lane<D>* const delta = w.row[1];
  for (int64_t i = 0; i < queries; ++i) {
    auto sum = hn::Zero(d);
    for (int64_t c = 0; c < width; c += lanes)
      sum = hn::MulAdd(load_up_to(d, out + i * row_stride + c, width - c),
                       hn::LoadU(d, w.gout + i * w.padded + c), sum);
    delta[i] = w.row[0][i] == std::numeric_limits<Lane<D>>::infinity() ? 0 : reduce_sum(d, sum);
  }
  std::fill(delta + queries, delta + w.block, Lane<D>(0));
}

/// One block of queries against one of keys: fills w.scores and w.gscores with weights and score gradients.
template <class T>
HWY_INLINE void score_gradients(const kernels::AttentionBackward<T>& args, const Plane& p,
                                const ScoreBlock& at, const VisibleKeys& visible, bool hidden,
                                KeyRows<accumulator_t<T>> keys, const AttentionScratch<accumulator_t<T>>& w) {
  const Tag<T> d;
  const T* v = args.v.data + (p.key_first + at.key) * args.v.row_stride + p.key_head * args.v.head_stride;
  const auto values = key_rows(d, v, args.v.row_stride, at.keys, args.width, w.padded, w.values);
  product<false>(d, keys.data, keys.stride, w.queries_t, w.block, w.scores, w.block, at.keys, at.vectors,
                 args.width, false);
  product<false>(d, values.data, values.stride, w.gout_t, w.block, w.gscores, w.block, at.keys, at.vectors,
                 args.width, false);
  if (changes_scores(args.bias, args.visibility))
    change_scores(args.bias, args.visibility, p, at, w.scores, w.block);
  if (args.dropout.active())
    fill_dropout(d, args.dropout, static_cast<uint32_t>(p.sequence * args.heads + p.head), at, w.dropout,
                 w.block);
  gradient_block(d, at, visible, hidden, args.dropout.active(), w);
}

/// Gradients that a block of queries from `query` on gives to a chunk of keys and receives from it.
template <class T>
HWY_INLINE void backward_block(const kernels::AttentionBackward<T>& args, const Plane& p, int64_t query,
                               const ChunkGradients<accumulator_t<T>>& chunk, VisibleKeys& visible,
                               const AttentionScratch<accumulator_t<T>>& w) {
  using A = accumulator_t<T>;
  const Tag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), vectors = w.padded / lanes;
  const int64_t queries = std::min(kQueryBlock, p.queries - query), row = p.query_first + query;
  find_visible_keys(args.visibility, p, query, queries, visible);
  load_lse(args.lse + p.head * args.query_rows + row, queries, w.block, w.row[0]);
  pack_queries(d, args.q.data + row * args.q.row_stride + p.head * args.q.head_stride, args.q.row_stride,
               queries, args.width, static_cast<A>(args.scale), w.row[0], w, w.queries, w.queries_t);
  pack_queries(d, args.gout.data + row * args.gout.row_stride + p.head * args.gout.head_stride,
               args.gout.row_stride, queries, args.width, A(1), w.row[0], w, w.gout, w.gout_t);
  find_deltas(d, args.out.data + row * args.out.row_stride + p.head * args.out.head_stride,
              args.out.row_stride, queries, args.width, w);

  bool first = true;
  const int64_t begin = std::max(chunk.key, visible.first / kKeyBlock * kKeyBlock);
  const int64_t end = std::min(chunk.key + chunk.keys, visible.last);
  for (int64_t key = begin; key < end; key += kKeyBlock) {
    const ScoreBlock at{query, queries, key, std::min(kKeyBlock, end - key), (queries + lanes - 1) / lanes};
    const Sight sight = visible.sight(key, key + at.keys);
    if (sight == Sight::none) continue;
    const T* k = args.k.data + (p.key_first + key) * args.k.row_stride + p.key_head * args.k.head_stride;
    const auto keys = key_rows(d, k, args.k.row_stride, at.keys, args.width, w.padded, w.keys);
    score_gradients(args, p, at, visible, sight != Sight::all, keys, w);
    if (args.gbias || args.grelative) add_bias_gradients(args, p, at, w);
    const int64_t offset = (key - chunk.key) * w.padded;
    if (chunk.gv)
      product<false>(d, w.scores, w.block, w.gout, w.padded, chunk.gv + offset, w.padded, at.keys, vectors,
                     queries, true);
    if (chunk.gk)
      product<false>(d, w.gscores, w.block, w.queries, w.padded, chunk.gk + offset, w.padded, at.keys,
                     vectors, queries, true);
    if (args.gq.data)
      weigh(d, w.gscores, keys, w, queries, at.keys,
            sight != Sight::all || changes_scores(args.bias, args.visibility), !first);
    first = false;
  }
  if (args.gq.data == nullptr) return;
  if (first) zero_rows(d, w.out, queries * w.padded);
  T* gq = args.gq.data + row * args.gq.row_stride + p.head * args.gq.head_stride;
  for (int64_t i = 0; i < queries; ++i) {
    const A* from = w.out + i * w.padded;
    if (chunk.gq)
      write_row(d, from, chunk.gq + (query + i) * chunk.gq_stride, args.width, A(1), !chunk.first);
    else
      write_row(d, from, gq + i * args.gq.row_stride, args.width, static_cast<A>(args.scale),
                args.accumulate_q);
  }
}

/// Writes the gradients of a chunk of keys, of rows `padded` apart.
template <class T>
HWY_INLINE void write_keys(const accumulator_t<T>* from, int64_t padded, const kernels::HeadsView<T>& to,
                           const Plane& p, int64_t key, int64_t keys, int64_t width, bool accumulate) {
  const Tag<T> d;
  T* row = to.data + (p.key_first + key) * to.row_stride + p.key_head * to.head_stride;
  for (int64_t i = 0; i < keys; ++i, row += to.row_stride)
    write_row(d, from + i * padded, row, width, accumulator_t<T>(1), accumulate);
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
