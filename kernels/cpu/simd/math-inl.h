// Elementary functions of vectors, with their errors.
#if defined(HEED_KERNELS_CPU_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_CPU_MATH_INL_H_
#undef HEED_KERNELS_CPU_MATH_INL_H_
#else
#define HEED_KERNELS_CPU_MATH_INL_H_
#endif

#include <cmath>
#include <limits>
#include <type_traits>

#include <heed/kernels/cpu/simd/simd.h>

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

/// f of each lane: for doubles, which serve exact gradient checks, where accuracy counts and speed does not.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE Vec<D> map_lanes(D d, Vec<D> v, T (*f)(T)) {
  alignas(64) T lanes[hn::MaxLanes(d)];
  hn::Store(v, d, lanes);
  for (T& lane : lanes) lane = f(lane);
  return hn::Load(d, lanes);
}

/// The lower or upper half of the lanes as doubles.
template <class D, class D64 = hn::Repartition<double, D>>
HWY_INLINE Vec<D64> lower_doubles(D, Vec<D> v) {
  return hn::PromoteTo(D64(), hn::LowerHalf(hn::Half<D>(), v));
}
template <class D, class D64 = hn::Repartition<double, D>>
HWY_INLINE Vec<D64> upper_doubles(D, Vec<D> v) {
  return hn::PromoteTo(D64(), hn::UpperHalf(hn::Half<D>(), v));
}
template <class D, class V64>
HWY_INLINE Vec<D> floats(D d, V64 lower, V64 upper) {
  const hn::Half<D> half;
  return hn::Combine(d, hn::DemoteTo(half, upper), hn::DemoteTo(half, lower));
}

/// Whether hn::MulAdd rounds once.
constexpr bool kFuses = (HWY_TARGET & (HWY_SSSE3 | HWY_SSE4 | HWY_EMU128 | HWY_SCALAR)) == 0;

/// c[0] + c[1] x + c[2] x² + …
template <class D, size_t N>
HWY_INLINE Vec<D> polynomial(D d, Vec<D> x, const hn::TFromD<D> (&c)[N]) {
  auto sum = hn::Set(d, c[N - 1]);
  for (size_t i = N - 1; i-- > 0;) sum = hn::MulAdd(sum, x, hn::Set(d, c[i]));
  return sum;
}

