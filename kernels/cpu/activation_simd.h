// Activation functions and their derivatives on vectors; included like simd.h.
#include <heed/kernels/activation.h>
#include <heed/kernels/cpu/simd.h>

#if defined(HEED_KERNELS_CPU_ACTIVATION_SIMD_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_CPU_ACTIVATION_SIMD_H_
#undef HEED_KERNELS_CPU_ACTIVATION_SIMD_H_
#else
#define HEED_KERNELS_CPU_ACTIVATION_SIMD_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

/// 2 sqrt(2 / pi) (x + 0.044715 x³): gelu_tanh(x) is x times the sigmoid of it.
template <class D>
HWY_INLINE Vec<D> gelu_tanh_argument(D d, Vec<D> x) {
  using T = hn::TFromD<D>;
  const auto cubic = hn::MulAdd(hn::Mul(x, x), hn::Set(d, T(0.044715)), hn::Set(d, T(1)));
  return hn::Mul(hn::Mul(x, hn::Set(d, T(1.5957691216057308))), cubic);
}

/// The sigmoid of x and, without cancellation, one minus it.
template <class D>
HWY_INLINE Vec<D> sigmoid(D d, Vec<D> x, Vec<D>& complement) {
  using T = hn::TFromD<D>;
  const auto e =
      exp_fast(d, hn::Min(hn::Set(d, T(80)), hn::Neg(x)));  // finite, so that e * s is never inf * 0
  const auto s = hn::Div(hn::Set(d, T(1)), hn::Add(e, hn::Set(d, T(1))));
  complement = hn::Mul(e, s);
  return s;
}

/// f(x).
template <Activation A, class D>
HWY_INLINE Vec<D> activate(D d, Vec<D> x) {
  using T = hn::TFromD<D>;
  if constexpr (A == Activation::relu) {
    return hn::IfThenZeroElse(hn::Lt(x, hn::Zero(d)), x);
  } else if constexpr (A == Activation::gelu) {
    const auto half = hn::Mul(x, hn::Set(d, T(0.5)));
    return hn::MulAdd(half, erf(d, hn::Mul(x, hn::Set(d, T(0.70710678118654752)))), half);
  } else if constexpr (A == Activation::gelu_tanh) {
    return hn::Mul(x, sigmoid(d, gelu_tanh_argument(d, x)));
  } else if constexpr (A == Activation::silu) {
    return hn::Mul(x, sigmoid(d, x));
  } else {
    return x;
  }
}

/// f'(x) gy.
template <Activation A, class D>
HWY_INLINE Vec<D> activate_backward(D d, Vec<D> x, Vec<D> gy) {
  using T = hn::TFromD<D>;
  if constexpr (A == Activation::relu) {
    return hn::IfThenZeroElse(hn::Le(x, hn::Zero(d)), gy);
  } else if constexpr (A == Activation::gelu) {
    const auto half = hn::Set(d, T(0.5));
    const auto cdf = hn::MulAdd(half, erf(d, hn::Mul(x, hn::Set(d, T(0.70710678118654752)))), half);
    const auto bell = exp_fast(d, hn::Mul(hn::Mul(x, x), hn::Set(d, T(-0.5))));
    return hn::Mul(gy, hn::MulAdd(hn::Mul(x, bell), hn::Set(d, T(0.39894228040143268)), cdf));
  } else if constexpr (A == Activation::gelu_tanh) {
    Vec<D> complement;
    const auto s = sigmoid(d, gelu_tanh_argument(d, x), complement);
    const auto slope = hn::MulAdd(hn::Mul(x, x), hn::Set(d, T(3 * 0.044715 * 1.5957691216057308)),
                                  hn::Set(d, T(1.5957691216057308)));
    const auto curve = hn::Mul(hn::Mul(x, complement), slope);
    return hn::Mul(gy, hn::MulAdd(s, curve, s));
  } else if constexpr (A == Activation::silu) {
    Vec<D> complement;
    const auto s = sigmoid(d, x, complement);
    return hn::Mul(gy, hn::Mul(s, hn::MulAdd(x, complement, hn::Set(d, T(1)))));
  } else {
    return gy;
  }
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
