// Normalisation of the last axis: layer norm and RMS norm.
#pragma once

#include <heed/core/ops.h>
#include <heed/kernels/norm.h>
#include <heed/nn/module.h>

namespace heed::nn {

using heed::NormKind;

/// "layer" or "rms"; ConfigError on anything else.
NormKind parse_norm_kind(const std::string& name);
const char* name(NormKind kind);

/// The norm of a kind, with its weight and, for a layer norm, bias. ConfigError unless size and eps are
/// positive.
class Norm : public Module {
 public:
  Norm(NormKind kind, int64_t size, double eps);

  Tensor operator()(const Tensor& x) const;
  /// The norm of residual + dropout(x).
  Tensor post(const Tensor& residual, const Tensor& x, const DropoutOptions& dropout) const;
  /// The same, and the sum.
  ResidualNorm operator()(const Tensor& residual, const Tensor& x, const DropoutOptions& dropout) const;

  void visit(Visitor& v) override;
  std::string describe() const override;

  NormKind kind;
  Tensor weight, bias;  // [size]; 1 and 0 at first. An RMS norm has no bias
  double eps;
};

}  // namespace heed::nn
