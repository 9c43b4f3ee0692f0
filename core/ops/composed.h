// Fused operations from simple ones: for devices and dtypes that have no kernel for them, under
// NoFusedKernels, and for the tests of the kernels. Operands are checked. Private to core: not installed.
#pragma once

#include <heed/core/ops.h>

namespace heed::composed {

Tensor activation(const Tensor& x, Activation which);
/// Over the last axis; its logarithm if `log`.
Tensor softmax(const Tensor& x, bool log);
Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps);
Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps);
ResidualNorm residual_layer_norm(const Tensor& residual, const Tensor& x, const Tensor& weight,
                                 const Tensor& bias, const DropoutOptions& options, double eps);
ResidualNorm residual_rms_norm(const Tensor& residual, const Tensor& x, const Tensor& weight,
                               const DropoutOptions& options, double eps);
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, const LinearOptions& options);
Tensor rotary(const Tensor& x, const Tensor& positions, const Tensor& table, const RotaryOptions& options);
Tensor embedding(const Tensor& ids, const Tensor& weight, const EmbeddingOptions& options);

}  // namespace heed::composed
