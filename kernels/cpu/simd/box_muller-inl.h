// kernels/box_muller.h by the vector, with the same bits: the same operations in the same order, each rounded
// by itself. Never MulAdd here, and heed's own sources are built without contraction.
#if defined(HEED_KERNELS_CPU_BOX_MULLER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_CPU_BOX_MULLER_INL_H_
#undef HEED_KERNELS_CPU_BOX_MULLER_INL_H_
#else
#define HEED_KERNELS_CPU_BOX_MULLER_INL_H_
#endif

#include <heed/kernels/cpu/simd/math-inl.h>

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

using Doubles = Tag<double>;
using WordLanes = hn::RebindToUnsigned<Doubles>;  // a word in the lower half of each lane; the upper is noise

/// Vectors whose chains of sums and products take turns, since each operation of a chain waits for the one
/// before.
constexpr int kChains = 4;
struct Numbers {
  Vec<Doubles> v[kChains];
};
struct RandomWords {
  Vec<WordLanes> v[kChains];
};

#define HEED_OPERATOR(symbol, function)                                      \
  HWY_INLINE Numbers operator symbol(const Numbers& a, const Numbers& b) {   \
    Numbers r;                                                               \
    for (int i = 0; i < kChains; ++i) r.v[i] = hn::function(a.v[i], b.v[i]); \
    return r;                                                                \
  }                                                                          \
  HWY_INLINE Numbers operator symbol(const Numbers& a, double b) {           \
    Numbers r;                                                               \
    const auto all = hn::Set(Doubles(), b);                                  \
    for (int i = 0; i < kChains; ++i) r.v[i] = hn::function(a.v[i], all);    \
    return r;                                                                \
  }
HEED_OPERATOR(+, Add)
HEED_OPERATOR(-, Sub)
HEED_OPERATOR(*, Mul)
HEED_OPERATOR(/, Div)
#undef HEED_OPERATOR

/// c[0] + c[1] z + c[2] z² + … by Horner's rule, each product and sum rounded.
template <size_t N>
HWY_INLINE Numbers series(const Numbers& z, const double (&c)[N]) {
  Numbers sum = z * c[N - 1] + c[N - 2];
  for (size_t i = N - 2; i-- > 0;) sum = sum * z + c[i];
  return sum;
}

/// 2 word + 1, from the lower half of each lane.
HWY_INLINE Vec<Doubles> odd_number(Vec<WordLanes> word) {
  const auto odd = hn::Or(hn::ShiftRight<31>(hn::ShiftLeft<32>(word)), hn::Set(WordLanes(), 1));
  return subtract_whole(Doubles(), odd, 0);
}

/// kernels::minus_two_log of each lane: that of (2 word + 1) / 2^33.
HWY_INLINE Numbers minus_two_log(const RandomWords& words) {
  Numbers m, e;
  for (int i = 0; i < kChains; ++i) split(Doubles(), odd_number(words.v[i]), 33, m.v[i], e.v[i]);
  const Numbers s = (m - 1.0) / (m + 1.0);
  const Numbers sum = series(s * s, {1.0, 1.0 / 3, 1.0 / 5, 1.0 / 7, 1.0 / 9, 1.0 / 11, 1.0 / 13, 1.0 / 15});
  return (s * 2.0 * sum + e * 0.69314718055994530942) * -2.0;
}

/// From the cosine and the sine of an angle's rest to those of the angle, whose quarter is in bits 30 and 31.
HWY_INLINE void turn(Vec<WordLanes> quarter, Vec<Doubles>& cosine, Vec<Doubles>& sine) {
  const Doubles d;
  const WordLanes du;
  const auto swapped = hn::RebindMask(d, hn::TestBit(quarter, hn::Set(du, 1u << 30)));
  // The sine is negative in quarters 2 and 3, the cosine in 1 and 2.
  const auto sign = hn::Set(du, uint64_t{1} << 63);
  const auto sine_sign = hn::And(hn::ShiftLeft<32>(quarter), sign);
  const auto cosine_sign = hn::And(hn::ShiftLeft<32>(hn::Add(quarter, hn::Set(du, 1u << 30))), sign);
  const auto c = hn::IfThenElse(swapped, sine, cosine), s = hn::IfThenElse(swapped, cosine, sine);
  cosine = hn::Xor(c, hn::BitCast(d, cosine_sign));
  sine = hn::Xor(s, hn::BitCast(d, sine_sign));
}

/// kernels::cosine_and_sine of each lane.
HWY_INLINE void cosine_and_sine(const RandomWords& words, Numbers& cosine, Numbers& sine) {
  const WordLanes du;
  RandomWords moved;  // the quarter in bits 30 and 31, rest + 2^29 below
  Numbers rest;
  for (int i = 0; i < kChains; ++i) {
    moved.v[i] = hn::Add(words.v[i], hn::Set(du, 1u << 29));
    rest.v[i] = subtract_whole(Doubles(), hn::And(moved.v[i], hn::Set(du, (1u << 30) - 1)), 0x1p29);
  }
  const Numbers x = rest * (6.28318530717958647692 * 0x1p-32), z = x * x;
  cosine = series(z, {1.0, -1.0 / 2, 1.0 / 24, -1.0 / 720, 1.0 / 40320, -1.0 / 3628800, 1.0 / 479001600});
  sine = series(z, {1.0, -1.0 / 6, 1.0 / 120, -1.0 / 5040, 1.0 / 362880, -1.0 / 39916800}) * x;
  for (int i = 0; i < kChains; ++i) turn(moved.v[i], cosine.v[i], sine.v[i]);
}

/// kernels::box_muller of each lane.
HWY_INLINE void box_muller(const RandomWords& radius_words, const RandomWords& angle_words, Numbers& cosine,
                           Numbers& sine) {
  Numbers radius = minus_two_log(radius_words);
  for (auto& r : radius.v) r = hn::Sqrt(r);
  cosine_and_sine(angle_words, cosine, sine);
  cosine = radius * cosine;
  sine = radius * sine;
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
