// Activation functions and their derivatives on vectors; included like simd.h.
//
// gelu, gelu_tanh and silu are all x S(x) with S rising from 0 to 1 and S(x) + S(-x) = 1. Everything is made
// from the tail S(-|x|), which is held as m 2^n: computing 1 - S would cancel and an early 2^n would
// underflow.
#ifndef HEED_KERNELS_CPU_ACTIVATION_SIMD_ONCE_
#define HEED_KERNELS_CPU_ACTIVATION_SIMD_ONCE_
#include <cmath>

#include <heed/kernels/activation.h>

namespace heed::cpu {

/// What lies between x and the argument of S: gelu_tanh's 2 sqrt(2 / pi) (x + 0.044715 x³) = x (linear +
/// cubic x²).
inline constexpr double kGeluTanhLinear = 1.5957691216057307117597842397375;
inline constexpr double kGeluTanhCubic = 0.071354816272600248736328751;

/// S(x) and S'(x) in double.
template <Activation A>
double activation_gate(double x) {
  if constexpr (A == Activation::gelu) return 0.5 * std::erfc(-0.70710678118654752440 * x);
  if constexpr (A == Activation::gelu_tanh) x *= kGeluTanhLinear + kGeluTanhCubic * x * x;
  return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x));
}

template <Activation A>
double activation_gate_slope(double x) {
  if constexpr (A == Activation::gelu) return 0.39894228040143267794 * std::exp(-0.5 * x * x);
  const double inner = A == Activation::gelu_tanh ? kGeluTanhLinear + 3 * kGeluTanhCubic * x * x : 1;
  return activation_gate<A>(x) * activation_gate<A>(-x) * inner;
}

/// f(x) and f'(x) in double. At the infinities S and S' vanish faster than x grows.
template <Activation A>
double activate_scalar(double x) {
  if (x == -HUGE_VAL) return -0.0;
  return x * activation_gate<A>(x);
}

template <Activation A>
double activate_slope_scalar(double x) {
  const double a = std::abs(x) > 1e3 ? std::copysign(1e3, x) : x;
  return activation_gate<A>(a) + a * activation_gate_slope<A>(a);
}

/// A function of 0 <= a < kEnd by polynomials around the multiples of kStep. The coefficients of one power
/// fill a vector of kPieces lanes, in which each lane of a looks up its own.
template <int kPieces>
struct LookupPolynomials {
  static constexpr int kCoefficients = kPieces == 16 ? 6 : 8;
  static constexpr double kStep = 4.0 / kPieces;
  static constexpr float kEnd = static_cast<float>(4 - kStep / 2);
  alignas(64) float coefficient[kCoefficients][kPieces];

  /// Interpolates f by divided differences at Chebyshev's points of each piece, which are moved outwards a
  /// little: f falls, and its relative error is to be the same at both ends.
  explicit LookupPolynomials(double (*f)(double)) {
    for (int piece = 0; piece < kPieces; ++piece) {
      double point[kCoefficients], difference[kCoefficients], power[kCoefficients] = {};
      for (int i = 0; i < kCoefficients; ++i) {
        const double x = std::cos((i + 0.5) * 3.14159265358979323846 / kCoefficients);
        point[i] = kStep / 2 * (x + 0.08 * (1 - x * x));
        difference[i] = f(piece * kStep + point[i]);
      }
      for (int order = 1; order < kCoefficients; ++order) {
        for (int i = kCoefficients - 1; i >= order; --i)
          difference[i] = (difference[i] - difference[i - 1]) / (point[i] - point[i - order]);
      }
      for (int i = kCoefficients - 1; i >= 0; --i) {  // power = power * (t - point[i]) + difference[i]
        for (int j = kCoefficients - 1; j > 0; --j) power[j] = power[j - 1] - point[i] * power[j];
        power[0] = difference[i] - point[i] * power[0];
      }
      for (int j = 0; j < kCoefficients; ++j) coefficient[j][piece] = static_cast<float>(power[j]);
    }
  }
};

