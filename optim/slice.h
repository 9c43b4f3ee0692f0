// From a slice of the arenas to what the step kernels take. Private to optim: not installed.
#pragma once

#include <heed/core/parameters.h>
#include <heed/kernels/optimizer.h>

namespace heed::optim {

/// Elements [begin, end) of the arenas, for values of type T.
template <class T>
kernels::StepSlice<T> step_slice_of(const Parameters& parameters, const Tensor& masters, int64_t begin,
                                    int64_t end, const double* rate, double rate_factor, double weight_decay,
                                    const double* norm, double clip) {
  using A = accumulator_t<T>;
  return {.value = parameters.values().data<T>() + begin,
          .master = masters.defined() ? masters.data<A>() + begin : nullptr,
          .gradient = parameters.gradients().data<A>() + begin,
          .count = end - begin,
          .rate = rate,
          .rate_factor = rate_factor,
          .weight_decay = weight_decay,
          .gradient_norm = norm,
          .clip = clip};
}

}  // namespace heed::optim
