#include <cmath>

#include <heed/nn/layers/linear.h>
#include <heed/nn/parameter.h>

namespace heed::nn {

Linear::Linear(int64_t in, int64_t out, bool with_bias, Generator& generator) {
  HEED_CHECK(in > 0 && out > 0, ConfigError, "Linear: sizes must be positive, got in = ", in,
             ", out = ", out);
  const double bound = 1 / std::sqrt(static_cast<double>(in));
  const auto draw = [&](const Tensor& x) { uniform_(x, -bound, bound, generator); };
  weight = make_parameter({out, in}, draw);
  if (with_bias) bias = make_parameter({out}, draw);
}

Tensor Linear::operator()(const Tensor& x, const LinearOptions& options) const {
  return linear(x, weight, bias, options);
}

void Linear::visit(Visitor& v) {
  v("weight", weight);
  v("bias", bias);
}

std::string Linear::describe() const {
  return concat("Linear(", weight.size(1), ", ", weight.size(0), bias.defined() ? ")" : ", no bias)");
}

}  // namespace heed::nn