/// S(-a), and the derivative of x S(x) at -a. Made before main(): a look at whether they are would cost as
/// much as using them.
template <Activation A, class Lookup>
inline const Lookup kTail([](double a) { return activation_gate<A>(-a); });
template <Activation A, class Lookup>
inline const Lookup kTailSlope([](double a) { return activate_slope_scalar<A>(-a); });

}  // namespace heed::cpu
#endif

#include <heed/kernels/cpu/simd/simd.h>  // after what every target needs: it includes the whole file again

#if defined(HEED_KERNELS_CPU_ACTIVATION_SIMD_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_CPU_ACTIVATION_SIMD_H_
#undef HEED_KERNELS_CPU_ACTIVATION_SIMD_H_
#else
#define HEED_KERNELS_CPU_ACTIVATION_SIMD_H_
#endif

#include <heed/kernels/cpu/simd/math-inl.h>

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

/// Calls f.operator()<A>() for the A that `activation` is.
template <class F>
HWY_INLINE void with_activation(Activation activation, F&& f) {
  switch (activation) {
    case Activation::none:
      return f.template operator()<Activation::none>();
    case Activation::relu:
      return f.template operator()<Activation::relu>();
    case Activation::gelu:
      return f.template operator()<Activation::gelu>();
    case Activation::gelu_tanh:
      return f.template operator()<Activation::gelu_tanh>();
    case Activation::silu:
      return f.template operator()<Activation::silu>();
  }
}

/// m 2^n.
template <class D>
struct Scaled {
  Vec<D> m;
  Exponent<D> n;
};

/// From here on outwards S(-|x|) |x| is below the least subnormal number.
template <Activation A>
constexpr float kTailEnd = A == Activation::gelu        ? 14.6f
                           : A == Activation::gelu_tanh ? 11.0f
                                                        : 110.0f;

/// v e^(-a²/2) for 0 <= a <= 14.6. Rounding the square would cost 60 ulp at the far end, so it is taken in
/// two parts, of which the larger is exact.
template <class D>
HWY_INLINE Scaled<D> times_exp_half_square(D d, Vec<D> v, Vec<D> a) {
  const hn::RebindToUnsigned<D> du;
  const auto upper = hn::BitCast(d, hn::And(hn::BitCast(du, a), hn::Set(du, 0xfffff000u)));
  const auto minus_half = hn::Set(d, -0.5f);
  const auto rest = hn::Mul(hn::Mul(hn::Sub(a, upper), hn::Add(a, upper)), minus_half);
  Scaled<D> e;
  const auto r = exp_reduce(d, hn::Mul(hn::Mul(upper, upper), minus_half), e.n);
  e.m = hn::MulAdd(v, expm1_reduced(d, hn::Add(r, rest)), v);
  return e;
}

/// -x (linear + cubic x²), whose rounding to float would cost the exponential 60 ulp.
template <class D64>
HWY_INLINE Vec<D64> gelu_tanh_exponent(D64 d, Vec<D64> a) {
  const auto factor = hn::MulAdd(hn::Mul(a, a), hn::Set(d, -kGeluTanhCubic), hn::Set(d, -kGeluTanhLinear));
  return hn::Mul(a, factor);
}

/// e^-z for the z of silu or gelu_tanh, 0 <= a <= kTailEnd.
template <Activation A, class D>
HWY_INLINE Scaled<D> exp_minus(D d, Vec<D> a) {
  Scaled<D> e;
  Vec<D> r;
  if constexpr (A == Activation::silu) {
    r = exp_reduce(d, hn::Neg(a), e.n);
  } else {
    const hn::Repartition<double, D> d64;
    auto lower = gelu_tanh_exponent(d64, lower_doubles(d, a));
    auto upper = gelu_tanh_exponent(d64, upper_doubles(d, a));
    const auto z = floats(d, lower, upper);
    const auto whole = nearest(d, hn::Mul(z, hn::Set(d, 1.44269504088896341f)), e.n);
    const auto ln2 = hn::Set(d64, 0.69314718055994530942);
    lower = hn::NegMulAdd(lower_doubles(d, whole), ln2, lower);
    upper = hn::NegMulAdd(upper_doubles(d, whole), ln2, upper);
    r = floats(d, lower, upper);
  }
  e.m = hn::Add(expm1_reduced(d, r), hn::Set(d, 1.0f));
  return e;
}

