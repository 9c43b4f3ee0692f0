// Layer normalisation.
#pragma once

#include <heed/core/ops.h>
#include <heed/nn/module.h>

namespace heed::nn {

/// Normalises the last axis to mean 0 and variance 1, then scales and shifts it (arXiv 1607.06450).
class LayerNorm : public Module {
 public:
  explicit LayerNorm(int64_t size, double eps = 1e-5);

  Tensor operator()(const Tensor& x) const;
  /// The norm of residual + dropout(x), and that sum.
  ResidualNorm operator()(const Tensor& residual, const Tensor& x, const DropoutOptions& dropout) const;

  void visit(Visitor& v) override;
  std::string describe() const override;

  Tensor weight, bias;  // [size]; 1 and 0 at first
  double eps;
};

}  // namespace heed::nn
