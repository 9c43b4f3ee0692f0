// Dropout of the CPU attention's weights.
#if defined(HEED_KERNELS_CPU_ATTENTION_DROPOUT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_CPU_ATTENTION_DROPOUT_INL_H_
#undef HEED_KERNELS_CPU_ATTENTION_DROPOUT_INL_H_
#else
#define HEED_KERNELS_CPU_ATTENTION_DROPOUT_INL_H_
#endif

#include <algorithm>

#include <heed/kernels/attention.h>
#include <heed/kernels/cpu/attention/attention_blocking.h>
#include <heed/kernels/cpu/dropout_simd.h>

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

template <class D>
constexpr int64_t kMaskBytes = (hn::MaxLanes(D()) + 7) / 8;  // of a vector

/// The random words of one group of 8 keys for two vectors of queries from `query` on, one a 64-bit lane.
template <class D64>
HWY_INLINE void attention_words(D64 d, const PhiloxKeys<D64>& keys, uint64_t position, int64_t group,
                                int64_t query, uint32_t batch_head, Philox4Lanes<D64> (&random)[2]) {
  const auto c0 = hn::Set(d, static_cast<uint64_t>(group)), c2 = hn::Set(d, batch_head);
  const auto c3 = hn::Set(d, position);
  for (int i = 0; i < 2; ++i) {
    const int64_t first = query + i * static_cast<int64_t>(hn::Lanes(d));
    random[i] = {{c0, count_from(d, static_cast<uint64_t>(first)), c2, c3}};
  }
  philox(d, keys, random);
}

/// Draws which weights of a block dropout keeps: a bit each, a row a key.
template <class D>
HWY_NOINLINE void draw_weights(D d, const Dropout& dropout, uint32_t batch_head, const ScoreBlock& at,
                               uint8_t* keep_mask, int64_t stride) {
  const hn::ScalableTag<uint64_t> d64;
  const hn::RebindToSigned<D> di;
  using I = Lane<decltype(di)>;
  const uint64_t position = dropout.rng.position();
  const PhiloxKeys keys(d64, dropout.rng.seed ^ (position >> 32 << 32));
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto below = hn::Set(di, static_cast<I>(dropout.threshold) - 1);
  for (int64_t k = 0; k < at.keys; k += 8) {
    const int64_t group = (at.key + k) / 8;
    for (int64_t v = 0; v < at.vectors; ++v) {
      Philox4Lanes<hn::ScalableTag<uint64_t>> random[2];
      attention_words(d64, keys, position, group, at.query + v * lanes, batch_head, random);
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
      uint8_t* to = keep_mask + k * stride + v * kMaskBytes<D>;
      for (int64_t i = 0; i < rows; ++i, to += stride) {
        auto b = bits[i / 2];
        if (i % 2 == 1) b = hn::ShiftRight<16>(b);
        hn::StoreMaskBits(d, hn::RebindMask(d, hn::Gt(hn::And(b, hn::Set(di, I{0xffff})), below)), to);
      }
    }
  }
}

/// What dropout does to the weights of a block.
struct KeepMaskBlock {
  const uint8_t* bits;  // as draw_weights() writes them; null if nothing is dropped
  int64_t stride;
  float scale;

  template <class D>
  HWY_INLINE Vec<D> apply(D d, Vec<D> v, int64_t key, int64_t column) const {
    if (bits == nullptr) return v;
    const int64_t vector = column / static_cast<int64_t>(hn::MaxLanes(d));
    const auto keep_mask = mask_from_bits(d, bits + key * stride + vector * kMaskBytes<D>);
    return hn::IfThenElseZero(keep_mask, hn::Mul(v, hn::Set(d, static_cast<Lane<D>>(scale))));
  }
};

/// Draws the dropout of a block, into `keep` unless that is null.
template <class D, class T>
HWY_INLINE KeepMaskBlock draw_block(D d, const kernels::AttentionScores<T>& args, const Dropout& dropout,
                                    const BatchHead& p, const ScoreBlock& at, uint8_t* keep,
                                    const AttentionScratch<Lane<D>>& w) {
  if (!dropout.active()) return {nullptr, 0, 0};
  const int64_t stride = keep_mask_stride<Lane<D>>(args.segments.max_query),
                batch_head = p.sequence * args.heads + p.head;
  uint8_t* const bits = keep == nullptr ? w.keep_mask : keep + batch_head * args.segments.max_key * stride;
  draw_weights(d, dropout, static_cast<uint32_t>(batch_head), at, bits, stride);
  return {bits, stride, dropout.scale};
}

/// What the forward drew, if it was kept; else draws it again.
template <class D, class T>
HWY_INLINE KeepMaskBlock find_block(D d, const kernels::AttentionBackward<T>& args, const BatchHead& p,
                                    const ScoreBlock& at, const AttentionScratch<Lane<D>>& w) {
  if (args.keep_mask == nullptr) return draw_block(d, args, args.dropout, p, at, nullptr, w);
  const int64_t stride = keep_mask_stride<Lane<D>>(args.segments.max_query);
  return {args.keep_mask + (p.sequence * args.heads + p.head) * args.segments.max_key * stride, stride,
          args.dropout.scale};
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
