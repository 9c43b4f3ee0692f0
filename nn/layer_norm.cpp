#include <heed/nn/layer_norm.h>
#include <heed/nn/parameter.h>

namespace heed::nn {

LayerNorm::LayerNorm(int64_t size, double eps) : eps(eps) {
  HEED_CHECK(size > 0, ConfigError, "LayerNorm: size must be positive, got ", size);
  HEED_CHECK(eps > 0, ConfigError, "LayerNorm: eps must be positive, got ", eps);
  weight = make_parameter({size}, [](const Tensor& x) { x.fill_(1); });
  bias = make_parameter({size}, [](const Tensor& x) { x.zero_(); });
}

Tensor LayerNorm::operator()(const Tensor& x) const { return layer_norm(x, weight, bias, eps); }

ResidualNorm LayerNorm::operator()(const Tensor& residual, const Tensor& x,
                                   const DropoutOptions& dropout) const {
  return residual_layer_norm(residual, x, weight, bias, dropout, eps);
}

void LayerNorm::visit(Visitor& v) {
  v("weight", weight);
  v("bias", bias);
}

std::string LayerNorm::describe() const { return concat("LayerNorm(", weight.size(0), ", eps ", eps, ")"); }

}  // namespace heed::nn
