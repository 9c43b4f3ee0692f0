// Blocks of queries and keys of the CPU attention: bringing rows in and out, scores with all that is added to
// them or hides them, dropout.
#if defined(HEED_KERNELS_CPU_ATTENTION_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_CPU_ATTENTION_BLOCK_INL_H_
#undef HEED_KERNELS_CPU_ATTENTION_BLOCK_INL_H_
#else
#define HEED_KERNELS_CPU_ATTENTION_BLOCK_INL_H_
#endif

#include <limits>

#include <hwy/cache_control.h>

#include <heed/kernels/attention.h>
#include <heed/kernels/cpu/attention_plane.h>
#include <heed/kernels/cpu/attention_product-inl.h>
#include <heed/kernels/cpu/tail-inl.h>

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

template <class D>
using Lane = hn::TFromD<D>;

// ---- Rows
// --------------------------------------------------------------------------------------------------

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
};

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
HWY_INLINE void transpose_vector(D d, const float* const* rows, int64_t cols, float scale, float* to,
                                 int64_t to_stride) {
  const auto factor = hn::Set(d, scale);
  for (int64_t c = 0; c < cols; c += 4, to += 4 * to_stride) {
    const auto r0 = every_fourth(d, rows, c), r1 = every_fourth(d, rows + 1, c);
    const auto r2 = every_fourth(d, rows + 2, c), r3 = every_fourth(d, rows + 3, c);
    const auto even0 = hn::InterleaveLower(d, r0, r2), odd0 = hn::InterleaveLower(d, r1, r3);
    const auto even1 = hn::InterleaveUpper(d, r0, r2), odd1 = hn::InterleaveUpper(d, r1, r3);
    hn::StoreU(hn::Mul(hn::InterleaveLower(d, even0, odd0), factor), d, to);
    hn::StoreU(hn::Mul(hn::InterleaveUpper(d, even0, odd0), factor), d, to + to_stride);
    hn::StoreU(hn::Mul(hn::InterleaveLower(d, even1, odd1), factor), d, to + 2 * to_stride);
    hn::StoreU(hn::Mul(hn::InterleaveUpper(d, even1, odd1), factor), d, to + 3 * to_stride);
  }
}
template <class D>
HWY_INLINE void transpose_vector(D d, const double* const* rows, int64_t cols, double scale, double* to,
                                 int64_t to_stride) {
  for (int64_t i = 0; i < static_cast<int64_t>(hn::Lanes(d)); ++i) {
    for (int64_t c = 0; c < cols; ++c) to[c * to_stride + i] = rows[i][c] * scale;
  }
}

/// The transpose of `count` rows of w.padded elements, scaled, in whole vectors of columns. Those after the
/// last row's repeat it: what a query gets depends on its own column alone.
template <class D>
HWY_INLINE void transpose_rows(D d, Rows<Lane<D>> from, int64_t count, Lane<D> scale,
                               const AttentionScratch<Lane<D>>& w, Lane<D>* to) {
  constexpr int64_t kLanes = hn::MaxLanes(d);
  for (int64_t column = 0; column < count; column += kLanes) {
    const Lane<D>* rows[kLanes];
    const Lane<D>* row = from.data + column * from.stride;
    for (int64_t i = 0; i < kLanes; ++i) {
      rows[i] = row;
      if (column + i + 1 < count) row += from.stride;
    }
    transpose_vector(d, rows, w.padded, scale, to + column, w.block);
  }
}

/// Asks for `count` neighbouring elements.
template <class T>
HWY_INLINE void prefetch_lines(const T* from, int64_t count) {
  constexpr int64_t kLine = 64 / static_cast<int64_t>(sizeof(T));
  for (int64_t i = 0; i < count; i += kLine) hwy::Prefetch(from + i);
}

/// Asks for `count` rows of a head that are needed soon; the strides between them hide them from the
/// processor's own prefetching.
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

