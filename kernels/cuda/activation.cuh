// Activation functions on the device. All but relu are x S(x) with S rising from 0 to 1.
#pragma once

#include <heed/kernels/activation.h>
#include <heed/kernels/simt/simt.h>

namespace heed::cuda {

__device__ __forceinline__ float logistic(float x) { return 1.0f / (1.0f + expf(-x)); }

/// What lies between x and the argument of gelu_tanh's S: 2 sqrt(2 / pi) (x + 0.044715 x³).
inline constexpr float kGeluTanhLinear = 1.5957691216f, kGeluTanhCubic = 0.0713548163f;

/// S(x) of a function.
__device__ __forceinline__ float activation_gate(Activation f, float x) {
  if (f == Activation::gelu) return 0.5f * erfcf(-0.7071067812f * x);
  if (f == Activation::gelu_tanh) x *= kGeluTanhLinear + kGeluTanhCubic * x * x;
  return logistic(x);
}

/// S'(x).
__device__ __forceinline__ float activation_gate_slope(Activation f, float x) {
  if (f == Activation::gelu) return 0.3989422804f * expf(-0.5f * x * x);
  float inner = 1.0f, argument = x;
  if (f == Activation::gelu_tanh) {
    argument = x * (kGeluTanhLinear + kGeluTanhCubic * x * x);
    inner = kGeluTanhLinear + 3.0f * kGeluTanhCubic * x * x;
  }
  return logistic(argument) * logistic(-argument) * inner;
}

/// v = f(v). NaN stays NaN; at minus infinity all but the identity are 0.
template <int kWidth>
__device__ __forceinline__ void activate(Activation f, float (&v)[kWidth]) {
  if (f == Activation::none) return;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    if (f == Activation::relu) {
      v[j] = v[j] < 0.0f ? 0.0f : v[j];
    } else {
      const float x = v[j] < -1e3f ? -1e3f : v[j];  // S has long been 0 there
      v[j] = x * activation_gate(f, x);
    }
  }
}

/// v = f'(v).
template <int kWidth>
__device__ __forceinline__ void activation_slope(Activation f, float (&v)[kWidth]) {
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    if (f == Activation::none) {
      v[j] = 1.0f;
    } else if (f == Activation::relu) {
      v[j] = v[j] <= 0.0f ? 0.0f : 1.0f;
    } else {
      const float x = v[j] < -1e3f ? -1e3f : v[j] > 1e3f ? 1e3f : v[j];
      v[j] = activation_gate(f, x) + x * activation_gate_slope(f, x);
    }
  }
}

}  // namespace heed::cuda
