// Activation functions and their derivatives. Contract for both devices.
#pragma once

#include <cstdint>

#include <heed/core/base/cost.h>
#include <heed/core/base/dtype.h>
#include <heed/kernels/declare.h>

namespace heed {

/// gelu is exact, x Φ(x) by erf; gelu_tanh its tanh approximation (Hendrycks and Gimpel, arXiv 1606.08415);
/// silu is x σ(x).
enum class Activation : uint8_t { none, relu, gelu, gelu_tanh, silu };

}  // namespace heed

namespace heed::kernels {

template <class T>
struct ActivationForward {  // y = f(x)
  Activation activation;
  const T* x;  // [count]
  T* y;        // [count]; may be x
  int64_t count;

  Cost cost() const { return bytes_moved<T>(2 * count); }
};

template <class T>
struct ActivationBackward {  // gx (+)= f'(x) gy
  Activation activation;
  const T* x;   // [count], what went into the forward
  const T* gy;  // [count]
  T* gx;        // [count]; may be gy unless accumulate
  int64_t count;
  bool accumulate;

  Cost cost() const { return bytes_moved<T>((accumulate ? 4 : 3) * count); }
};

template <class T>
struct GatedForward {  // y = f(gate) * up, element by element; with silu this is SwiGLU
  Activation activation;
  const T* gate;  // [rows, cols], row stride ld
  const T* up;    // [rows, cols], row stride ld
  T* y;           // [rows, cols], contiguous
  int64_t rows, cols, ld;

  Cost cost() const { return bytes_moved<T>(3 * rows * cols); }
};

template <class T>
struct GatedBackward {
  Activation activation;
  const T* gate;  // [rows, cols], row stride ld
  const T* up;    // [rows, cols], row stride ld
  const T* gy;    // [rows, cols], contiguous
  T* ggate;       // [rows, cols], row stride gld; null if not wanted
  T* gup;         // [rows, cols], row stride gld; null if not wanted
  int64_t rows, cols, ld, gld;
  bool accumulate_gate, accumulate_up;

  Cost cost() const {
    const int written = (ggate ? 1 : 0) + (gup ? 1 : 0),
              added = (ggate && accumulate_gate ? 1 : 0) + (gup && accumulate_up ? 1 : 0);
    return bytes_moved<T>((3 + written + added) * rows * cols);
  }
};

}  // namespace heed::kernels

HEED_KERNEL(activation_forward, ActivationForward);
HEED_KERNEL(activation_backward, ActivationBackward);
HEED_KERNEL(gated_forward, GatedForward);
HEED_KERNEL(gated_backward, GatedBackward);
