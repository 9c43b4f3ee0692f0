// Fused operations from simple ones: for devices and dtypes that have no kernel for them, under
// NoFusedKernels, and for the tests of the kernels. Operands are checked. Private to core: not installed.
#pragma once

#include <heed/core/ops.h>
#include <heed/kernels/norm.h>

namespace heed::composed {

Tensor activation(const Tensor& x, Activation which);
/// Over the last axis; its logarithm if `log`.
Tensor softmax(const Tensor& x, bool log);
Tensor norm(NormKind kind, const Tensor& x, const Tensor& weight, const Tensor& bias, double eps);
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, const LinearOptions& options);
Tensor rotary(const Tensor& x, const Tensor& positions, const Tensor& table, const RotaryOptions& options);
Tensor embedding(const Tensor& ids, const Tensor& weight, const EmbeddingOptions& options);

}  // namespace heed::composed
