// All values of a model in a row.
#pragma once

#include <heed/core/autograd/autograd.h>
#include <heed/core/ops.h>
#include <heed/core/parameters.h>

namespace heed::test {

inline Tensor flat_values(const Parameters& parameters) {
  const NoGrad no_grad;
  std::vector<Tensor> values;
  for (const Parameter& parameter : parameters) values.push_back(parameter.tensor.detach().flatten());
  return cat(values, 0);
}

}  // namespace heed::test
