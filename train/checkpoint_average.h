// The mean of the weights at the last checkpoints.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <heed/core/parameters.h>
#include <heed/core/tensor.h>

namespace heed::train {

/// Keeps the weights of the last few times that it was told to, on the CPU, and gives their mean (Vaswani et
/// al., arXiv 1706.03762, 6.1): often better than the last weights.
class CheckpointAverage {
 public:
  /// Of `count` times. ConfigError unless it is positive.
  CheckpointAverage(Parameters parameters, int64_t count);

  /// Keeps the present weights, which are those after `step` steps, in place of the oldest.
  void add(int64_t step);

  /// The mean of the present weights, those after `step` steps, and the last kept before, `count` in all; of
  /// fewer where there are not so many. In the gradients' dtype, on the CPU.
  std::vector<Tensor> mean(int64_t step) const;

  /// The kept weights, "0.encoder.…", and "steps", i64 [count]: the steps of each, -1 for none. Views of what
  /// lives; what is written to them is what is kept.
  std::vector<std::pair<std::string, Tensor>> state() const;

 private:
  /// Places of what is kept, from the newest on.
  std::vector<int64_t> newest_first() const;

  Parameters parameters_;
  Tensor steps_;
  std::vector<std::vector<Tensor>> kept_;  // [count][parameters]
};

}  // namespace heed::train
