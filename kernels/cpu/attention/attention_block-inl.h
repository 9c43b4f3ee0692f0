// Blocks of queries and keys of the CPU attention: bringing rows in and out, which scores count and what they
// weigh.
#if defined(HEED_KERNELS_CPU_ATTENTION_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_CPU_ATTENTION_BLOCK_INL_H_
#undef HEED_KERNELS_CPU_ATTENTION_BLOCK_INL_H_
#else
#define HEED_KERNELS_CPU_ATTENTION_BLOCK_INL_H_
#endif

#include <limits>
#include <type_traits>

#include <hwy/cache_control.h>

#include <heed/kernels/attention.h>
#include <heed/kernels/cpu/attention/attention_blocking.h>
#include <heed/kernels/cpu/attention/attention_product-inl.h>
#include <heed/kernels/cpu/simd/math-inl.h>
#include <heed/kernels/cpu/simd/tail-inl.h>

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

template <class D>
using Lane = hn::TFromD<D>;

// ---- Rows

/// `width` elements of a row, times scale, and zeros up to `padded`.
template <class D, class T>
HWY_INLINE void pack_row(D d, const T* from, Lane<D>* to, int64_t width, int64_t padded, Lane<D> scale) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto factor = hn::Set(d, scale);
  int64_t c = 0;
  for (; c + lanes <= width; c += lanes) hn::StoreU(hn::Mul(load(d, from + c), factor), d, to + c);
  if (c < width) {
    hn::StoreU(hn::Mul(load_n(d, from + c, width - c), factor), d, to + c);
    c += lanes;
  }
  for (; c < padded; c += lanes) hn::StoreU(hn::Zero(d), d, to + c);
}

template <class D>
HWY_INLINE void zero_rows(D d, Lane<D>* to, int64_t count) {  // of whole vectors
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t c = 0; c < count; c += lanes) hn::StoreU(hn::Zero(d), d, to + c);
}

/// to (+)= from * scale, `width` elements.
template <class D, class T>
HWY_INLINE void write_row(D d, const Lane<D>* from, T* to, int64_t width, Lane<D> scale, bool accumulate) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto factor = hn::Set(d, scale);
  for (int64_t c = 0; c < width; c += lanes) {
    auto v = hn::Mul(hn::LoadU(d, from + c), factor);
    if (accumulate) v = hn::Add(v, load_up_to(d, to + c, width - c));
    store_up_to(v, d, to + c, width - c);
  }
}

/// A matrix of one row a token.
template <class A>
struct Rows {
  const A* data;
  int64_t stride;
  bool pairs = false;  // an element is two bf16
};

/// Whether scores of x and y are products of pairs of bf16.
template <class T>
HWY_INLINE bool multiplies_pairs(const kernels::HeadsView<const T>& x, const kernels::HeadsView<const T>& y,
                                 int64_t width) {
  if constexpr (kHasPairs && std::is_same_v<T, bfloat16>)
    return has_bf16_dot() && width % 8 == 0 && x.row_stride % 2 == 0 && y.row_stride % 2 == 0;
  return false;
}

/// Rows of bf16 as they lie.
template <class T>
HWY_INLINE Rows<accumulator_t<T>> pair_rows(const T* from, int64_t row_stride) {
  return {reinterpret_cast<const accumulator_t<T>*>(from), row_stride / 2, true};
}

/// `count` rows as accumulators with a whole number of vectors a row: as they are if they are so already,
/// else packed into `buffer`.
template <class D, class T>
HWY_INLINE Rows<Lane<D>> whole_rows(D d, const T* from, int64_t row_stride, int64_t count, int64_t width,
                                    int64_t padded, Lane<D>* buffer) {
  if constexpr (std::is_same_v<T, Lane<D>>) {
    if (width == padded) return {from, row_stride};
  }
  for (int64_t i = 0; i < count; ++i)
    pack_row(d, from + i * row_stride, buffer + i * padded, width, padded, Lane<D>(1));
  return {buffer, padded};
}

/// `count` rows of which scores are made: pairs as they lie, or whole_rows().
template <class D, class T>
HWY_INLINE Rows<Lane<D>> score_rows(D d, bool pairs, const T* from, int64_t row_stride, int64_t count,
                                    int64_t width, int64_t padded, Lane<D>* buffer) {
  return pairs ? pair_rows(from, row_stride) : whole_rows(d, from, row_stride, count, width, padded, buffer);
}

/// The 16 bytes at `offset` of every fourth row, one behind the other.
template <class D>
HWY_INLINE Vec<D> every_fourth(D d, const float* const* rows, int64_t offset) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    return hn::LoadU(d, rows[0] + offset);
  } else {
    const hn::Half<D> half;
    return hn::Combine(d, every_fourth(half, rows + hn::Lanes(half), offset),
                       every_fourth(half, rows, offset));
  }
}

