// Losses. Of bf16 they are computed and given in f32, of f32 and f64 in their own dtype; targets have the
// input's shape and dtype unless they are class ids. Gradients reach both sides. ShapeError, DTypeError,
// DeviceError, ConfigError with the operation's name. Names and formulas are PyTorch's, but classes are on
// the last axis.
#pragma once

#include <cstdint>

#include <heed/core/tensor.h>

namespace heed {

/// What becomes of the losses of elements or rows. mean: their mean (of weighted rows, over the sum of
/// weights); of nothing NaN. batch_mean: their sum over the size of axis 0. none: they stay as they are.
enum class Reduction : uint8_t { mean, sum, none, batch_mean };

/// (x - target)²
[[nodiscard]] Tensor mse_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean);
/// |x - target|
[[nodiscard]] Tensor l1_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean);

struct HuberOptions {
  double delta = 1;  // above 0
  Reduction reduction = Reduction::mean;
};
/// With d = |x - target|: d² / 2 up to delta, delta (d - delta / 2) beyond (doi 10.1214/aoms/1177703732).
[[nodiscard]] Tensor huber_loss(const Tensor& x, const Tensor& target, const HuberOptions& options = {});

struct SmoothL1Options {
  double beta = 1;  // 0: l1_loss
  Reduction reduction = Reduction::mean;
};
/// huber_loss of delta = beta, over beta.
[[nodiscard]] Tensor smooth_l1_loss(const Tensor& x, const Tensor& target,
                                    const SmoothL1Options& options = {});

struct BinaryCrossEntropyOptions {
  Tensor weight = {};      // of each element; broadcasts to x
  Tensor pos_weight = {};  // of what the target says yes to; broadcasts to x
  Reduction reduction = Reduction::mean;
};
/// -(pos_weight target log σ(x) + (1 - target) log(1 - σ(x))) with x as logits. Precise for logits of any
/// size.
[[nodiscard]] Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& target,
                                                      const BinaryCrossEntropyOptions& options = {});

struct KlDivergenceOptions {
  bool log_target = false;                // the target holds log probabilities
  Reduction reduction = Reduction::mean;  // batch_mean: the divergence of each distribution
};
/// target (log target - x) with x as log probabilities; 0 where the target is 0.
[[nodiscard]] Tensor kl_divergence(const Tensor& x, const Tensor& target,
                                   const KlDivergenceOptions& options = {});

struct NllOptions {
  Tensor weight = {};     // of each class, [classes], in x's dtype
  int64_t ignore = -100;  // targets that do not count
  Reduction reduction = Reduction::mean;
};
/// -x[.., target] with x as log probabilities [.., classes] and i64 targets [..]. Rows that do not count are
/// not read; where none does, mean is 0. none: [..], with 0 for them.
[[nodiscard]] Tensor nll_loss(const Tensor& x, const Tensor& targets, const NllOptions& options = {});

struct CrossEntropyOptions {
  int64_t ignore = -100;       // targets that do not count
  double label_smoothing = 0;  // in [0, 1)
  Reduction reduction = Reduction::mean;
  bool require_target = false;  // DataError where no target counts
  Tensor weight = {};           // of each class, [classes], in the logits' dtype
};
/// Cross-entropy of logits [.., classes] against i64 targets [..]: f32 (f64 for f64), a scalar, or [..] with
/// 0 for targets that do not count if the reduction is none. mean is over the targets that count, each as its
/// class's weight. All targets ignored: 0 with zero gradients, and (on the CPU) a warning the first time. One
/// fused pass without weights and with a mean or sum; otherwise several.
[[nodiscard]] Tensor cross_entropy(const Tensor& logits, const Tensor& targets,
                                   const CrossEntropyOptions& options = {});

/// The same of logits x weightᵀ, x [.., in] and weight [classes, in]: of many classes at a fraction of the
/// memory and, on a device, of the time, since the logits are made and used up in slices of rows. The
/// gradients of x and weight are made by the forward. Without weights of classes and with a mean or sum;
/// otherwise linear() and cross_entropy(). A slice has `slice` rows; 0: as many as suit the device.
[[nodiscard]] Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& targets,
                                          const CrossEntropyOptions& options = {}, int64_t slice = 0);

}  // namespace heed
