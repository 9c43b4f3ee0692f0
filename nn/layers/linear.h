// Linear layer.
#pragma once

#include <heed/core/ops.h>
#include <heed/nn/module.h>

namespace heed::nn {

/// y = x weightᵀ + bias, x [.., in] → [.., out]. Weight and bias begin uniform in ±1/√in.
class Linear : public Module {
 public:
  Linear(int64_t in, int64_t out, bool with_bias = true, Generator& generator = default_generator());

  /// With what may follow it fused: activation and dropout.
  Tensor operator()(const Tensor& x, const LinearOptions& options = {}) const;

  void visit(Visitor& v) override;
  std::string describe() const override;

  Tensor weight;  // [out, in]
  Tensor bias;    // [out], or undefined
};

}  // namespace heed::nn
