// Drawing from distributions: the same draws on every device, by the one generator of heed. What is drawn is
// on the device of the distributions, but the host waits for it. No gradients.
#pragma once

#include <cstdint>

#include <heed/core/generator.h>
#include <heed/core/tensor.h>

namespace heed {

struct MultinomialOptions {
  bool replacement = false;        // whether the same number may be drawn again
  Generator* generator = nullptr;  // null: default_generator(); one offset of it is used
};
/// `count` numbers from each row of weights [.., n], which need not add up to 1: i64 [.., count].
/// NumericError where a row has a weight that is negative or not finite, or fewer weights above 0 than
/// numbers to draw.
[[nodiscard]] Tensor multinomial(const Tensor& weights, int64_t count,
                                 const MultinomialOptions& options = {});

struct SampleOptions {
  double temperature = 1;  // logits are divided by it; above 0
  int64_t top_k = 0;       // from the k most probable alone (arXiv 1805.04833); 0: from all
  double top_p = 1;        // from the fewest most probable that make up p of what is left (arXiv 1904.09751)
  double min_p = 0;  // from those at least so probable as this part of the most probable (arXiv 2407.01082)
  Generator* generator = nullptr;  // null: default_generator(); one offset of it is used
};
/// A class from each row of logits [.., classes]: i64 [..]. NumericError where a row has a logit of NaN or
/// +infinity, or only -infinity.
[[nodiscard]] Tensor sample(const Tensor& logits, const SampleOptions& options = {});

}  // namespace heed
