// Logarithms and exponentials of vectors that keep their digits next to 1; included like math-inl.h.
#if defined(HEED_KERNELS_CPU_NEAR_ONE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_CPU_NEAR_ONE_INL_H_
#undef HEED_KERNELS_CPU_NEAR_ONE_INL_H_
#else
#define HEED_KERNELS_CPU_NEAR_ONE_INL_H_
#endif

#include <limits>

#include <heed/kernels/cpu/simd/math-inl.h>

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

/// log(1 + x) of floats within 4 ulp, for every x. What 1 + x loses of x is made good by x / ((1 + x) - 1).
template <class D>
HWY_INLINE Vec<D> log1p(D d, Vec<D> x) {
  const auto one = hn::Set(d, 1.0f), u = hn::Add(x, one);
  const auto y = hn::Mul(log_everywhere(d, u), hn::Div(x, hn::Sub(u, one)));
  const auto infinity = hn::Set(d, std::numeric_limits<float>::infinity());
  return hn::IfThenElse(hn::Or(hn::Eq(u, one), hn::Eq(x, infinity)), x, y);
}

/// e^x - 1 of floats within 4 ulp, for every x: 2^n (e^r - 1 + (1 - 2^-n)) with x = n ln 2 + r.
template <class D>
HWY_INLINE Vec<D> expm1(D d, Vec<D> x) {
  // Min and Max give their second argument when it is NaN. Below -18 the result is rounded to -1.
  const auto near = hn::Max(hn::Set(d, -18.0f), hn::Min(hn::Set(d, 89.0f), x));
  Exponent<D> n;
  const auto e = expm1_reduced(d, exp_reduce(d, near, n)), one = hn::Set(d, 1.0f);
  const auto y = scale(d, hn::Add(e, hn::Sub(one, scale(d, one, hn::Neg(n)))), n);
  return hn::IfThenElse(hn::Eq(x, hn::Zero(d)), x, y);  // -0
}

/// log(1 + e^x) of floats, for every x.
template <class D>
HWY_INLINE Vec<D> softplus(D d, Vec<D> x) {
  return hn::Add(hn::Max(x, hn::Zero(d)), log1p(d, exp(d, hn::Neg(hn::Abs(x)))));
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
