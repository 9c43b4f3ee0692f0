// Optimizer steps, and the norm that clipping needs. Contract for both devices.
#pragma once

#include <cstdint>
#include <span>

#include <heed/core/base/cost.h>
#include <heed/core/base/dtype.h>
#include <heed/kernels/declare.h>

namespace heed::kernels {

/// The gradient of one parameter.
template <class A>
struct GradientPart {
  const A* g;  // [count]
  int64_t count;
};

/// One parameter of a step.
template <class T>
struct StepPart {
  const accumulator_t<T>* g;  // [count]
  int64_t count;
  T* value;       // [count]
  int64_t state;  // where in the arenas of masters and moments it lies, in elements
  int64_t index;  // which of `steps` is its own
};

/// In the host's memory, until the call returns.
template <class Part>
using Parts = std::span<const Part>;

template <class Part>
int64_t elements_of(Parts<Part> parts) {
  int64_t elements = 0;
  for (const Part& part : parts) elements += part.count;
  return elements;
}

/// √Σ g² over all parts, in double, summed in an order that depends on their sizes alone.
template <class A>
struct GradientNorm {
  Parts<GradientPart<A>> gradients;
  double* norm;  // [1]

  Cost cost() const { return bytes_moved<A>(elements_of(gradients)); }
};

/// What changes from step to step lies in the memory of the device, so that a captured step can be repeated:
/// the rate, which the host writes before a step,
struct SetLr {
  double* lr;  // [1]
  double value;
};

/// and the numbers of steps, of the optimizer and of each parameter that is stepped, which move on unless the
/// norm is not finite.
struct AdvanceSteps {
  int64_t* step;                     // [1]
  int64_t* steps;                    // of all parameters
  std::span<const int64_t> stepped;  // which of them; in the host's memory, until the call returns
  const double* gradient_norm;       // [1] or null: not measured
};

/// What all optimizers share: parameters with one rate. A is float or double; T is A, or bfloat16 with A =
/// float and `master` the values that the step works on.
template <class T>
struct StepSlice {
  using A = accumulator_t<T>;
  Parts<StepPart<T>> parts;
  A* master;             // arena; null: value itself is stepped
  bool written;          // values may have been written to: one that its master does not round to replaces it
  const int64_t* steps;  // of all parameters: the step under way of each, counted from 1
  const double* lr;      // [1]
  double lr_factor;      // of these parameters
  double weight_decay;
  const double* gradient_norm;  // [1], of the whole gradient. Not finite: nothing is done. Null: unknown
  double clip;  // gradients are scaled by min(1, clip / (norm + 1e-6)); 0 or no norm: they are not

  int64_t count() const { return elements_of(parts); }
  Cost cost() const {
    return bytes_moved<T>((master ? 1 : 2) * count()) + bytes_moved<A>((master ? 3 : 1) * count());
  }
};

/// Adam (Kingma and Ba, arXiv 1412.6980); decoupled: AdamW (Loshchilov and Hutter, arXiv 1711.05101).
/// value -= lr * root / (1 - beta1^step) * m / (sqrt(v) + root * eps) with root = sqrt(1 - beta2^step):
/// what PyTorch computes, with one division an element less.
template <class T>
struct AdamStep {
  StepSlice<T> slice;
  accumulator_t<T>* m;  // arena
  accumulator_t<T>* v;  // arena
  double beta1, beta2, eps;
  bool decoupled;  // weight decay acts on the value, not on the gradient

  Cost cost() const { return slice.cost() + bytes_moved<accumulator_t<T>>(4 * slice.count()); }
};

/// Stochastic gradient descent: b = momentum * b + (1 - dampening) * g; value -= lr * (nesterov ? g +
/// momentum * b : b).
template <class T>
struct SgdStep {
  StepSlice<T> slice;
  accumulator_t<T>* momentum_buffer;  // arena; null if momentum is 0
  double momentum, dampening;
  bool nesterov;  // in a parameter's first step the buffer is set to g

  Cost cost() const {
    return slice.cost() + bytes_moved<accumulator_t<T>>((momentum_buffer ? 2 : 0) * slice.count());
  }
};

/// Lion (Chen et al., arXiv 2302.06675): value -= lr * sign(beta1 * m + (1 - beta1) * g), where the sign of
/// 0 is 0, then m = beta2 * m + (1 - beta2) * g. Weight decay is decoupled.
template <class T>
struct LionStep {
  StepSlice<T> slice;
  accumulator_t<T>* m;  // arena
  double beta1, beta2;

  Cost cost() const { return slice.cost() + bytes_moved<accumulator_t<T>>(2 * slice.count()); }
};

}  // namespace heed::kernels

HEED_KERNEL(gradient_norm, GradientNorm);
HEED_KERNEL_0(set_lr, SetLr);
HEED_KERNEL_0(advance_steps, AdvanceSteps);
HEED_KERNEL(adam_step, AdamStep);
HEED_KERNEL(sgd_step, SgdStep);
HEED_KERNEL(lion_step, LionStep);
