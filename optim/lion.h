// Lion.
#pragma once

#include <heed/optim/optimizer.h>

namespace heed::optim {

struct LionOptions {
  double lr = 1e-4;  // a third to a tenth of Adam's, with a decay that much larger
  double beta1 = 0.9;
  double beta2 = 0.99;
  double weight_decay = 0;         // of the default group
  std::vector<Group> groups = {};  // tried before the default group, which takes the rest
};

/// Lion (Chen et al., "Symbolic Discovery of Optimization Algorithms", arXiv 2302.06675, algorithm 2):
/// value -= lr * (sign(beta1 * m + (1 - beta1) * g) + decay * value), then m = beta2 * m + (1 - beta2) * g.
/// Half of Adam's memory: one moment, "m".
class Lion : public Optimizer {
 public:
  /// ConfigError for a rate, beta or decay out of range.
  explicit Lion(Parameters parameters, const LionOptions& options = {});

 private:
  void step_slice(const Slice& slice) override;

  LionOptions options_;
};

}  // namespace heed::optim
