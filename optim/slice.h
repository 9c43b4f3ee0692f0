// From parameters with one rate to what the step kernels take. Private to optim: not installed.
#pragma once

#include <heed/core/runtime/dispatch.h>
#include <heed/kernels/optimizer.h>
#include <heed/optim/optimizer.h>

namespace heed::optim {

/// Of values of type T. Keeps what the kernels' arguments point at.
template <class T>
class KernelSlice {
 public:
  using A = accumulator_t<T>;

  KernelSlice(const Optimizer::Slice& slice, const Parameters& parameters) : slice_(slice) {
    parts_.reserve(slice.entries.size());
    for (const Optimizer::Slice::Entry& entry : slice.entries) {
      const Tensor& value = parameters[entry.index].tensor;
      parts_.push_back({.g = parameters.gradient(entry.index).template data<A>(),
                        .count = value.numel(),
                        .value = value.data<T>(),
                        .state = entry.offset,
                        .index = entry.index});
    }
  }

  kernels::StepSlice<T> args() const {
    const Tensor& masters = slice_.state->masters;
    return {.parts = parts_,
            .master = masters.defined() ? masters.data<A>() : nullptr,
            .written = slice_.written,
            .steps = slice_.steps,
            .lr = slice_.lr,
            .lr_factor = slice_.lr_factor,
            .weight_decay = slice_.weight_decay,
            .gradient_norm = slice_.norm,
            .clip = slice_.clip};
  }

  A* arena(size_t role) const { return slice_.state->arenas[role].template data<A>(); }

 private:
  const Optimizer::Slice& slice_;
  PooledVector<kernels::StepPart<T>> parts_;
};

struct AdamNumbers {
  double beta1, beta2, eps;
  bool decoupled;  // weight decay
};

/// Adam's step of parameters whose roles are m and v.
template <class T>
void step_by_adam(const Optimizer::Slice& slice, const Parameters& parameters, const AdamNumbers& numbers) {
  const KernelSlice<T> kernel(slice, parameters);
  HEED_DISPATCH(parameters.device(), adam_step,
                kernels::AdamStep<T>{.slice = kernel.args(),
                                     .m = kernel.arena(0),
                                     .v = kernel.arena(1),
                                     .beta1 = numbers.beta1,
                                     .beta2 = numbers.beta2,
                                     .eps = numbers.eps,
                                     .decoupled = numbers.decoupled});
}

}  // namespace heed::optim
