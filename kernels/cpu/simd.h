// SIMD building blocks of the CPU kernels: typed loads and stores, sums, elementary functions. Including it
// compiles the including file once per instruction set:
//
//   #undef HWY_TARGET_INCLUDE
//   #define HWY_TARGET_INCLUDE "heed/kernels/cpu/X.cpp"  // the file itself
//
//   #include <heed/kernels/X.h>
//   #include <heed/kernels/cpu/simd.h>  // may stand anywhere among the includes
//
//   HWY_BEFORE_NAMESPACE();
//   namespace heed::cpu::HWY_NAMESPACE {
//   void x_row(…) {…}  // row functions only: no lambdas, no parallel_for, no containers
//   }
//   HWY_AFTER_NAMESPACE();
//
//   #if HWY_ONCE
//   namespace heed::cpu {
//   HWY_EXPORT(x_row);
//   void x(const kernels::X& args) { const auto row = HEED_SIMD(x_row); parallel_for(… row(…) …); }
//   }
//   #endif
#ifndef HEED_KERNELS_CPU_SIMD_ONCE_
#define HEED_KERNELS_CPU_SIMD_ONCE_
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include <heed/core/base/dtype.h>
#include <heed/core/base/philox.h>
#include <heed/kernels/cpu/isa.h>

namespace heed::cpu {

constexpr int64_t kDropoutChunk = 512;

/// Room for the bits of `count` elements that are dropped or kept, which are drawn up to 128 at a time.
constexpr int64_t kept_bytes(int64_t count) { return (count + 127) / 128 * 16; }

/// Of kDropoutChunk elements.
struct KeptBuffer {
  alignas(16) uint8_t bits[kept_bytes(kDropoutChunk)];
};

}  // namespace heed::cpu

// On x86 the least we run on is x86-64-v2: Highway 1.0.3 has nothing between it and scalar code.
#include <hwy/detect_compiler_arch.h>
#if HWY_ARCH_X86 && !defined(HWY_BASELINE_TARGETS) && !defined(__AVX2__)
#define HWY_BASELINE_TARGETS HWY_SSE4
#endif
#include <hwy/foreach_target.h>
#endif

#if defined(HEED_KERNELS_CPU_SIMD_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_CPU_SIMD_H_
#undef HEED_KERNELS_CPU_SIMD_H_
#else
#define HEED_KERNELS_CPU_SIMD_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// The vector type in which arithmetic on T is done: floats for float and bfloat16, doubles for double.
template <class T>
using Tag = hn::ScalableTag<accumulator_t<T>>;
template <class D>
using Vec = hn::VFromD<D>;

// ---- Loads and stores: T in memory, accumulator_t<T> in the vector
// -----------------------------------------

template <class D>
HWY_INLINE Vec<D> load(D d, const hn::TFromD<D>* p) {
  return hn::LoadU(d, p);
}

template <class D>
HWY_INLINE Vec<D> load(D d, const bfloat16* p) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::RebindToUnsigned<D> d32;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, hn::LoadU(d16, &p->bits))));
}

template <class D>
HWY_INLINE void store(Vec<D> v, D d, hn::TFromD<D>* p) {
  hn::StoreU(v, d, p);
}

/// Rounds to nearest, ties to even; NaN stays NaN. The same bits as bfloat16(float).
template <class D>
HWY_INLINE hn::VFromD<hn::Rebind<uint16_t, D>> to_bfloat16(D, Vec<D> v) {
  const hn::RebindToUnsigned<D> d32;
  const auto word = hn::BitCast(d32, v);
  const auto upper = hn::ShiftRight<16>(word);
  const auto odd = hn::And(upper, hn::Set(d32, 1));
  const auto rounded = hn::ShiftRight<16>(hn::Add(word, hn::Add(odd, hn::Set(d32, 0x7fff))));
  const auto quiet = hn::Or(upper, hn::Set(d32, 0x40));
  const auto bits = hn::IfThenElse(hn::RebindMask(d32, hn::IsNaN(v)), quiet, rounded);
  return hn::DemoteTo(hn::Rebind<uint16_t, D>(), hn::BitCast(hn::RebindToSigned<D>(), bits));
}

template <class D>
HWY_INLINE void store(Vec<D> v, D d, bfloat16* p) {
  hn::StoreU(to_bfloat16(d, v), hn::Rebind<uint16_t, D>(), &p->bits);
}

