// Stochastic gradient descent.
#pragma once

#include <heed/optim/optimizer.h>

namespace heed::optim {

struct SgdOptions {
  double lr = 1e-2;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;         // of the default group
  bool nesterov = false;           // needs momentum and no dampening
  std::vector<Group> groups = {};  // tried before the default group, which takes the rest
};

/// value -= lr * gradient, with momentum if asked. Agrees with PyTorch step by step.
class Sgd : public Optimizer {
 public:
  /// ConfigError for a value out of range.
  explicit Sgd(Parameters parameters, const SgdOptions& options = {});

 private:
  void step_slice(const Slice& slice) override;

  SgdOptions options_;
};

}  // namespace heed::optim