/// Transposes `cols` columns, a multiple of 4, of as many rows as a vector has lanes.
template <class D>
HWY_INLINE void transpose_vector(D d, const float* const* rows, int64_t cols, float* to, int64_t to_stride) {
  for (int64_t c = 0; c < cols; c += 4, to += 4 * to_stride) {
    const auto r0 = every_fourth(d, rows, c), r1 = every_fourth(d, rows + 1, c);
    const auto r2 = every_fourth(d, rows + 2, c), r3 = every_fourth(d, rows + 3, c);
    const auto even0 = hn::InterleaveLower(d, r0, r2), odd0 = hn::InterleaveLower(d, r1, r3);
    const auto even1 = hn::InterleaveUpper(d, r0, r2), odd1 = hn::InterleaveUpper(d, r1, r3);
    hn::StoreU(hn::InterleaveLower(d, even0, odd0), d, to);
    hn::StoreU(hn::InterleaveUpper(d, even0, odd0), d, to + to_stride);
    hn::StoreU(hn::InterleaveLower(d, even1, odd1), d, to + 2 * to_stride);
    hn::StoreU(hn::InterleaveUpper(d, even1, odd1), d, to + 3 * to_stride);
  }
}
template <class D>
HWY_INLINE void transpose_vector(D d, const double* const* rows, int64_t cols, double* to,
                                 int64_t to_stride) {
  for (int64_t i = 0; i < static_cast<int64_t>(hn::Lanes(d)); ++i) {
    for (int64_t c = 0; c < cols; ++c) to[c * to_stride + i] = rows[i][c];
  }
}

/// The transpose of `count` rows, in whole vectors of columns. Those after the last row's repeat it: what a
/// query gets depends on its own column alone.
template <class D>
HWY_INLINE void transpose_rows(D d, Rows<Lane<D>> from, int64_t count, int64_t width,
                               const AttentionScratch<Lane<D>>& w, Lane<D>* to) {
  constexpr int64_t kLanes = hn::MaxLanes(d);
  const int64_t cols = from.pairs ? width / 2 : w.padded;
  for (int64_t column = 0; column < count; column += kLanes) {
    const Lane<D>* rows[kLanes];
    const Lane<D>* row = from.data + column * from.stride;
    for (int64_t i = 0; i < kLanes; ++i) {
      rows[i] = row;
      if (column + i + 1 < count) row += from.stride;
    }
    transpose_vector(d, rows, cols, to + column, w.block);
  }
}

/// A block of scale * rows columns, the columns being a transpose of rows that are pairs if these are.
template <class D>
HWY_INLINE void score_product(D d, Rows<Lane<D>> rows, const Lane<D>* columns, const ScoreBlock& at,
                              int64_t width, Lane<D> scale, const AttentionScratch<Lane<D>>& w, Lane<D>* to) {
  if constexpr (kHasPairs && std::is_same_v<Lane<D>, float>) {
    if (rows.pairs)
      return product<Operands::pairs>(d, rows.data, rows.stride, columns, w.block, to, w.block, at.keys,
                                      at.vectors, width / 2, scale, false);
  }
  product<Operands::rows>(d, rows.data, rows.stride, columns, w.block, to, w.block, at.keys, at.vectors,
                          width, scale, false);
}

/// Prefetches `count` neighbouring elements.
template <class T>
HWY_INLINE void prefetch_lines(const T* from, int64_t count) {
  constexpr int64_t kLine = 64 / static_cast<int64_t>(sizeof(T));
  for (int64_t i = 0; i < count; i += kLine) hwy::Prefetch(from + i);
}

/// Prefetches `count` rows of a head: their stride hides them from the hardware prefetcher.
template <class T>
HWY_INLINE void prefetch_rows(const kernels::HeadsView<T>& view, int64_t row, int64_t head, int64_t count,
                              int64_t width) {
  if (view.data == nullptr) return;
  const int64_t stride = view.row_stride;
  const T* from = view.data + row * stride + head * view.head_stride;
  if (width * static_cast<int64_t>(sizeof(T)) <= 64) {  // a loop over lines would cost more than the lines
    for (int64_t i = 0; i < count; ++i, from += stride) hwy::Prefetch(from);
  } else {
    for (int64_t i = 0; i < count; ++i, from += stride) prefetch_lines(from, width);
  }
}

/// Prefetches what both directions read of the block of queries from `query` on, and of the first block of
/// keys.
template <class Args>
HWY_INLINE void prefetch_block(const Args& args, const BatchHead& p, int64_t query) {
  const int64_t queries = std::min(kQueryBlock, p.queries - query), keys = std::min(kKeyBlock, p.keys);
  prefetch_rows(args.q, p.query_first + query, p.head, queries, args.width);
  prefetch_rows(args.k, p.key_first, p.key_head, keys, args.width);
  prefetch_rows(args.v, p.key_first, p.key_head, keys, args.width);
}

/// Whether `count` rows are free of NaN and infinity.
template <class D, class T>
HWY_INLINE bool all_finite(D d, const T* rows, int64_t stride, int64_t count, int64_t padded) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto sum = hn::Zero(d);  // 0 * x is 0 or NaN
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t c = 0; c < padded; c += lanes)
      sum = hn::MulAdd(load(d, rows + i * stride + c), hn::Zero(d), sum);
  }
  return reduce_sum(d, sum) == 0;
}