/// Whether masked loads and stores of T leave memory outside the mask alone on this target.
template <class T>
constexpr bool kMaskedMemory = sizeof(T) >= 4 && (HWY_TARGET == HWY_AVX2 || !HWY_MEM_OPS_MIGHT_FAULT);

/// The first n lanes, n at most the vector's length; zero in the others. Touches no memory beyond them.
template <class D, class T>
HWY_INLINE Vec<D> load_n(D d, const T* p, int64_t n) {
  if constexpr (kMaskedMemory<T>) {
    return hn::MaskedLoad(hn::FirstN(d, static_cast<size_t>(n)), d, p);
  } else {
    alignas(64) T buffer[hn::MaxLanes(d)] = {};
    for (int64_t i = 0; i < n; ++i) buffer[i] = p[i];
    return load(d, buffer);
  }
}

template <class D, class T>
HWY_INLINE void store_n(Vec<D> v, D d, T* p, int64_t n) {
  if constexpr (kMaskedMemory<T>) {
    hn::BlendedStore(v, hn::FirstN(d, static_cast<size_t>(n)), d, p);
  } else {
    alignas(64) T buffer[hn::MaxLanes(d)];
    store(v, d, buffer);
    for (int64_t i = 0; i < n; ++i) p[i] = buffer[i];
  }
}

/// Two ways to touch memory, for code that does the body and the end of a row alike: whole vectors, or n
/// lanes.
template <class T>
struct Whole {
  using V = Vec<Tag<T>>;
  HWY_INLINE V load(const T* p) const { return HWY_NAMESPACE::load(Tag<T>(), p); }
  HWY_INLINE void store(V v, T* p) const { HWY_NAMESPACE::store(v, Tag<T>(), p); }
  /// v with zeros in the lanes that are not there.
  HWY_INLINE V keep(V v) const { return v; }
};
template <class T>
struct Partial {
  using V = Vec<Tag<T>>;
  int64_t n;
  HWY_INLINE V load(const T* p) const { return load_n(Tag<T>(), p, n); }
  HWY_INLINE void store(V v, T* p) const { store_n(v, Tag<T>(), p, n); }
  HWY_INLINE V keep(V v) const { return hn::IfThenElseZero(hn::FirstN(Tag<T>(), static_cast<size_t>(n)), v); }
};

// ---- Across the lanes
// --------------------------------------------------------------------------------------

/// The sum of the lanes, in an order fixed for the target.
template <class D>
HWY_INLINE hn::TFromD<D> reduce_sum(D d, Vec<D> v) {
  if constexpr (hn::MaxLanes(d) * sizeof(hn::TFromD<D>) == 64) {  // not SumOfLanes: it fills a vector first
    const hn::Half<D> half;
    return reduce_sum(half, hn::Add(hn::UpperHalf(half, v), hn::LowerHalf(half, v)));
  } else {
    return hn::GetLane(hn::SumOfLanes(d, v));
  }
}

template <class D>
HWY_INLINE hn::TFromD<D> reduce_max(D d, Vec<D> v) {
  if constexpr (hn::MaxLanes(d) * sizeof(hn::TFromD<D>) == 64) {
    const hn::Half<D> half;
    return reduce_max(half, hn::Max(hn::UpperHalf(half, v), hn::LowerHalf(half, v)));
  } else {
    return hn::GetLane(hn::MaxOfLanes(d, v));
  }
}

// ---- Elementary functions
// ----------------------------------------------------------------------------------

/// f of each lane, for doubles: they serve exact gradient checks, where accuracy counts and speed does not.
template <class D>
HWY_INLINE Vec<D> map_lanes(D d, Vec<D> v, double (*f)(double)) {
  alignas(64) double lanes[hn::MaxLanes(d)];
  hn::Store(v, d, lanes);
  for (double& lane : lanes) lane = f(lane);
  return hn::Load(d, lanes);
}

/// c[0] + c[1] x + c[2] x² + …
template <class D, size_t N>
HWY_INLINE Vec<D> polynomial(D d, Vec<D> x, const float (&c)[N]) {
  auto sum = hn::Set(d, c[N - 1]);
  for (size_t i = N - 1; i-- > 0;) sum = hn::MulAdd(sum, x, hn::Set(d, c[i]));
  return sum;
}

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
/// The power of two in a product v 2^n: here AVX-512 takes it as a float, of any size.
template <class D>
using Exponent = Vec<D>;
constexpr bool kScalesAtOnce = true;

