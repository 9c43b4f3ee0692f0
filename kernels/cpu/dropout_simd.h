// The random bits of dropout and what they do to vectors; included like simd.h.
#ifndef HEED_KERNELS_CPU_DROPOUT_SIMD_ONCE_
#define HEED_KERNELS_CPU_DROPOUT_SIMD_ONCE_
#include <cstdint>

#include <heed/core/base/philox.h>

namespace heed::cpu {

constexpr int64_t kDropoutChunk = 512;

/// Room for the bits of `count` elements that are dropped or kept, which are drawn up to 128 at a time.
constexpr int64_t keep_mask_bytes(int64_t count) { return (count + 127) / 128 * 16; }

/// Of kDropoutChunk elements.
struct KeepMaskBuffer {
  alignas(16) uint8_t bits[keep_mask_bytes(kDropoutChunk)];
};

}  // namespace heed::cpu
#endif

#include <heed/kernels/cpu/simd/simd.h>  // after what every target needs: it includes the whole file again
// The -inl headers follow simd.h, which includes this file once per instruction set.
#include <heed/kernels/cpu/simd/philox-inl.h>

#if defined(HEED_KERNELS_CPU_DROPOUT_SIMD_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_CPU_DROPOUT_SIMD_H_
#undef HEED_KERNELS_CPU_DROPOUT_SIMD_H_
#else
#define HEED_KERNELS_CPU_DROPOUT_SIMD_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

/// Writes a bit for each decision that is kept: Lanes(d) bytes, in the order of counters from
/// count_alternately(). `below` is the threshold less 1.
template <class D>
HWY_INLINE void store_keep_mask(D d, const Philox4Lanes<D>& random, uint16_t below, uint8_t* keep_mask) {
  const hn::Repartition<uint16_t, D> d16;
  Vec<D> lower, upper;
  order_words(d, random, lower, upper);
  const auto most = hn::Set(d16, below);
  hn::StoreMaskBits(d16, hn::Gt(hn::BitCast(d16, lower), most), keep_mask);
  hn::StoreMaskBits(d16, hn::Gt(hn::BitCast(d16, upper), most), keep_mask + hn::Lanes(d) / 2);
}

/// A bit for each of `count` elements from 8 * group on that dropout keeps, and some more:
/// keep_mask_bytes(count).
HWY_INLINE void draw_keep_mask(const Dropout& dropout, int64_t group, int64_t count, uint8_t* keep_mask) {
  const hn::ScalableTag<uint64_t> d;
  const PhiloxKeys keys(d, dropout.rng.seed);
  const uint64_t position = dropout.rng.position();
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto below = static_cast<uint16_t>(dropout.threshold - 1);
  for (int64_t i = 0; i < count; i += 16 * lanes, group += 2 * lanes, keep_mask += 2 * lanes) {
    const auto lower = count_alternately(d, static_cast<uint64_t>(group));
    const auto upper = count_alternately(d, static_cast<uint64_t>(group + lanes));
    Philox4Lanes<hn::ScalableTag<uint64_t>> random[2] = {counters(d, lower, position),
                                                         counters(d, upper, position)};
    philox(d, keys, random);
    store_keep_mask(d, random[0], below, keep_mask);
    store_keep_mask(d, random[1], below, keep_mask + lanes);
  }
}

/// A bit for each of elements first … first + count - 1 of a tensor that dropout keeps, count <=
/// kDropoutChunk, as dropout_bits() decides. Writes keep_mask_bytes(count).
HWY_INLINE void fill_keep_mask(const Dropout& dropout, int64_t first, int64_t count, uint8_t* keep_mask) {
  const int64_t skipped = first % 8;
  if (skipped == 0) return draw_keep_mask(dropout, first / 8, count, keep_mask);
  uint8_t drawn[keep_mask_bytes(kDropoutChunk + 8)];
  draw_keep_mask(dropout, first / 8, count + skipped, drawn);
  for (int64_t i = 0; i * 8 < count; ++i)
    keep_mask[i] = static_cast<uint8_t>(drawn[i] >> skipped | drawn[i + 1] << (8 - skipped));
}

/// The mask whose bits begin at a byte.
template <class D>
HWY_INLINE hn::MFromD<D> mask_from_bits(D d, const uint8_t* bits) {
#if HWY_TARGET == HWY_AVX2
  if constexpr (hn::MaxLanes(d) == 8) {  // LoadMaskBits takes the byte through a register
    const hn::RebindToUnsigned<D> du;
    const auto byte = hn::BitCast(du, hn::Set(hn::Repartition<uint8_t, D>(), *bits));
    alignas(32) constexpr uint32_t kBit[] = {1, 2, 4, 8, 16, 32, 64, 128};
    return hn::RebindMask(d, hn::TestBit(byte, hn::Load(du, kBit)));
  }
#endif
  return hn::LoadMaskBits(d, bits);
}

/// v * scale where the element is kept, 0 where it is dropped. The first lane is that of bit i of `kept`, a
/// multiple of the number of lanes.
template <class D>
HWY_INLINE Vec<D> apply_dropout(D d, Vec<D> v, const uint8_t* keep_mask, int64_t i, const Dropout& dropout) {
  const auto scaled = hn::Mul(v, hn::Set(d, static_cast<hn::TFromD<D>>(dropout.scale)));
  if constexpr (hn::MaxLanes(d) >= 8) {
    return hn::IfThenElseZero(mask_from_bits(d, keep_mask + i / 8), scaled);
  } else {
    const auto bits = static_cast<uint8_t>(keep_mask[i / 8] >> i % 8);
    return hn::IfThenElseZero(hn::LoadMaskBits(d, &bits), scaled);
  }
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
