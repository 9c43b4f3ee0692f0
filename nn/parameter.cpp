#include <heed/core/creation.h>
#include <heed/nn/parameter.h>

namespace heed::nn {

Tensor make_parameter(const Shape& shape, const std::function<void(const Tensor&)>& fill) {
  if (ShapesOnly::active()) return scalar(0).expand(shape).set_requires_grad();
  const Tensor parameter = empty(shape);
  if (!Unfilled::active()) fill(parameter);
  return parameter.set_requires_grad();
}

}  // namespace heed::nn
