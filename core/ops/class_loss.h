// The loss of log probabilities against class ids, for NLL and cross-entropy. Private to core: not installed.
#pragma once

#include <heed/core/losses.h>
#include <heed/kernels/wrong_index.h>

namespace heed {

/// Shapes, dtypes and devices of class ids and of the classes' weights.
void check_classes(const char* operation, const Tensor& x, const Tensor& targets, const Tensor& weight);

/// Where targets count, and x with 0 in the other rows.
Tensor counted_targets(const Tensor& targets, int64_t ignore);
Tensor counted_rows(const Tensor& x, const Tensor& counted);

/// The loss of log probabilities of accumulator dtype, recorded.
Tensor class_loss(kernels::IndexUse use, const char* operation, const Tensor& log_probabilities,
                  const Tensor& targets, const Tensor& counted, const Tensor& weight, double label_smoothing,
                  Reduction reduction);

}  // namespace heed