/// The tail of the normal distribution over e^(-a²/2): 1 / (a + 2.5) times a polynomial in a / (a + 2.5),
/// minimax on 0 … 14.6 with relative error 1.5e-8, about the middle, where no cancellation amplifies
/// rounding.
template <class D>
HWY_INLINE Vec<D> mills_ratio(D d, Vec<D> a) {
  const float c[] = {0.762908459f,  -0.932260394f, 0.508109391f, 0.136692375f,   -0.237528592f,
                     -0.103672788f, 0.116119213f,  0.116079576f, -0.0343036167f, -0.080568783f};
  const auto t = hn::Div(hn::Set(d, 1.0f), hn::Add(a, hn::Set(d, 2.5f)));
  return hn::Mul(t, polynomial(d, hn::MulSub(a, t, hn::Set(d, 0.4375f)), c));
}

/// S(-a) for 0 <= a <= kTailEnd.
template <Activation A, class D>
HWY_INLINE Scaled<D> tail(D d, Vec<D> a) {
  if constexpr (A == Activation::gelu) {
    return times_exp_half_square(d, mills_ratio(d, a), a);
  } else {
    auto e = exp_minus<A>(d, a);
    e.m = hn::Div(e.m, hn::Add(hn::Set(d, 1.0f), scale(d, e.m, e.n)));
    return e;
  }
}

/// S(-a) - a S'(a), the derivative of x S(x) at -a; one minus it is the derivative at a.
template <Activation A, class D>
HWY_INLINE Vec<D> tail_slope(D d, Vec<D> a) {
  if constexpr (A == Activation::gelu) {
    const auto slope = hn::NegMulAdd(a, hn::Set(d, 0.398942280401432678f), mills_ratio(d, a));
    const auto e = times_exp_half_square(d, slope, a);
    return scale(d, e.m, e.n);
  } else {
    const auto one = hn::Set(d, 1.0f);
    const auto e = exp_minus<A>(d, a);
    const auto complement = hn::Div(one, hn::Add(one, scale(d, e.m, e.n)));
    auto slope = hn::Mul(a, complement);
    if constexpr (A == Activation::gelu_tanh) {
      slope = hn::Mul(slope, hn::MulAdd(hn::Mul(a, a), hn::Set(d, static_cast<float>(3 * kGeluTanhCubic)),
                                        hn::Set(d, static_cast<float>(kGeluTanhLinear))));
    }
    return scale(d, hn::Mul(hn::Mul(e.m, complement), hn::Sub(one, slope)), e.n);
  }
}

/// Whether the tails of A are looked up where all lanes allow it: a vector must hold a coefficient of every
/// piece, for which four lanes are too few, and silu's tail is too long.
template <Activation A, class D>
constexpr bool kLooksUp = hn::MaxLanes(D()) >= 8 && std::is_same_v<hn::TFromD<D>, float> &&
                          (A == Activation::gelu || A == Activation::gelu_tanh);
template <class D>
using Lookup = LookupPolynomials<hn::MaxLanes(D())>;