/// Asks for what both directions read of the block of queries from `query` on, and of the first block of
/// keys.
template <class Args>
HWY_INLINE void prefetch_block(const Args& args, const Plane& p, int64_t query) {
  const int64_t queries = std::min(kQueryBlock, p.queries - query), keys = std::min(kKeyBlock, p.keys);
  prefetch_rows(args.q, p.query_first + query, p.head, queries, args.width);
  prefetch_rows(args.k, p.key_first, p.key_head, keys, args.width);
  prefetch_rows(args.v, p.key_first, p.key_head, keys, args.width);
}

/// Whether `count` rows are free of NaN and infinity.
template <class D>
HWY_INLINE bool all_finite(D d, Rows<Lane<D>> rows, int64_t count, int64_t padded) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto sum = hn::Zero(d);  // 0 * x is 0 or NaN
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t c = 0; c < padded; c += lanes)
      sum = hn::MulAdd(hn::LoadU(d, rows.data + i * rows.stride + c), hn::Zero(d), sum);
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
  if (guarded && !all_finite(d, rows, keys, w.padded)) {
    weigh_guarded(weights, w.block, rows, w.out, w.padded, queries, w.padded, keys, accumulate);
  } else {
    const int64_t vectors = w.padded / static_cast<int64_t>(hn::Lanes(d));
    product<true>(d, weights, w.block, rows.data, rows.stride, w.out, w.padded, queries, vectors, keys,
                  accumulate);
  }
}

// ---- Scores
// ------------------------------------------------------------------------------------------------

/// Where a block of scores lies in its plane.
struct ScoreBlock {
  int64_t query, queries;  // the first, how many
  int64_t key, keys;
  int64_t vectors;  // that hold the queries
};

/// Which of a vector of queries see key `key`.
template <class D>
HWY_INLINE hn::MFromD<D> sees(D d, const VisibleKeys& visible, int64_t column, int64_t key, bool globals) {
  const hn::Rebind<int32_t, D> d32;
  const auto k = hn::Set(d32, static_cast<int32_t>(key));
  auto m = hn::And(hn::VecFromMask(d32, hn::Gt(k, hn::LoadU(d32, visible.before + column))),
                   hn::VecFromMask(d32, hn::Lt(k, hn::LoadU(d32, visible.end + column))));
  if (globals) m = hn::Or(m, hn::VecFromMask(d32, hn::Lt(k, hn::LoadU(d32, visible.global_end + column))));
  if constexpr (sizeof(Lane<D>) == 8) {
    return hn::MaskFromVec(hn::BitCast(d, hn::PromoteTo(hn::RebindToSigned<D>(), m)));
  } else {
    return hn::MaskFromVec(hn::BitCast(d, m));
  }
}

template <class T>
HWY_INLINE bool changes_scores(const kernels::AttentionBias<T>& b, const Visibility& visibility) {
  return b.bias || b.mask || b.alibi_slopes || b.relative || visibility.dilation > 1;
}

template <class T, class A>
HWY_INLINE void add_bias(const kernels::AttentionBias<T>& b, const Plane& p, const ScoreBlock& at, A* scores,
                         int64_t stride) {
  constexpr A kHidden = -std::numeric_limits<A>::infinity();
  for (int64_t i = 0; i < at.queries; ++i) {
    const T* bias = b.bias + p.sequence * b.bias_stride[0] + p.head * b.bias_stride[1] +
                    (at.query + i) * b.bias_stride[2] + at.key * b.bias_stride[3];
    for (int64_t k = 0; k < at.keys; ++k) {
      const A value = static_cast<A>(bias[k * b.bias_stride[3]]);
      A& score = scores[k * stride + i];
      score = value == kHidden ? kHidden : score + value;  // hides a NaN too
    }
  }
}

template <class T, class A>
HWY_INLINE void add_relative(const kernels::AttentionBias<T>& b, const Plane& p, const ScoreBlock& at,
                             int64_t diagonal, A* scores, int64_t stride) {
  const int64_t limit = b.relative_limit;
  const T* table = b.relative + p.head * (2 * limit + 1) + limit;
  for (int64_t k = 0; k < at.keys; ++k) {
    for (int64_t i = 0; i < at.queries; ++i)
      scores[k * stride + i] += static_cast<A>(table[std::clamp(at.key + k - diagonal - i, -limit, limit)]);
  }
}