/// out (+)= weightsᵀ rows, where a weight of 0 takes nothing, not even a NaN: for blocks that hold hidden
/// keys.
template <class A>
HWY_NOINLINE void weigh_guarded(const A* weights, int64_t stride, Rows<A> rows, A* out, int64_t out_stride,
                                int64_t queries, int64_t width, int64_t keys, bool accumulate) {
  for (int64_t i = 0; i < queries; ++i) {
    A* const o = out + i * out_stride;
    if (!accumulate) std::fill_n(o, width, A(0));
    for (int64_t k = 0; k < keys; ++k) {
      const A weight = weights[k * stride + i];
      if (weight == 0) continue;
      for (int64_t c = 0; c < width; ++c) o[c] += weight * rows.data[k * rows.stride + c];
    }
  }
}

/// out (+)= weightsᵀ rows, the weights being a block of scores.
template <class D>
HWY_INLINE void weigh(D d, const Lane<D>* weights, Rows<Lane<D>> rows, const AttentionScratch<Lane<D>>& w,
                      int64_t queries, int64_t keys, bool guarded, bool accumulate) {
  if (guarded && !all_finite(d, rows.data, rows.stride, keys, w.padded)) {
    weigh_guarded(weights, w.block, rows, w.out, w.padded, queries, w.padded, keys, accumulate);
  } else {
    const int64_t vectors = w.padded / static_cast<int64_t>(hn::Lanes(d));
    product<Operands::transposed>(d, weights, w.block, rows.data, rows.stride, w.out, w.padded, queries,
                                  vectors, keys, Lane<D>(1), accumulate);
  }
}

// ---- Scores

/// A weight below e^kMinWeight of the largest counts as 0 in f32: no sum would show it, but products with
/// it may be subnormal, here and where the gradients go, and each takes a processor of Intel over a hundred
/// cycles.
constexpr float kMinWeight = -50.0f;

/// Which of a vector of queries see key `key`.
template <class D>
HWY_INLINE hn::MFromD<D> sees(D d, const VisibleKeys& visible, int64_t column, int64_t key, bool globals) {
  const hn::Rebind<int32_t, D> d32;
  const auto k = hn::Set(d32, static_cast<int32_t>(key));
  auto m = hn::And(hn::Gt(k, hn::LoadU(d32, visible.before + column)),
                   hn::Lt(k, hn::LoadU(d32, visible.end + column)));
  if (globals) m = hn::Or(m, hn::Lt(k, hn::LoadU(d32, visible.global_end + column)));
  if constexpr (sizeof(Lane<D>) == 8) {
    const hn::RebindToSigned<D> d64;
    return hn::MaskFromVec(hn::BitCast(d, hn::PromoteTo(d64, hn::VecFromMask(d32, m))));
  } else {
    return hn::RebindMask(d, m);
  }
}

/// Copies lse, +inf standing for a query that sees nothing and for the columns after the last, so that
/// exp(score - lse) is 0 there. Returns whether every query sees a key.
template <class A>
HWY_INLINE bool load_lse(const A* lse, int64_t queries, int64_t block, A* to) {
  const Tag<A> d;
  const auto infinity = hn::Set(d, std::numeric_limits<A>::infinity());
  bool all_seen = true;
  for (int64_t i = 0; i < block; i += static_cast<int64_t>(hn::Lanes(d))) {
    const int64_t n = std::max<int64_t>(0, queries - i);
    const auto v = load_up_to(d, lse + i, n);
    const auto none = hn::Eq(v, hn::Neg(infinity)), there = hn::FirstN(d, static_cast<size_t>(n));
    all_seen = all_seen && hn::AllFalse(d, hn::And(none, there));
    hn::StoreU(hn::IfThenElse(hn::AndNot(none, there), v, infinity), d, to + i);
  }
  return all_seen;
}

/// Calls visit(K, key) for all keys of a block, K of them from `key` on, a constant: exponentials of one key
/// after the other would wait for each other.
template <class F>
HWY_INLINE void visit_keys(int64_t keys, const F& visit) {
  constexpr int kTogether = kVectorRegisters > 16 ? 4 : 1;
  int64_t key = 0;
  for (; key + kTogether <= keys; key += kTogether) visit(std::integral_constant<int, kTogether>(), key);
  for (; key < keys; ++key) visit(std::integral_constant<int, 1>(), key);
}

/// Scores of a vector of queries for K keys from `key` on become exp(scale * score - lse), 0 where a key is
/// hidden.
template <class D, int K>
HWY_INLINE void weights_of(D d, Vec<D> (&scores)[K], Lane<D> scale, Vec<D> lse, const VisibleKeys& visible,
                           int64_t column, int64_t key, bool hidden) {
  for (int i = 0; i < K; ++i) scores[i] = hn::MulSub(scores[i], hn::Set(d, scale), lse);
  exp_fast(d, scores, kMinWeight);
  if (!hidden) return;
  for (int i = 0; i < K; ++i)
    scores[i] = hn::IfThenElseZero(sees(d, visible, column, key + i, visible.global_last > 0), scores[i]);
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
