#include <heed/nn/sequential.h>

namespace heed::nn {

Sequential& Sequential::add(std::function<Tensor(const Tensor&)> function) {
  HEED_CHECK(function, ConfigError, "Sequential: an empty function");
  steps_.push_back({nullptr, std::move(function)});
  return *this;
}

Tensor Sequential::operator()(const Tensor& x) const {
  Tensor y = x;
  for (const Step& step : steps_) y = step.apply(y);
  return y;
}

void Sequential::visit(Visitor& v) {
  for (size_t i = 0; i < steps_.size(); ++i)
    if (steps_[i].module) v(concat(i), *steps_[i].module);
}

}  // namespace heed::nn
