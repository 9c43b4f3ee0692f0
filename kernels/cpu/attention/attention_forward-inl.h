// The forward of one block of queries: a running softmax over the blocks of keys that it sees.
#if defined(HEED_KERNELS_CPU_ATTENTION_FORWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_CPU_ATTENTION_FORWARD_INL_H_
#undef HEED_KERNELS_CPU_ATTENTION_FORWARD_INL_H_
#else
#define HEED_KERNELS_CPU_ATTENTION_FORWARD_INL_H_
#endif

#include <cmath>

#include <heed/core/base/int_math.h>
#include <heed/kernels/cpu/attention/attention_bias-inl.h>
#include <heed/kernels/cpu/attention/attention_block-inl.h>
#include <heed/kernels/cpu/attention/attention_dropout-inl.h>

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

/// The running softmax of each query: the largest score so far and the sum of the exponentials below it.
template <class A>
struct RunningSoftmax {
  A *most, *sum, *shrink;  // shrink: what the last block multiplied the earlier sums by
};

/// Where the scratch of a block of queries has it.
template <class A>
HWY_INLINE RunningSoftmax<A> running_softmax(const AttentionScratch<A>& w) {
  return {w.row[0], w.row[1], w.row[2]};
}

/// By how much the largest score may be left behind by later ones, to spare what is summed a multiplication
/// for most blocks: exponentials up to e^8 are as exact and far from overflow.
constexpr float kMaxBehind = 8.0f;

/// Turns scores, scale > 0 times what is there, into exponentials, after dropout, and updates the running
/// softmax.
template <bool kHidden, bool kDrops, class D>
HWY_INLINE void softmax_block(D d, const ScoreBlock& at, const VisibleKeys& visible,
                              const KeepMaskBlock& keep_mask, Lane<D>* scores, int64_t stride, Lane<D> scale,
                              const RunningSoftmax<Lane<D>>& run, bool first) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto lowest = hn::Set(d, -std::numeric_limits<Lane<D>>::infinity());
  const auto factor = hn::Set(d, scale);
  const bool globals = visible.global_last > 0;
  for (int64_t column = 0; column < at.vectors * lanes; column += lanes) {
    Lane<D>* const s = scores + column;
    const auto most_before = first ? lowest : hn::LoadU(d, run.most + column);
    auto most = lowest;  // of the block, before the scale
    const auto score_of = [&](int64_t k) HWY_ATTR {
      auto score = hn::LoadU(d, s + k * stride);
      if constexpr (kHidden) {
        score = hn::IfThenElse(sees(d, visible, column, at.key + k, globals), score, lowest);
        hn::StoreU(score, d, s + k * stride);
      }
      return score;
    };
    int64_t k = 0;
    for (; k + 4 <= at.keys; k += 4) {  // one after the other they would wait for each other
      const auto a = hn::Max(score_of(k), score_of(k + 1)), b = hn::Max(score_of(k + 2), score_of(k + 3));
      most = hn::Max(most, hn::Max(a, b));
    }
    for (; k < at.keys; ++k) most = hn::Max(most, score_of(k));
    if (scale != 1) most = hn::Mul(most, factor);
    if (!first) {
      const auto behind = hn::Add(most_before, hn::Set(d, Lane<D>(kMaxBehind)));
      most = hn::IfThenElse(hn::Gt(most, behind), most, most_before);
    }
    // While a query has seen no key, most is -inf: subtract 0 then, so that exp gives 0.
    const auto shift = hn::IfThenZeroElse(hn::Eq(most, lowest), most);
    auto sum = hn::Zero(d);
    visit_keys(at.keys, [&]<int K>(std::integral_constant<int, K>, int64_t key) HWY_ATTR {
      Vec<D> e[K];
      for (int i = 0; i < K; ++i) e[i] = hn::MulSub(hn::LoadU(d, s + (key + i) * stride), factor, shift);
      exp_fast(d, e, kMinWeight);
      for (int i = 0; i < K; ++i) {
        hn::StoreU(kDrops ? keep_mask.apply(d, e[i], key + i, column) : e[i], d, s + (key + i) * stride);
        sum = hn::Add(sum, e[i]);
      }
    });
    if (!first) {
      const auto shrink = exp_fast(d, hn::Sub(most_before, shift), kMinWeight);
      hn::StoreU(shrink, d, run.shrink + column);
      sum = hn::MulAdd(hn::LoadU(d, run.sum + column), shrink, sum);
    }
    hn::StoreU(most, d, run.most + column);
    hn::StoreU(sum, d, run.sum + column);
  }
}

template <class D>
HWY_INLINE void softmax_block(D d, const ScoreBlock& at, BlockVisibility seen, const VisibleKeys& visible,
                              const KeepMaskBlock& keep_mask, Lane<D>* scores, int64_t stride, Lane<D> scale,
                              const RunningSoftmax<Lane<D>>& run, bool first) {
  if (seen == BlockVisibility::all && keep_mask.bits)
    softmax_block<false, true>(d, at, visible, keep_mask, scores, stride, scale, run, first);
  else if (seen == BlockVisibility::all)
    softmax_block<false, false>(d, at, visible, keep_mask, scores, stride, scale, run, first);
  else if (keep_mask.bits)
    softmax_block<true, true>(d, at, visible, keep_mask, scores, stride, scale, run, first);
  else
    softmax_block<true, false>(d, at, visible, keep_mask, scores, stride, scale, run, first);
}