/// The whole number nearest to x, as both.
template <class D>
HWY_INLINE Vec<D> nearest(D, Vec<D> x, Exponent<D>& n) {
  return n = hn::Round(x);
}

/// v 2^n.
template <class D>
HWY_INLINE Vec<D> scale(D, Vec<D> v, Exponent<D> n) {
  return Vec<D>{_mm512_scalef_ps(v.raw, n.raw)};
}
#else
template <class D>
using Exponent = hn::VFromD<hn::RebindToSigned<D>>;
constexpr bool kScalesAtOnce = false;

template <class D>
HWY_INLINE Vec<D> nearest(D d, Vec<D> x, Exponent<D>& n) {
  n = hn::NearestInt(x);
  return hn::ConvertTo(d, n);
}

/// 2^n for n in -126 … 127.
template <class D>
HWY_INLINE Vec<D> power_of_two(D d, Exponent<D> n) {
  return hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(n, hn::Set(hn::RebindToSigned<D>(), 127))));
}

/// v 2^n for n in -252 … 254, in two steps, since 2^n itself need not be a normal number.
template <class D>
HWY_INLINE Vec<D> scale(D d, Vec<D> v, Exponent<D> n) {
  const auto half = hn::ShiftRight<1>(n);
  return hn::Mul(hn::Mul(v, power_of_two(d, half)), power_of_two(d, hn::Sub(n, half)));
}
#endif

/// x = n ln 2 + r with |r| <= ln 2 / 2; ln 2 is split so that n times its upper part is exact without FMA.
template <class D>
HWY_INLINE Vec<D> exp_reduce(D d, Vec<D> x, Exponent<D>& n) {
  const auto whole = nearest(d, hn::Mul(x, hn::Set(d, 1.44269504088896341f)), n);
  const auto r = hn::NegMulAdd(whole, hn::Set(d, 0.693359375f), x);
  return hn::NegMulAdd(whole, hn::Set(d, -2.12194440054690583e-4f), r);
}

/// e^r - 1 for |r| <= 0.4, such that one plus it is e^r within 1 ulp.
template <class D>
HWY_INLINE Vec<D> expm1_reduced(D d, Vec<D> r) {
  const float c[] = {0.49999993447705854f, 0.16666520630890824f, 0.04166838806348473f, 0.008368716955705954f,
                     0.0013814597776608175f};
  return hn::MulAdd(hn::Mul(r, r), polynomial(d, r, c), r);
}

/// e^x within 1 ulp (2 without FMA), over the whole range: subnormals, 0 and infinity where they belong.
template <class D>
HWY_INLINE Vec<D> exp(D d, Vec<D> x) {
  if constexpr (std::is_same_v<hn::TFromD<D>, double>) {
    return map_lanes(d, x, std::exp);
  } else {
    // Min and Max give their second argument when it is NaN.
    x = hn::Max(hn::Set(d, -104.0f), hn::Min(hn::Set(d, 89.0f), x));
    Exponent<D> n;
    const auto r = exp_reduce(d, x, n);
    return scale(d, hn::Add(expm1_reduced(d, r), hn::Set(d, 1.0f)), n);
  }
}

/// e^x within 3 ulp for x <= 88; where the result would be subnormal it may be 0, and e^-inf is. NaN stays
/// NaN.
template <class D>
HWY_INLINE Vec<D> exp_fast(D d, Vec<D> x) {
  if constexpr (std::is_same_v<hn::TFromD<D>, double>) {
    return map_lanes(d, x, std::exp);
  } else {
    const auto lowest = hn::Set(d, kScalesAtOnce ? -105.0f : -87.0f);
    Exponent<D> n;
    const auto r = exp_reduce(d, hn::Max(lowest, x), n);
    const float c[] = {
        1.0f, 1.0f, 0.4999923148471309f, 0.16667114645319933f, 0.04189015793449832f, 0.008312520891264441f};
    const auto y = polynomial(d, r, c);
    if constexpr (kScalesAtOnce) {
      return scale(d, y, n);
    } else {
      return hn::IfThenZeroElse(hn::Lt(x, lowest), hn::Mul(y, power_of_two(d, n)));
    }
  }
}

