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

HWY_INLINE void transpose_4x4(const float* from, int64_t from_stride, float* to, int64_t to_stride) {
  const hn::FixedTag<float, 4> d;
  const auto r0 = hn::LoadU(d, from), r1 = hn::LoadU(d, from + from_stride);
  const auto r2 = hn::LoadU(d, from + 2 * from_stride), r3 = hn::LoadU(d, from + 3 * from_stride);
  const auto even0 = hn::InterleaveLower(d, r0, r2), odd0 = hn::InterleaveLower(d, r1, r3);
  const auto even1 = hn::InterleaveUpper(d, r0, r2), odd1 = hn::InterleaveUpper(d, r1, r3);
  hn::StoreU(hn::InterleaveLower(d, even0, odd0), d, to);
  hn::StoreU(hn::InterleaveUpper(d, even0, odd0), d, to + to_stride);
  hn::StoreU(hn::InterleaveLower(d, even1, odd1), d, to + 2 * to_stride);
  hn::StoreU(hn::InterleaveUpper(d, even1, odd1), d, to + 3 * to_stride);
}

HWY_INLINE void transpose_4x4(const double* from, int64_t from_stride, double* to, int64_t to_stride) {
  for (int64_t i = 0; i < 4; ++i) {
    for (int64_t j = 0; j < 4; ++j) to[j * to_stride + i] = from[i * from_stride + j];
  }
}

/// Rows and cols are multiples of 4.
template <class A>
HWY_INLINE void transpose(const A* from, int64_t from_stride, A* to, int64_t to_stride, int64_t rows,
                          int64_t cols) {
  for (int64_t i = 0; i < rows; i += 4) {
    for (int64_t j = 0; j < cols; j += 4)
      transpose_4x4(from + i * from_stride + j, from_stride, to + j * to_stride + i, to_stride);
  }
}

/// Packs `count` rows that begin at `from`, scaled, and their transpose of whole vectors of columns, filled
/// up with zeros. Rows whose lse (may be null) is that of a query without keys, as load_lse() marks it,
/// become zeros.
template <class D, class T>
HWY_INLINE void pack_queries(D d, const T* from, int64_t row_stride, int64_t count, int64_t width,
                             Lane<D> scale, const Lane<D>* lse, const AttentionScratch<Lane<D>>& w,
                             Lane<D>* rows, Lane<D>* columns) {
  const int64_t unit = std::max<int64_t>(4, static_cast<int64_t>(hn::Lanes(d)));
  const int64_t filled = (count + unit - 1) / unit * unit;
  for (int64_t i = 0; i < count; ++i) {
    if (lse && lse[i] == std::numeric_limits<Lane<D>>::infinity()) {
      zero_rows(d, rows + i * w.padded, w.padded);
    } else {
      pack_row(d, from + i * row_stride, rows + i * w.padded, width, w.padded, scale);
    }
  }
  zero_rows(d, rows + count * w.padded, (filled - count) * w.padded);
  transpose(rows, w.padded, columns, w.block, filled, w.padded);
}

/// A matrix of one row a key.
template <class A>
struct KeyRows {
  const A* data;
  int64_t stride;
};

/// `count` rows as accumulators with a whole number of vectors a row: as they are if they are so already,
/// else packed into `buffer`.
template <class D, class T>
HWY_INLINE KeyRows<Lane<D>> key_rows(D d, const T* from, int64_t row_stride, int64_t count, int64_t width,
                                     int64_t padded, Lane<D>* buffer) {
  if constexpr (std::is_same_v<T, Lane<D>>) {
    if (width == padded) return {from, row_stride};
  }
  for (int64_t i = 0; i < count; ++i)
    pack_row(d, from + i * row_stride, buffer + i * padded, width, padded, Lane<D>(1));
  return {buffer, padded};
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
  const T* const from = view.data + row * view.row_stride + head * view.head_stride;
  for (int64_t i = 0; i < count; ++i) prefetch_lines(from + i * view.row_stride, width);
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
HWY_INLINE bool all_finite(D d, KeyRows<Lane<D>> rows, int64_t count, int64_t padded) {
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
HWY_NOINLINE void weigh_guarded(const A* weights, int64_t stride, KeyRows<A> rows, A* out, int64_t out_stride,
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
HWY_INLINE void weigh(D d, const Lane<D>* weights, KeyRows<Lane<D>> rows, const AttentionScratch<Lane<D>>& w,
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
/// exp(score - lse) is 0 there.
template <class A>
HWY_INLINE void load_lse(const A* lse, int64_t queries, int64_t block, A* to) {
  const Tag<A> d;
  const auto infinity = hn::Set(d, std::numeric_limits<A>::infinity());
  for (int64_t i = 0; i < block; i += static_cast<int64_t>(hn::Lanes(d))) {
    const int64_t n = std::max<int64_t>(0, queries - i);
    const auto v = load_up_to(d, lse + i, n);
    const auto seen = hn::AndNot(hn::Eq(v, hn::Neg(infinity)), hn::FirstN(d, static_cast<size_t>(n)));
    hn::StoreU(hn::IfThenElse(seen, v, infinity), d, to + i);
  }
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

/// What the weights of a block are multiplied by: 0 where dropped, the scale where kept.
template <class D>
HWY_NOINLINE void fill_dropout(D d, const Dropout& dropout, uint32_t plane, const ScoreBlock& at,
                               Lane<D>* factors, int64_t stride) {
  const hn::ScalableTag<uint64_t> d64;
  const hn::RebindToSigned<D> di;
  using I = Lane<decltype(di)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto scale = hn::Set(d, static_cast<Lane<D>>(dropout.scale));
  const auto threshold = hn::Set(di, static_cast<I>(dropout.threshold));
  for (int64_t k = 0; k < at.keys; k += 8) {
    const int64_t group = (at.key + k) / 8;
    for (int64_t column = 0; column < at.vectors * lanes; column += lanes) {
      Philox4Lanes<hn::ScalableTag<uint64_t>> random[2];
      attention_words(d64, dropout.rng, group, at.query + column, plane, random);
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
      Lane<D>* to = factors + k * stride + column;
      for (int64_t i = 0; i < rows; ++i, to += stride) {
        auto b = bits[i / 2];
        if (i % 2 == 1) b = hn::ShiftRight<16>(b);
        const auto dropped = hn::Lt(hn::And(b, hn::Set(di, I{0xffff})), threshold);
        hn::StoreU(hn::IfThenZeroElse(hn::RebindMask(d, dropped), scale), d, to);
      }
    }
  }
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
