// Activation functions on the device. All but relu are x S(x) with S rising from 0 to 1.
#pragma once

#include <heed/kernels/activation.h>
#include <heed/kernels/cuda/vector.cuh>

namespace heed::cuda {

__device__ __forceinline__ float logistic(float x) {
  return simt::rcp_approx(1.0f + simt::exp2_approx(-kLog2OfE * x));
}

/// What lies between x and the argument of gelu_tanh's S: 2 sqrt(2 / pi) (x + 0.044715 x³).
inline constexpr float kGeluTanhLinear = 1.5957691216f, kGeluTanhCubic = 0.0713548163f;

/// What gelu and its slope are made of: distance = |x| or where all has long been 0, density = exp(-x² / 2)
/// and ratio = Φ(-|x|) / density, Φ being the distribution of normal numbers.
struct NormalTail {
  float distance, density, ratio;

  __device__ __forceinline__ explicit NormalTail(float x) : distance(fminf(fabsf(x), 15.0f)) {
    density = simt::exp2_approx(-0.5f * kLog2OfE * distance * distance);
    // The polynomial in 1 / (1 + 0.255 |x|) of the least relative error, 3e-7.
    const float t = simt::rcp_approx(1.0f + 0.255f * distance);
    ratio = -0.08585325f;
    ratio = ratio * t + 0.29908267f;
    ratio = ratio * t - 0.21180335f;
    ratio = ratio * t + 0.25023991f;
    ratio = ratio * t + 0.032534868f;
    ratio = ratio * t + 0.11569954f;
    ratio = ratio * t + 0.1000101f;
    ratio = ratio * t + 8.9675697e-5f;
  }
};

/// x Φ(x) = max(x, 0) - |x| Φ(-|x|).
__device__ __forceinline__ float gelu(float x) {
  const NormalTail tail(x);
  return (x < 0.0f ? 0.0f : x) - tail.distance * (tail.ratio * tail.density);
}

__device__ __forceinline__ float gelu_slope(float x) {
  const NormalTail tail(x);
  const float below = tail.density * (tail.ratio - 0.3989422804f * tail.distance);  // at -|x|
  return x < 0.0f ? below : x >= 0.0f ? 1.0f - below : x;                           // NaN stays NaN
}

__device__ __forceinline__ float gelu_tanh_argument(float x) {
  return x * (kGeluTanhLinear + kGeluTanhCubic * x * x);
}

/// x S(a(x)) has the slope S + x S (1 - S) a'.
__device__ __forceinline__ float logistic_slope(float x, float argument, float inner) {
  return logistic(argument) + x * (logistic(argument) * logistic(-argument)) * inner;
}

/// Where S has long been 0, x is taken as this, since x S would be NaN at minus infinity.
inline constexpr float kFarFromZero = 1e3f;

/// v = f(v). NaN stays NaN; at minus infinity all but the identity are 0.
template <int kWidth>
__device__ __forceinline__ void activate(Activation f, float (&v)[kWidth]) {
  const auto each = [&](auto function) {
#pragma unroll
    for (int j = 0; j < kWidth; ++j) v[j] = function(v[j]);
  };
  const auto from_below = [](float x) { return x < -kFarFromZero ? -kFarFromZero : x; };
  switch (f) {
    case Activation::none:
      return;
    case Activation::relu:
      return each([](float x) { return x < 0.0f ? 0.0f : x; });
    case Activation::gelu:
      return each([](float x) { return gelu(x); });
    case Activation::gelu_tanh:
      return each([&](float x) { return from_below(x) * logistic(gelu_tanh_argument(from_below(x))); });
    case Activation::silu:
      return each([&](float x) { return from_below(x) * logistic(from_below(x)); });
  }
}

/// v = f'(v).
template <int kWidth>
__device__ __forceinline__ void activation_slope(Activation f, float (&v)[kWidth]) {
  const auto each = [&](auto function) {
#pragma unroll
    for (int j = 0; j < kWidth; ++j) v[j] = function(v[j]);
  };
  const auto near = [](float x) {
    return x < -kFarFromZero ? -kFarFromZero : x > kFarFromZero ? kFarFromZero : x;
  };
  switch (f) {
    case Activation::none:
      return each([](float) { return 1.0f; });
    case Activation::relu:
      return each([](float x) { return x <= 0.0f ? 0.0f : 1.0f; });
    case Activation::gelu:
      return each([](float x) { return gelu_slope(x); });
    case Activation::gelu_tanh:
      return each([&](float far) {
        const float x = near(far), inner = kGeluTanhLinear + 3.0f * kGeluTanhCubic * x * x;
        return logistic_slope(x, gelu_tanh_argument(x), inner);
      });
    case Activation::silu:
      return each([&](float v) { return logistic_slope(near(v), near(v), 1.0f); });
  }
}

}  // namespace heed::cuda
