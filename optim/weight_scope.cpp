#include <heed/core/autograd/autograd.h>
#include <heed/optim/weight_scope.h>

namespace heed::optim {

WeightScope::WeightScope(Parameters parameters, const std::vector<Tensor>& values)
    : parameters_(std::move(parameters)) {
  HEED_CHECK(std::ssize(values) == parameters_.size(), ShapeError, "WeightScope: ", values.size(),
             " values for ", parameters_.size(), " parameters");
  for (size_t i = 0; i < values.size(); ++i) {
    const Parameter& parameter = parameters_[static_cast<int64_t>(i)];
    HEED_CHECK(values[i].shape() == parameter.tensor.shape(), ShapeError, "WeightScope: '", parameter.name,
               "' is ", parameter.tensor.shape(), ", its value ", values[i].shape());
  }
  const NoGrad no_grad;
  for (const Parameter& parameter : parameters_) own_.push_back(parameter.tensor.detach().clone());
  for (size_t i = 0; i < values.size(); ++i) parameters_[static_cast<int64_t>(i)].tensor.copy_(values[i]);
}

WeightScope::~WeightScope() {
  const NoGrad no_grad;
  for (size_t i = 0; i < own_.size(); ++i) parameters_[static_cast<int64_t>(i)].tensor.copy_(own_[i]);
}

}  // namespace heed::optim
