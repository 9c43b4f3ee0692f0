// The random bits of dropout and what they do to vectors; included like simd.h.
#ifndef HEED_KERNELS_CPU_DROPOUT_SIMD_ONCE_
#define HEED_KERNELS_CPU_DROPOUT_SIMD_ONCE_
#include <cstdint>

#include <heed/core/base/philox.h>

namespace heed::cpu {

constexpr int64_t kDropoutChunk = 512;

/// Room for the bits of `count` elements that are dropped or kept, which are drawn up to 128 at a time.
constexpr int64_t kept_bytes(int64_t count) { return (count + 127) / 128 * 16; }

/// Of kDropoutChunk elements.
struct KeptBuffer {
  alignas(16) uint8_t bits[kept_bytes(kDropoutChunk)];
};

}  // namespace heed::cpu
#endif

#include <heed/kernels/cpu/simd.h>  // after what every target needs: it includes the whole file again

#if defined(HEED_KERNELS_CPU_DROPOUT_SIMD_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_CPU_DROPOUT_SIMD_H_
#undef HEED_KERNELS_CPU_DROPOUT_SIMD_H_
#else
#define HEED_KERNELS_CPU_DROPOUT_SIMD_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

/// A counter, or its random words, in each 64-bit lane; only the lower half of a lane counts.
template <class D>
struct Philox4Lanes {
  Vec<D> word[4];
};

/// first, first + 1, … Highway's Iota of a number that is not constant goes through memory.
template <class D>
HWY_INLINE Vec<D> count_from(D d, uint64_t first) {
  return hn::Add(hn::Iota(d, 0), hn::Set(d, first));
}

/// Philox4x32-10 of two counters a lane, which hide each other's latencies. The key is (k0, k1).
template <class D>
HWY_INLINE void philox(D d, Philox4Lanes<D> (&counters)[2], uint32_t k0, uint32_t k1) {
  const hn::Repartition<uint32_t, D> d32;
  const auto m0 = hn::BitCast(d32, hn::Set(d, 0xD2511F53u));
  const auto m1 = hn::BitCast(d32, hn::Set(d, 0xCD9E8D57u));
  auto key0 = hn::Set(d, k0), key1 = hn::Set(d, k1);
  for (int round = 0; round < 10; ++round) {
    for (Philox4Lanes<D>& c : counters) {
      const auto p0 = hn::MulEven(hn::BitCast(d32, c.word[0]), m0);
      const auto p1 = hn::MulEven(hn::BitCast(d32, c.word[2]), m1);
      c.word[0] = hn::Xor(hn::ShiftRight<32>(p1), hn::Xor(c.word[1], key0));
      c.word[2] = hn::Xor(hn::ShiftRight<32>(p0), hn::Xor(c.word[3], key1));
      c.word[1] = p1;
      c.word[3] = p0;
    }
    key0 = hn::Add(key0, hn::Set(d, 0x9E3779B9u));
    key1 = hn::Add(key1, hn::Set(d, 0xBB67AE85u));
  }
}

/// The lower half of each 64-bit lane of two vectors.
template <class D>
HWY_INLINE Vec<D> join_halves(D d, Vec<D> lower, Vec<D> upper) {
  const hn::Repartition<uint32_t, D> d32;
  return hn::BitCast(d, hn::OddEven(hn::BitCast(d32, hn::ShiftLeft<32>(upper)), hn::BitCast(d32, lower)));
}

/// Writes a bit for each decision that is kept, in order: Lanes(d) bytes. `below` is the threshold less 1.
/// Lane 2 i of `random` has decisions 8 i …, lane 2 i + 1 those of lane i of the upper half.
template <class D>
HWY_INLINE void store_kept(D d, const Philox4Lanes<D>& random, uint16_t below, uint8_t* kept) {
  const hn::Repartition<uint16_t, D> d16;
  const auto w01 = join_halves(d, random.word[0], random.word[1]);
  const auto w23 = join_halves(d, random.word[2], random.word[3]);
  const auto lower = hn::BitCast(d16, hn::InterleaveLower(d, w01, w23));
  const auto upper = hn::BitCast(d16, hn::InterleaveUpper(d, w01, w23));
  const auto most = hn::Set(d16, below);
  hn::StoreMaskBits(d16, hn::Gt(lower, most), kept);
  hn::StoreMaskBits(d16, hn::Gt(upper, most), kept + hn::Lanes(d) / 2);
}

/// A bit for each of `count` elements from 8 * group on that dropout keeps, and some more: kept_bytes(count).
HWY_INLINE void draw_kept(const Dropout& dropout, int64_t group, int64_t count, uint8_t* kept) {
  const hn::ScalableTag<uint64_t> d;
  const uint64_t position = dropout.rng.position(), seed = dropout.rng.seed;
  const auto p0 = hn::Set(d, position & 0xffffffffu), p1 = hn::Set(d, position >> 32);
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto pair = hn::ShiftRight<1>(hn::Iota(d, 0));
  const auto order = hn::OddEven(hn::Add(pair, hn::Set(d, static_cast<uint64_t>(lanes / 2))), pair);
  const auto below = static_cast<uint16_t>(dropout.threshold - 1);
  for (int64_t i = 0; i < count; i += 16 * lanes, group += 2 * lanes, kept += 2 * lanes) {
    const auto lower = hn::Add(order, hn::Set(d, static_cast<uint64_t>(group)));
    const auto upper = hn::Add(order, hn::Set(d, static_cast<uint64_t>(group + lanes)));
    Philox4Lanes<hn::ScalableTag<uint64_t>> random[2] = {{{lower, hn::ShiftRight<32>(lower), p0, p1}},
                                                         {{upper, hn::ShiftRight<32>(upper), p0, p1}}};
    philox(d, random, static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
    store_kept(d, random[0], below, kept);
    store_kept(d, random[1], below, kept + lanes);
  }
}

/// A bit for each of elements first … first + count - 1 of a tensor that dropout keeps, count <=
/// kDropoutChunk, as dropout_bits() decides. Writes kept_bytes(count).
HWY_INLINE void fill_kept(const Dropout& dropout, int64_t first, int64_t count, uint8_t* kept) {
  const int64_t skipped = first % 8;
  if (skipped == 0) return draw_kept(dropout, first / 8, count, kept);
  uint8_t drawn[kept_bytes(kDropoutChunk + 8)];
  draw_kept(dropout, first / 8, count + skipped, drawn);
  for (int64_t i = 0; i * 8 < count; ++i)
    kept[i] = static_cast<uint8_t>(drawn[i] >> skipped | drawn[i + 1] << (8 - skipped));
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
HWY_INLINE Vec<D> apply_dropout(D d, Vec<D> v, const uint8_t* kept, int64_t i, const Dropout& dropout) {
  const auto scaled = hn::Mul(v, hn::Set(d, static_cast<hn::TFromD<D>>(dropout.scale)));
  if constexpr (hn::MaxLanes(d) >= 8) {
    return hn::IfThenElseZero(mask_from_bits(d, kept + i / 8), scaled);
  } else {
    const auto bits = static_cast<uint8_t>(kept[i / 8] >> i % 8);
    return hn::IfThenElseZero(hn::LoadMaskBits(d, &bits), scaled);
  }
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
