#include <heed/nn/layers/norm.h>
#include <heed/nn/parameter.h>

namespace heed::nn {

NormKind parse_norm_kind(const std::string& text) {
  if (text == "layer") return NormKind::layer;
  if (text == "rms") return NormKind::rms;
  throw ConfigError(concat("unknown norm '", text, "'; expected layer or rms"));
}

const char* name(NormKind kind) { return kind == NormKind::layer ? "layer" : "rms"; }

Norm::Norm(NormKind kind, int64_t size, double eps) : kind(kind), eps(eps) {
  const char* type = kind == NormKind::layer ? "LayerNorm" : "RMSNorm";
  HEED_CHECK(size > 0, ConfigError, type, ": size must be positive, got ", size);
  HEED_CHECK(eps > 0, ConfigError, type, ": eps must be positive, got ", eps);
  weight = make_parameter({size}, [](const Tensor& x) { x.fill_(1); });
  if (kind == NormKind::layer) bias = make_parameter({size}, [](const Tensor& x) { x.zero_(); });
}

Tensor Norm::operator()(const Tensor& x) const {
  return kind == NormKind::layer ? layer_norm(x, weight, bias, eps) : rms_norm(x, weight, eps);
}

Tensor Norm::post(const Tensor& residual, const Tensor& x, const DropoutOptions& dropout) const {
  return kind == NormKind::layer ? post_layer_norm(residual, x, weight, bias, dropout, eps)
                                 : post_rms_norm(residual, x, weight, dropout, eps);
}

ResidualNorm Norm::operator()(const Tensor& residual, const Tensor& x, const DropoutOptions& dropout) const {
  return kind == NormKind::layer ? residual_layer_norm(residual, x, weight, bias, dropout, eps)
                                 : residual_rms_norm(residual, x, weight, dropout, eps);
}

void Norm::visit(Visitor& v) {
  v("weight", weight);
  v("bias", bias);
}

std::string Norm::describe() const {
  return concat(kind == NormKind::layer ? "LayerNorm(" : "RMSNorm(", weight.size(0), ", eps ", eps, ")");
}

}  // namespace heed::nn
