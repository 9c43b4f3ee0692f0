// Philox4x32-10 by the vector, and its words in the order of memory.
#if defined(HEED_KERNELS_CPU_PHILOX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_CPU_PHILOX_INL_H_
#undef HEED_KERNELS_CPU_PHILOX_INL_H_
#else
#define HEED_KERNELS_CPU_PHILOX_INL_H_
#endif

#include <heed/kernels/cpu/simd/simd.h>

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

/// The same numbers as order_words() wants them: lane 2 i is first + i, lane 2 i + 1 is Lanes(d) / 2 more.
template <class D>
HWY_INLINE Vec<D> count_alternately(D d, uint64_t first) {
  const auto pair = hn::ShiftRight<1>(hn::Iota(d, 0));
  const auto order = hn::OddEven(hn::Add(pair, hn::Set(d, hn::Lanes(d) / 2)), pair);
  return hn::Add(order, hn::Set(d, first));
}

/// The counters of groups of elements at a position of a Generator.
template <class D>
HWY_INLINE Philox4Lanes<D> counters(D d, Vec<D> group, uint64_t position) {
  return {{group, hn::ShiftRight<32>(group), hn::Set(d, position), hn::Set(d, position >> 32)}};
}

/// The keys of the ten rounds, made once for many counters.
template <class D>
struct PhiloxKeys {
  Vec<D> key0[10], key1[10];

  HWY_INLINE PhiloxKeys(D d, uint32_t k0, uint32_t k1) {
    for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
      key0[round] = hn::Set(d, k0);
      key1[round] = hn::Set(d, k1);
    }
  }
  HWY_INLINE PhiloxKeys(D d, uint64_t seed)
      : PhiloxKeys(d, static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)) {}
};

/// Philox4x32-10 of two counters a lane, which hide each other's latencies.
template <class D>
HWY_INLINE void philox(D d, const PhiloxKeys<D>& keys, Philox4Lanes<D> (&counters)[2]) {
  const hn::Repartition<uint32_t, D> d32;
  const auto m0 = hn::BitCast(d32, hn::Set(d, 0xD2511F53u));
  const auto m1 = hn::BitCast(d32, hn::Set(d, 0xCD9E8D57u));
  for (int round = 0; round < 10; ++round) {
    for (Philox4Lanes<D>& c : counters) {
      const auto p0 = hn::MulEven(hn::BitCast(d32, c.word[0]), m0);
      const auto p1 = hn::MulEven(hn::BitCast(d32, c.word[2]), m1);
      c.word[0] = hn::Xor(hn::ShiftRight<32>(p1), hn::Xor(c.word[1], keys.key0[round]));
      c.word[2] = hn::Xor(hn::ShiftRight<32>(p0), hn::Xor(c.word[3], keys.key1[round]));
      c.word[1] = p1;
      c.word[3] = p0;
    }
  }
}

/// The lower half of each 64-bit lane of two vectors.
template <class D>
HWY_INLINE Vec<D> join_halves(D d, Vec<D> lower, Vec<D> upper) {
  const hn::Repartition<uint32_t, D> d32;
  return hn::BitCast(d, hn::OddEven(hn::BitCast(d32, hn::ShiftLeft<32>(upper)), hn::BitCast(d32, lower)));
}

/// The four words of each counter side by side: first `lower`, then `upper`, in the order of counters from
/// count_alternately().
template <class D>
HWY_INLINE void order_words(D d, const Philox4Lanes<D>& random, Vec<D>& lower, Vec<D>& upper) {
  const auto w01 = join_halves(d, random.word[0], random.word[1]);
  const auto w23 = join_halves(d, random.word[2], random.word[3]);
  lower = hn::InterleaveLower(d, w01, w23);
  upper = hn::InterleaveUpper(d, w01, w23);
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