template <class A>
HWY_INLINE void add_alibi(A slope, const ScoreBlock& at, int64_t diagonal, A* scores, int64_t stride) {
  for (int64_t k = 0; k < at.keys; ++k) {
    for (int64_t i = 0; i < at.queries; ++i) {
      const int64_t distance = at.key + k - diagonal - i;
      scores[k * stride + i] -= slope * static_cast<A>(distance < 0 ? -distance : distance);
    }
  }
}

/// Scores of single keys that a mask or dilation hides become -inf.
template <class T, class A>
HWY_INLINE void hide_keys(const kernels::AttentionBias<T>& b, const Visibility& visibility, const Plane& p,
                          const ScoreBlock& at, A* scores, int64_t stride) {
  constexpr A kHidden = -std::numeric_limits<A>::infinity();
  for (int64_t i = 0; i < at.queries; ++i) {
    if (b.mask) {
      const bool* mask = b.mask + p.sequence * b.mask_stride[0] + p.head * b.mask_stride[1] +
                         (at.query + i) * b.mask_stride[2] + at.key * b.mask_stride[3];
      for (int64_t k = 0; k < at.keys; ++k) {
        if (!mask[k * b.mask_stride[3]]) scores[k * stride + i] = kHidden;
      }
    }
    if (visibility.dilation <= 1) continue;
    for (int64_t k = 0; k < at.keys; ++k) {
      if (!visibility.visible(at.query + i, at.key + k, p.queries, p.keys)) scores[k * stride + i] = kHidden;
    }
  }
}

