// From parameters with one rate to what the step kernels take. Private to optim: not installed.
#pragma once

#include <heed/core/gradient_parts.h>
#include <heed/optim/optimizer.h>

namespace heed::optim {

/// For values of type T, whose gradients the caller holds.
template <class T>
kernels::StepSlice<T> step_slice_of(const Optimizer::Slice& slice, const Parameters& parameters,
                                    const Tensor& masters,
                                    kernels::GradientParts<accumulator_t<T>> gradients) {
  return {.value = parameters.values().data<T>(),
          .master = masters.defined() ? masters.data<accumulator_t<T>>() : nullptr,
          .gradients = gradients,
          .rate = slice.rate,
          .rate_factor = slice.rate_factor,
          .weight_decay = slice.weight_decay,
          .gradient_norm = slice.norm,
          .clip = slice.clip};
}

}  // namespace heed::optim
