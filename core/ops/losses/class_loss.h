// The loss of log probabilities against class ids, for NLL and cross-entropy. Private to core: not installed.
#pragma once

#include <heed/core/autograd/autograd.h>
#include <heed/core/losses.h>
#include <heed/kernels/wrong_index.h>

namespace heed {

/// The shape, dtype and device of class ids for the rows of x.
void check_targets(const char* operation, const Tensor& x, const Tensor& targets);
/// ConfigError if it is not in [0, 1).
void check_smoothing(const char* operation, double label_smoothing);
/// The same of class ids and of the classes' weights.
void check_classes(const char* operation, const Tensor& x, const Tensor& targets, const Tensor& weight);

/// Where targets count, and x with 0 in the other rows.
Tensor counted_targets(const Tensor& targets, int64_t ignore);
Tensor counted_rows(const Tensor& x, const Tensor& counted);

/// The loss of log probabilities of accumulator dtype, recorded.
Tensor class_loss(kernels::IndexUse use, const char* operation, const Tensor& log_probabilities,
                  const Tensor& targets, const Tensor& counted, const Tensor& weight, double label_smoothing,
                  Reduction reduction);

/// A warning or DataError where `counted` says that no target counts. Not looked at on a device unless that
/// is asked for: it would wait for the kernel.
void check_counted(const char* operation, const Tensor& counted, const Tensor& targets,
                   const CrossEntropyOptions& options);

/// Gives an input the gradient that the forward made, times the loss's own. That is 1 where the backward
/// starts, and there is nothing to scale. Only the device knows that of its own: it looks, and scales in
/// place, which it may do once.
void scale_gradient(const Tensor& gradient, const GradIn& gy, GradOut& gx, int input);

}  // namespace heed