template <class D>
HWY_INLINE Vec<D> look_up(D d, const Lookup<D>& f, Vec<D> a) {
  const hn::RebindToSigned<D> di;
  // Added to 1.5 2^23 steps, a is rounded to whole ones, whose number stands in the last bits. A look-up
  // takes no others, so that they need not be cut off, as IndicesFromVec would have it.
  const auto large = hn::Set(d, static_cast<float>(12582912 * f.kStep));
  const auto rounded = hn::Add(a, large);
  const decltype(hn::IndicesFromVec(d, hn::Zero(di))) indices{hn::BitCast(di, rounded).raw};
  const auto t = hn::Sub(a, hn::Sub(rounded, large));
  auto sum = hn::TableLookupLanes(hn::Load(d, f.coefficient[f.kCoefficients - 1]), indices);
  for (int i = f.kCoefficients - 2; i >= 0; --i)
    sum = hn::MulAdd(sum, t, hn::TableLookupLanes(hn::Load(d, f.coefficient[i]), indices));
  return sum;
}

/// f(x) for every x; -0 at minus infinity.
template <Activation A, class D>
HWY_INLINE Vec<D> activate_far(D d, Vec<D> x) {
  const auto a = hn::Min(hn::Set(d, kTailEnd<A>), hn::Abs(x));  // NaN where x is
  const auto t = tail<A>(d, a);
  const auto lost = scale(d, hn::Mul(hn::CopySign(a, x), t.m), t.n);
  return hn::IfThenElse(hn::Gt(x, hn::Zero(d)), hn::Sub(x, lost), lost);
}

/// f(x). A lane's result does not depend on the other lanes.
template <Activation A, class D>
HWY_INLINE Vec<D> activate(D d, Vec<D> x) {
  if constexpr (A == Activation::none) {
    return x;
  } else if constexpr (A == Activation::relu) {
    return hn::IfThenZeroElse(hn::Lt(x, hn::Zero(d)), x);
  } else if constexpr (std::is_same_v<hn::TFromD<D>, double>) {
    return map_lanes(d, x, activate_scalar<A>);
  } else {
    const auto magnitude = hn::Abs(x);
    if constexpr (kLooksUp<A, D>) {
      const auto near = hn::Lt(magnitude, hn::Set(d, Lookup<D>::kEnd));  // not where x is NaN
      const auto tail = look_up(d, kTail<A, Lookup<D>>, magnitude);
      const auto y = hn::NegMulAdd(magnitude, tail, hn::Max(x, hn::Zero(d)));
      return HWY_LIKELY(hn::AllTrue(d, near)) ? y : hn::IfThenElse(near, y, activate_far<A>(d, x));
    } else {
      return activate_far<A>(d, x);
    }
  }
}

/// The derivative of f at -magnitude, 0 or more.
template <Activation A, class D>
HWY_INLINE Vec<D> slope_at(D d, Vec<D> magnitude) {
  const auto end = hn::Set(d, kTailEnd<A>);
  if constexpr (kLooksUp<A, D>) {
    const auto near = hn::Lt(magnitude, hn::Set(d, Lookup<D>::kEnd));  // not where it is NaN
    const auto slope = look_up(d, kTailSlope<A, Lookup<D>>, magnitude);
    return HWY_LIKELY(hn::AllTrue(d, near))
               ? slope
               : hn::IfThenElse(near, slope, tail_slope<A>(d, hn::Min(end, magnitude)));
  } else {
    return tail_slope<A>(d, hn::Min(end, magnitude));
  }
}

/// f'(x) gy.
template <Activation A, class D>
HWY_INLINE Vec<D> activate_backward(D d, Vec<D> x, Vec<D> gy) {
  if constexpr (A == Activation::none) {
    return gy;
  } else if constexpr (A == Activation::relu) {
    return hn::IfThenZeroElse(hn::Le(x, hn::Zero(d)), gy);
  } else if constexpr (std::is_same_v<hn::TFromD<D>, double>) {
    return hn::Mul(gy, map_lanes(d, x, activate_slope_scalar<A>));
  } else {
    const auto slope = slope_at<A>(d, hn::Abs(x)), one = hn::Set(d, 1.0f);
    return hn::Mul(gy, hn::IfThenElse(hn::Gt(x, hn::Zero(d)), hn::Sub(one, slope), slope));
  }
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