/// Within 1 ulp for normal numbers > 0; NaN and infinity stay.
template <class D>
HWY_INLINE Vec<D> log(D d, Vec<D> x) {
  if constexpr (std::is_same_v<hn::TFromD<D>, double>) {
    return map_lanes(d, x, std::log);
  } else {
    // x = m 2^n with m from sqrt(1/2) to sqrt(2)
    const hn::RebindToSigned<D> di;
    const auto word = hn::Sub(hn::BitCast(di, x), hn::Set(di, 0x3f3504f3));
    const auto m = hn::BitCast(d, hn::Add(hn::And(word, hn::Set(di, 0x7fffff)), hn::Set(di, 0x3f3504f3)));
    const auto n = hn::ConvertTo(d, hn::ShiftRight<23>(word)), r = hn::Sub(m, hn::Set(d, 1.0f));
    const float c[] = {3.3333331174e-1f,  -2.4999993993e-1f, 2.0000714765e-1f,
                       -1.6668057665e-1f, 1.4249322787e-1f,  -1.2420140846e-1f,
                       1.1676998740e-1f,  -1.1514610310e-1f, 7.0376836292e-2f};
    const auto square = hn::Mul(r, r);
    auto y = hn::Mul(hn::Mul(square, r), polynomial(d, r, c));
    y = hn::MulAdd(n, hn::Set(d, -2.12194440e-4f), y);
    y = hn::NegMulAdd(hn::Set(d, 0.5f), square, y);
    const auto result = hn::MulAdd(n, hn::Set(d, 0.693359375f), hn::Add(r, y));
    return hn::IfThenElse(hn::Lt(x, hn::Set(d, std::numeric_limits<float>::infinity())), result, x);
  }
}

/// Within 2 ulp.
template <class D>
HWY_INLINE Vec<D> tanh(D d, Vec<D> x) {
  if constexpr (std::is_same_v<hn::TFromD<D>, double>) {
    return map_lanes(d, x, std::tanh);
  } else {
    const auto one = hn::Set(d, 1.0f);
    const auto a = hn::Min(hn::Set(d, 10.0f), hn::Abs(x));
    const auto t = hn::Mul(x, x);
    const float c[] = {-0.33333260526780895f, 0.13331127533087497f, -0.05372106778208905f,
                       0.020590987632386776f, -0.005659988298679731f};
    const auto small = hn::MulAdd(hn::Mul(x, t), polynomial(d, t, c), x);
    const auto e = exp_fast(d, hn::Add(a, a));
    const auto large = hn::Sub(one, hn::Div(hn::Set(d, 2.0f), hn::Add(e, one)));
    return hn::CopySign(hn::IfThenElse(hn::Lt(a, hn::Set(d, 0.625f)), small, large), x);
  }
}

/// Within 2 ulp.
template <class D>
HWY_INLINE Vec<D> erf(D d, Vec<D> x) {
  if constexpr (std::is_same_v<hn::TFromD<D>, double>) {
    return map_lanes(d, x, std::erf);
  } else {
    const auto one = hn::Set(d, 1.0f);
    const auto a = hn::Min(hn::Set(d, 4.0f), hn::Abs(x));
    const auto t = hn::Mul(x, x);
    const float near[] = {0.12837916572670652f,   -0.37612625824208107f, 0.1128358514833642f,
                          -0.026853811923764074f, 0.005188327663888222f, -0.00080101934335036f,
                          7.853860720366322e-05f};
    const auto small = hn::MulAdd(x, polynomial(d, t, near), x);
    // -log(1 - erf(x)) on [1, 4]
    const float far[] = {0.0026191647506763616f, 1.1176212966211163f,    0.654240019427392f,
                         0.0887997467964118f,    -0.014831852997846874f, 0.0011572219255164176f};
    const auto large = hn::Sub(one, exp_fast(d, hn::Neg(polynomial(d, a, far))));
    return hn::CopySign(hn::IfThenElse(hn::Lt(a, one), small, large), x);
  }
}

/// 1 / (1 + e^-x).
template <class D>
HWY_INLINE Vec<D> sigmoid(D d, Vec<D> x) {
  const auto one = hn::Set(d, hn::TFromD<D>(1));
  return hn::Div(one, hn::Add(one, exp(d, hn::Neg(x))));
}

// ---- Random bits
// -------------------------------------------------------------------------------------------

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
