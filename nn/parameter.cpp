#include <heed/core/creation.h>
#include <heed/nn/parameter.h>

namespace heed::nn {

Tensor make_parameter(const Shape& shape, const std::function<void(const Tensor&)>& fill) {
  if (!parameters_have_values())
    return scalar(0, {Unfilled::active().value_or(DType::f32), kCpu}).expand(shape).set_requires_grad();
  const Tensor parameter = empty(shape);
  fill(parameter);
  return parameter.set_requires_grad();
}

}  // namespace heed::nn