/// The same in two sums, of even and of odd powers: half as many operations wait for each other.
template <class D, size_t N>
HWY_INLINE Vec<D> polynomial_in_halves(D d, Vec<D> x, const hn::TFromD<D> (&c)[N]) {
  static_assert(N % 2 == 0);
  const auto square = hn::Mul(x, x);
  auto even = hn::Set(d, c[N - 2]), odd = hn::Set(d, c[N - 1]);
  for (size_t i = N - 2; i > 0; i -= 2) {
    even = hn::MulAdd(even, square, hn::Set(d, c[i - 2]));
    odd = hn::MulAdd(odd, square, hn::Set(d, c[i - 1]));
  }
  return hn::MulAdd(odd, x, even);
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

/// The same, but 0 where x < lowest. Those lanes are masked: a subnormal result, even one that is rounded to
/// 0, takes a processor of Intel over a hundred cycles.
template <class D>
HWY_INLINE Vec<D> scale_from(D, Vec<D> v, Exponent<D> n, Vec<D> x, Vec<D> lowest) {
  const __mmask16 counts = _mm512_cmp_ps_mask(x.raw, lowest.raw, _CMP_NLT_UQ);
  return Vec<D>{_mm512_maskz_scalef_ps(counts, v.raw, n.raw)};
}

/// x = m 2^n with m from sqrt(1/2) to sqrt(2), for every x: n is infinite where x is and -infinity at 0, and
/// m is NaN where x is less.
template <class D>
HWY_INLINE void split(D d, Vec<D> x, Vec<D>& m, Vec<D>& n) {
  m = Vec<D>{_mm512_getmant_ps(x.raw, _MM_MANT_NORM_1_2, _MM_MANT_SIGN_nan)};
  n = Vec<D>{_mm512_getexp_ps(x.raw)};
  const __mmask16 above = _mm512_cmp_ps_mask(m.raw, hn::Set(d, 1.41421356f).raw, _CMP_GT_OQ);
  m = Vec<D>{_mm512_mask_mul_ps(m.raw, above, m.raw, hn::Set(d, 0.5f).raw)};
  n = Vec<D>{_mm512_mask_add_ps(n.raw, above, n.raw, hn::Set(d, 1.0f).raw)};
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

/// v 2^n, but 0 where x < lowest.
template <class D>
HWY_INLINE Vec<D> scale_from(D d, Vec<D> v, Exponent<D> n, Vec<D> x, Vec<D> lowest) {
  return hn::IfThenZeroElse(hn::Lt(x, lowest), hn::Mul(v, power_of_two(d, n)));
}

/// x = m 2^n with m from sqrt(1/2) to sqrt(2), for normal numbers > 0.
template <class D>
HWY_INLINE void split(D d, Vec<D> x, Vec<D>& m, Vec<D>& n) {
  const hn::RebindToSigned<D> di;
  const auto root_of_half = hn::Set(di, 0x3f3504f3);
  const auto word = hn::Sub(hn::BitCast(di, x), root_of_half);
  m = hn::BitCast(d, hn::Add(hn::And(word, hn::Set(di, 0x7fffff)), root_of_half));
  n = hn::ConvertTo(d, hn::ShiftRight<23>(word));
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

/// Below it exp_fast is 0 unless told otherwise: the result would soon be subnormal.
constexpr float kMinExponent = -87.0f;

/// e^x of K vectors, in place, within 4 ulp for |x| <= 32 and 6 for least <= x <= 88, and 0 below (doubles
/// are exact everywhere); least >= kMinExponent. NaN stays NaN. Each step is taken for all of them before
/// the next: one vector after the other, the processor's queue fills with steps that wait.
template <int K, class D>
HWY_INLINE void exp_fast(D d, Vec<D> (&x)[K], float least = kMinExponent) {
  if constexpr (std::is_same_v<hn::TFromD<D>, double>) {
    for (auto& v : x) v = map_lanes(d, v, std::exp);
  } else {
    const auto lowest = hn::Set(d, least);
    const float c[] = {
        1.0f, 1.0f, 0.4999923148471309f, 0.16667114645319933f, 0.04189015793449832f, 0.008312520891264441f};
    Exponent<D> n[K];
    Vec<D> r[K], y[K];
    if constexpr (kScalesAtOnce) {  // exp_reduce in three instructions instead of five; r is off by 1.9e-9 n
      const auto large = hn::Set(d, 0x1.8p23f);  // of such a number no fraction is left
      for (int k = 0; k < K; ++k)
        n[k] = hn::Sub(hn::MulAdd(x[k], hn::Set(d, 1.44269504088896341f), large), large);
      for (int k = 0; k < K; ++k) r[k] = hn::NegMulAdd(n[k], hn::Set(d, 0.693147180559945309f), x[k]);
    } else {
      for (int k = 0; k < K; ++k) r[k] = exp_reduce(d, hn::Max(lowest, x[k]), n[k]);
    }
    for (int k = 0; k < K; ++k) y[k] = hn::Set(d, c[5]);
    for (int i = 4; i >= 0; --i) {
      for (int k = 0; k < K; ++k) y[k] = hn::MulAdd(y[k], r[k], hn::Set(d, c[i]));
    }
    for (int k = 0; k < K; ++k) x[k] = scale_from(d, y[k], n[k], x[k], lowest);
  }
}

template <class D>
HWY_INLINE Vec<D> exp_fast(D d, Vec<D> x, float least = kMinExponent) {
  Vec<D> one[] = {x};
  exp_fast(d, one, least);
  return one[0];
}

/// Within 1 ulp for normal numbers > 0; NaN and infinity stay.
template <class D>
HWY_INLINE Vec<D> log(D d, Vec<D> x) {
  if constexpr (std::is_same_v<hn::TFromD<D>, double>) {
    return map_lanes(d, x, std::log);
  } else {
    Vec<D> m, n;
    split(d, x, m, n);
    const auto r = hn::Sub(m, hn::Set(d, 1.0f)), square = hn::Mul(r, r);
    const float c[] = {3.3333331174e-1f,  -2.4999993993e-1f, 2.0000714765e-1f,
                       -1.6668057665e-1f, 1.4249322787e-1f,  -1.2420140846e-1f,
                       1.1676998740e-1f,  -1.1514610310e-1f, 7.0376836292e-2f};
    auto y = hn::Mul(hn::Mul(square, r), polynomial(d, r, c));
    // ln 2 in two parts, of which n times the first is exact; both are positive, for infinite n.
    y = hn::MulAdd(n, hn::Set(d, 1.42860677e-6f), y);
    y = hn::NegMulAdd(hn::Set(d, 0.5f), square, y);
    const auto result = hn::MulAdd(n, hn::Set(d, 0.693145751953125f), hn::Add(r, y));
    if constexpr (kScalesAtOnce) return result;
    return hn::IfThenElse(hn::Lt(x, hn::Set(d, std::numeric_limits<float>::infinity())), result, x);
  }
}

/// Within 2 ulp for every x: also subnormal numbers, 0, and NaN for what is negative.
template <class D>
HWY_INLINE Vec<D> log_everywhere(D d, Vec<D> x) {
  if constexpr (std::is_same_v<hn::TFromD<D>, double> || kScalesAtOnce) {
    return log(d, x);
  } else {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    const auto tiny = hn::Lt(x, hn::Set(d, std::numeric_limits<float>::min()));
    const auto of_normal = log(d, hn::IfThenElse(tiny, hn::Mul(x, hn::Set(d, 0x1p25f)), x));
    const auto y = hn::Sub(of_normal, hn::IfThenElseZero(tiny, hn::Set(d, 17.3286795139986f)));  // 25 ln 2
    const auto at_zero = hn::IfThenElse(hn::Eq(x, hn::Zero(d)), hn::Set(d, -kInfinity), y);
    return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Set(d, std::numeric_limits<float>::quiet_NaN()),
                          at_zero);
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

/// The sine of x, or of x and a quarter turn, within 2 ulp; beyond 10^5, for what is not finite, and where
/// nothing fuses multiplications with additions, by the C library.
template <bool kCosine, class D>
HWY_INLINE Vec<D> sine(D d, Vec<D> x) {
  using T = hn::TFromD<D>;
  T (*const exact)(T) = kCosine ? static_cast<T (*)(T)>(std::cos) : static_cast<T (*)(T)>(std::sin);
  if constexpr (std::is_same_v<T, double> || !kFuses) {
    return map_lanes(d, x, exact);
  } else {
    const hn::RebindToSigned<D> di;
    // Added to a large number, a count of quarters is rounded to a whole one, which stands in the last bits.
    const auto large = hn::Set(d, 0x1.8p23f), rounded = hn::MulAdd(x, hn::Set(d, 0.636619772f), large);
    const auto quarters = hn::Sub(rounded, large);
    // A quarter turn in three parts: what the first leaves of x is exact, so that what is left next to a
    // multiple of a quarter is right too.
    auto r = hn::NegMulAdd(quarters, hn::Set(d, 0x1.921fb6p0f), x);
    r = hn::NegMulAdd(quarters, hn::Set(d, -0x1.777a5cp-25f), r);
    r = hn::NegMulAdd(quarters, hn::Set(d, -0x1.ee59dap-50f), r);
    const auto square = hn::Mul(r, r);
    const float of_sine[] = {-1.6666654611e-1f, 8.3321608736e-3f, -1.9515295891e-4f};
    const float of_cosine[] = {4.166664568298827e-2f, -1.388731625493765e-3f, 2.443315711809948e-5f};
    const auto s = hn::MulAdd(hn::Mul(r, square), polynomial(d, square, of_sine), r);
    const auto c = hn::MulAdd(hn::Mul(square, square), polynomial(d, square, of_cosine),
                              hn::NegMulAdd(square, hn::Set(d, 0.5f), hn::Set(d, 1.0f)));
    auto count = hn::BitCast(di, rounded);
    if constexpr (kCosine) count = hn::Add(count, hn::Set(di, 1));
    const auto odd = hn::MaskFromVec(hn::BitCast(d, hn::BroadcastSignBit(hn::ShiftLeft<31>(count))));
    const auto sign = hn::ShiftLeft<30>(hn::And(count, hn::Set(di, 2)));
    auto y = hn::Xor(hn::IfThenElse(odd, c, s), hn::BitCast(d, sign));
    if constexpr (!kCosine) y = hn::IfThenElse(hn::Eq(x, hn::Zero(d)), x, y);  // -0
    const auto near = hn::Le(hn::Abs(x), hn::Set(d, 1e5f));                    // not where x is NaN
    return HWY_LIKELY(hn::AllTrue(d, near)) ? y : hn::IfThenElse(near, y, map_lanes(d, x, exact));
  }
}

/// n - less, exactly, for whole numbers from 0 below 2^52: n are the lowest bits of the double 2^52 + n.
template <class D>
HWY_INLINE Vec<D> subtract_whole(D d, Vec<hn::RebindToUnsigned<D>> n, double less) {
  const auto all = hn::Set(d, 0x1p52);
  return hn::Sub(hn::BitCast(d, hn::Or(n, hn::BitCast(hn::RebindToUnsigned<D>(), all))),
                 hn::Set(d, 0x1p52 + less));
}

/// x / 2^less = m 2^n with m from sqrt(1/2) to sqrt(2), for positive doubles that are not subnormal.
template <class D>
HWY_INLINE void split(D d, Vec<D> x, int less, Vec<D>& m, Vec<D>& n) {
  constexpr uint64_t kOne = 0x3ff0000000000000, kRootOfHalf = 0x3fe6a09e667f3bcd;  // as bits
  const hn::RebindToUnsigned<D> du;
  // The exponent of a number of bits b is that of b + kOne - kRootOfHalf, which steps at sqrt(1/2) 2^n.
  const auto bits = hn::Add(hn::BitCast(du, x), hn::Set(du, kOne - kRootOfHalf));
  const auto mantissa = hn::And(bits, hn::Set(du, 0xfffffffffffff));
  m = hn::BitCast(d, hn::Add(mantissa, hn::Set(du, kRootOfHalf)));
  n = subtract_whole(d, hn::ShiftRight<52>(bits), 1023 + less);
}

/// log2 |x| of doubles that were floats, within 3e-12 of it.
template <class D>
HWY_INLINE Vec<D> log2_of_floats(D d, Vec<D> x) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto one = hn::Set(d, 1.0), size = hn::Abs(x);
  Vec<D> m, n;
  split(d, size, 0, m, n);  // and log m = 2 atanh(s)
  const auto s = hn::Div(hn::Sub(m, one), hn::Add(m, one));
  constexpr double k = 2.88539008177792681472;  // 2 / log 2
  const double c[] = {k, k / 3, k / 5, k / 7, k / 9, k / 11, k / 13, k / 15};
  const auto y = hn::MulAdd(s, polynomial_in_halves(d, hn::Mul(s, s), c), n);
  const auto above_zero = hn::IfThenElse(hn::Eq(x, hn::Zero(d)), hn::Set(d, -kInfinity), y);
  return hn::IfThenElse(hn::Lt(size, hn::Set(d, kInfinity)), above_zero, size);
}

/// 2^x of doubles that are to be floats, within 1e-11 of it.
template <class D>
HWY_INLINE Vec<D> exp2_for_floats(D d, Vec<D> x) {
  const hn::RebindToUnsigned<D> du;
  // Min and Max give their second argument when it is NaN.
  x = hn::Max(hn::Set(d, -1000.0), hn::Min(hn::Set(d, 1000.0), x));
  const auto n = hn::Round(x);
  const double c[] = {1.0,
                      0.69314718055994530942,
                      0.24022650695910071233,
                      0.055504108664821579953,
                      0.0096181291076284771620,
                      0.0013333558146428443423,
                      1.5403530393381609954e-4,
                      1.5252733804059840280e-5,
                      1.3215486790144309488e-6,
                      1.0178086009239699728e-7};
  const auto y = polynomial_in_halves(d, hn::Sub(x, n), c);
  const auto exponent = hn::ShiftLeft<52>(hn::BitCast(du, hn::Add(n, hn::Set(d, 0x1.8p52))));
  return hn::BitCast(d, hn::Add(hn::BitCast(du, y), exponent));
}

/// a^b of floats as C's pow defines it, rounded once but where the double in between is within 1e-9 of the
/// middle of two floats.
template <class D>
HWY_INLINE Vec<D> power(D d, Vec<D> a, Vec<D> b) {
  const hn::Repartition<double, D> d64;
  Vec<decltype(d64)> base[] = {lower_doubles(d, a), upper_doubles(d, a)};
  const Vec<decltype(d64)> exponent[] = {lower_doubles(d, b), upper_doubles(d, b)};
  for (int half = 0; half < 2; ++half) {
    const auto one =
        hn::Or(hn::Eq(exponent[half], hn::Zero(d64)), hn::Eq(hn::Abs(base[half]), hn::Set(d64, 1.0)));
    const auto log = hn::Mul(exponent[half], log2_of_floats(d64, base[half]));
    base[half] = exp2_for_floats(d64, hn::IfThenZeroElse(one, log));
  }
  const auto half = hn::Mul(b, hn::Set(d, 0.5f)), size = floats(d, base[0], base[1]);
  const auto whole = hn::Eq(hn::Round(b), b), even = hn::Eq(hn::Round(half), half);
  const auto y = hn::IfThenElse(hn::AndNot(even, whole), hn::CopySign(size, a), size);
  const auto lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  const auto below = hn::And(hn::Lt(a, hn::Zero(d)), hn::Gt(a, lowest));
  return hn::IfThenElse(hn::AndNot(whole, below), hn::Set(d, std::numeric_limits<float>::quiet_NaN()), y);
}

/// 1 / (1 + e^-x).
template <class D>
HWY_INLINE Vec<D> sigmoid(D d, Vec<D> x) {
  const auto one = hn::Set(d, hn::TFromD<D>(1));
  return hn::Div(one, hn::Add(one, exp(d, hn::Neg(x))));
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
