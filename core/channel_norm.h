// Normalisation of channels: batch norm and group norm. Channels are the second axis: [batch, channels, ..].
#pragma once

#include <cstdint>

#include <heed/core/tensor.h>

namespace heed {

struct BatchNormResult {
  Tensor output;
  Tensor mean, variance;  // [channels], of the batch; f32, or f64 of f64. The variance is that by the count,
                          // not one less
};
/// Each channel of x [batch, channels, ..] to mean 0 and variance 1 over the batch and all places, then times
/// weight plus bias, [channels] or undefined (arXiv 1502.03167). ShapeError, also for channels without a
/// value; ConfigError.
[[nodiscard]] BatchNormResult batch_norm(const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {},
                                         double eps = 1e-5);

/// The same by given statistics [channels], as in evaluation: they are f32, or f64 for x of f64, and get no
/// gradient.
[[nodiscard]] Tensor batch_norm_by(const Tensor& x, const Tensor& mean, const Tensor& variance,
                                   const Tensor& weight = {}, const Tensor& bias = {}, double eps = 1e-5);

/// The channels in `groups` groups, each to mean 0 and variance 1 over its channels and places, one element
/// of the batch at a time; then times weight plus bias, [channels] or undefined (Wu and He, arXiv
/// 1803.08494). ShapeError, ConfigError.
[[nodiscard]] Tensor group_norm(const Tensor& x, int64_t groups, const Tensor& weight = {},
                                const Tensor& bias = {}, double eps = 1e-5);

}  // namespace heed