/// All that the bias and single hidden keys do to a block of scores; the intervals of VisibleKeys come later.
template <class T, class A>
HWY_NOINLINE void change_scores(const kernels::AttentionBias<T>& b, const Visibility& visibility,
                                const Plane& p, const ScoreBlock& at, A* scores, int64_t stride) {
  const int64_t diagonal = visibility.diagonal(at.query, p.queries, p.keys);
  if (b.bias) add_bias(b, p, at, scores, stride);
  if (b.alibi_slopes) add_alibi(static_cast<A>(b.alibi_slopes[p.head]), at, diagonal, scores, stride);
  if (b.relative) add_relative(b, p, at, diagonal, scores, stride);
  if (b.mask || visibility.dilation > 1) hide_keys(b, visibility, p, at, scores, stride);
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

/// exp(score - lse) of a vector of queries for one key, 0 where the key is hidden.
template <class D>
HWY_INLINE Vec<D> weight_of(D d, Vec<D> score, Vec<D> lse, const VisibleKeys& visible, int64_t column,
                            int64_t key, bool hidden) {
  const auto weight = exp_fast(d, hn::Sub(score, lse));
  return hidden ? hn::IfThenElseZero(sees(d, visible, column, key, visible.global_last > 0), weight) : weight;
}

// ---- Dropout
// -----------------------------------------------------------------------------------------------

template <class D>
constexpr int64_t kMaskBytes = (hn::MaxLanes(D()) + 7) / 8;  // of a vector

/// The random words of one group of 8 keys for two vectors of queries from `query` on, one a 64-bit lane.
template <class D64>
HWY_INLINE void attention_words(D64 d, const PhiloxState& rng, int64_t group, int64_t query, uint32_t plane,
                                Philox4Lanes<D64> (&random)[2]) {
  const uint64_t position = rng.position();
  const auto c0 = hn::Set(d, static_cast<uint64_t>(group)), c2 = hn::Set(d, plane);
  const auto c3 = hn::Set(d, position & 0xffffffffu);
  for (int i = 0; i < 2; ++i) {
    const int64_t first = query + i * static_cast<int64_t>(hn::Lanes(d));
    random[i] = {{c0, count_from(d, static_cast<uint64_t>(first)), c2, c3}};
  }
  philox(d, random, static_cast<uint32_t>(rng.seed),
         static_cast<uint32_t>(rng.seed >> 32) ^ static_cast<uint32_t>(position >> 32));
}

/// Draws which weights of a block dropout keeps: a bit each, a row a key.
template <class D>
HWY_NOINLINE void draw_weights(D d, const Dropout& dropout, uint32_t plane, const ScoreBlock& at,
                               uint8_t* kept, int64_t stride) {
  const hn::ScalableTag<uint64_t> d64;
  const hn::RebindToSigned<D> di;
  using I = Lane<decltype(di)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto below = hn::Set(di, static_cast<I>(dropout.threshold) - 1);
  for (int64_t k = 0; k < at.keys; k += 8) {
    const int64_t group = (at.key + k) / 8;
    for (int64_t v = 0; v < at.vectors; ++v) {
      Philox4Lanes<hn::ScalableTag<uint64_t>> random[2];
      attention_words(d64, dropout.rng, group, at.query + v * lanes, plane, random);
      hn::VFromD<decltype(di)> bits[4];
      for (int i = 0; i < 4; ++i) {
        if constexpr (sizeof(I) == 4) {
          const hn::RebindToUnsigned<D> du;
          bits[i] = hn::BitCast(
              di, hn::ConcatEven(du, hn::BitCast(du, random[1].word[i]), hn::BitCast(du, random[0].word[i])));
        } else {  // as many queries as lanes: the second vector is not needed
          bits[i] = hn::BitCast(di, random[0].word[i]);
        }
      }
      const int64_t rows = std::min<int64_t>(8, at.keys - k);
      uint8_t* to = kept + k * stride + v * kMaskBytes<D>;
      for (int64_t i = 0; i < rows; ++i, to += stride) {
        auto b = bits[i / 2];
        if (i % 2 == 1) b = hn::ShiftRight<16>(b);
        hn::StoreMaskBits(d, hn::RebindMask(d, hn::Gt(hn::And(b, hn::Set(di, I{0xffff})), below)), to);
      }
    }
  }
}

/// What dropout does to the weights of a block.
struct KeptBlock {
  const uint8_t* bits;  // as draw_weights() writes them; null if nothing is dropped
  int64_t stride;
  float scale;

  template <class D>
  HWY_INLINE Vec<D> apply(D d, Vec<D> v, int64_t key, int64_t column) const {
    if (bits == nullptr) return v;
    const int64_t vector = column / static_cast<int64_t>(hn::MaxLanes(d));
    const auto kept = mask_from_bits(d, bits + key * stride + vector * kMaskBytes<D>);
    return hn::IfThenElseZero(kept, hn::Mul(v, hn::Set(d, static_cast<Lane<D>>(scale))));
  }
};

/// Draws the dropout of a block, into `keep` unless that is null.
template <class D, class T>
HWY_INLINE KeptBlock draw_block(D d, const kernels::AttentionScores<T>& args, const Dropout& dropout,
                                const Plane& p, const ScoreBlock& at, uint8_t* keep,
                                const AttentionScratch<Lane<D>>& w) {
  if (!dropout.active()) return {nullptr, 0, 0};
  const int64_t stride = kept_stride<Lane<D>>(args.segments.max_query),
                plane = p.sequence * args.heads + p.head;
  uint8_t* const bits = keep == nullptr ? w.kept : keep + plane * args.segments.max_key * stride;
  draw_weights(d, dropout, static_cast<uint32_t>(plane), at, bits, stride);
  return {bits, stride, dropout.scale};
}

/// What the forward drew, if it was kept; else draws it again.
template <class D, class T>
HWY_INLINE KeptBlock find_block(D d, const kernels::AttentionBackward<T>& args, const Plane& p,
                                const ScoreBlock& at, const AttentionScratch<Lane<D>>& w) {
  if (args.kept == nullptr) return draw_block(d, args, args.dropout, p, at, nullptr, w);
  const int64_t stride = kept_stride<Lane<D>>(args.segments.max_query);
  return {args.kept + (p.sequence * args.heads + p.head) * args.segments.max_key * stride, stride,
          args.dropout.scale};
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
