// What the kernels of optimizers take of gradients. Private: not installed.
#pragma once

#include <heed/core/parameters.h>
#include <heed/kernels/optimizer.h>

namespace heed {

/// Of the parameters with these numbers, which have gradients of type A.
template <class A>
PooledVector<kernels::GradientPart<A>> gradient_parts(const Parameters& parameters,
                                                      const PooledVector<int64_t>& which) {
  PooledVector<kernels::GradientPart<A>> result;
  result.reserve(which.size());
  for (const int64_t i : which) {
    const Tensor& gradient = parameters.gradient(i);
    result.push_back({gradient.data<A>(), gradient.numel(), parameters.offset(i)});
  }
  return result;
}

}  // namespace heed