/// out[i] *= shrink[i].
template <class D>
HWY_INLINE void shrink_rows(D d, const Lane<D>* shrink, Lane<D>* out, int64_t padded, int64_t queries) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < queries; ++i) {
    if (shrink[i] == 1) continue;
    const auto factor = hn::Set(d, shrink[i]);
    for (int64_t c = 0; c < padded; c += lanes)
      hn::StoreU(hn::Mul(hn::LoadU(d, out + i * padded + c), factor), d, out + i * padded + c);
  }
}

/// Writes lse, and leaves what the summed values are still to be multiplied by in run.shrink.
template <class D, class T>
HWY_INLINE void finish_sums(D d, const kernels::AttentionForward<T>& args, const BatchHead& p, int64_t query,
                            int64_t queries, const RunningSoftmax<Lane<D>>& run) {
  using A = Lane<D>;
  A* const lse = args.lse == nullptr ? nullptr : args.lse + p.head * args.query_rows + p.query_first + query;
  for (int64_t i = 0; i < queries; i += static_cast<int64_t>(hn::Lanes(d))) {
    const auto sum = hn::LoadU(d, run.sum + i);
    const auto none = hn::Eq(sum, hn::Zero(d));
    hn::StoreU(hn::IfThenZeroElse(none, hn::Div(hn::Set(d, A(1)), sum)), d, run.shrink + i);
    if (lse == nullptr) continue;
    const auto found = hn::Add(hn::LoadU(d, run.most + i), log(d, sum));
    store_up_to(hn::IfThenElse(none, hn::Set(d, -std::numeric_limits<A>::infinity()), found), d, lse + i,
                queries - i);
  }
}

/// Summed values times what finish_sums() left, zeros for queries that saw no key.
template <class D, class T>
HWY_INLINE void write_sums(D d, const RunningSoftmax<Lane<D>>& run, const Lane<D>* sums, int64_t padded,
                           T* out, int64_t row_stride, int64_t queries, int64_t width) {
  for (int64_t i = 0; i < queries; ++i, out += row_stride) {
    if (run.sum[i] == 0)
      std::fill_n(out, width, T(Lane<D>(0)));
    else
      write_row(d, sums + i * padded, out, width, run.shrink[i], false);
  }
}

template <class T>
HWY_INLINE void attend_block(const kernels::AttentionForward<T>& args, const BatchHead& p, int64_t query,
                             VisibleKeys& visible, const AttentionScratch<accumulator_t<T>>& w) {
  using A = accumulator_t<T>;
  const Tag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t queries = std::min(kQueryBlock, p.queries - query);
  const T* q = args.q.data + (p.query_first + query) * args.q.row_stride + p.head * args.q.head_stride;
  const bool pairs = multiplies_pairs(args.q, args.k, args.width);
  const auto rows = score_rows(d, pairs, q, args.q.row_stride, queries, args.width, w.padded, w.queries);
  transpose_rows(d, rows, queries, args.width, w, w.queries_t);

  find_visible_keys(args.visibility, p, query, queries, visible);
  const bool changed = changes_scores(args);
  T* out = args.out.data + (p.query_first + query) * args.out.row_stride + p.head * args.out.head_stride;
  const RunningSoftmax<A> run = running_softmax(w);
  bool first = true;
  for (int64_t key = visible.first / kKeyBlock * kKeyBlock; key < visible.last; key += kKeyBlock) {
    const ScoreBlock at{query, queries, key, std::min(kKeyBlock, visible.last - key),
                        ceil_divide(queries, lanes)};
    const BlockVisibility seen = visible.block(key, key + at.keys);
    if (seen == BlockVisibility::none) continue;
    const int64_t row = p.key_first + key;
    const int64_t next = std::min(kKeyBlock, visible.last - key - at.keys);
    prefetch_rows(args.k, row + at.keys, p.key_head, next, args.width);
    prefetch_rows(args.v, row + at.keys, p.key_head, next, args.width);
    const T* k = args.k.data + row * args.k.row_stride + p.key_head * args.k.head_stride;
    const auto keys = score_rows(d, pairs, k, args.k.row_stride, at.keys, args.width, w.padded, w.keys);
    score_product(d, keys, w.queries_t, at, args.width, static_cast<A>(args.scale), w, w.scores);
    if (changed) change_scores(args, p, at, w.scores, w.block);
    const auto keep_mask = draw_block(d, args, args.dropout, p, at, args.keep_mask, w);
    softmax_block(d, at, seen, visible, keep_mask, w.scores, w.block, A(1), run, first);
    if (!first) shrink_rows(d, run.shrink, w.out, w.padded, queries);
    const T* const v = args.v.data + row * args.v.row_stride + p.key_head * args.v.head_stride;
    const bool guarded = changed || seen != BlockVisibility::all;
    const auto values = whole_rows(d, v, args.v.row_stride, at.keys, args.width, w.padded, w.values);
    if (first && at.keys == visible.last && seen == BlockVisibility::all && !changed &&
        args.width == w.padded) {
      finish_sums(d, args, p, query, queries, run);
      return product<Operands::transposed>(d, w.scores, w.block, values.data, values.stride, out,
                                           args.out.row_stride, queries, w.padded / lanes, at.keys,
                                           static_cast<const A*>(run.shrink), false);
    }
    weigh(d, w.scores, values, w, queries, at.keys, guarded, !first);
    first = false;
  }
  if (first) zero_rows(d, run.sum, w.block);
  finish_sums(d, args, p, query, queries, run);
  write_sums(d, run, w.out, w.padded, out, args.out.row_stride, queries, args.width);
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
