// Adam and AdamW.
#pragma once

#include <optional>

#include <heed/optim/optimizer.h>

namespace heed::optim {

struct AdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  std::optional<double> weight_decay = {};  // of the default group; unset: 0 for Adam, 0.01 for AdamW
  std::vector<Group> groups = {};           // tried before the default group, which takes the rest
};

/// Adam (Kingma and Ba, arXiv 1412.6980); weight decay is added to the gradient. Agrees with PyTorch step by
/// step.
class Adam : public Optimizer {
 public:
  /// ConfigError for a rate, beta, eps or decay out of range.
  explicit Adam(Parameters parameters, const AdamOptions& options = {});

 protected:
  Adam(Parameters parameters, const AdamOptions& options, bool decoupled);

 private:
  void step_slice(const Slice& slice) override;

  AdamOptions options_;
  bool decoupled_;
};

/// Adam with decoupled weight decay (Loshchilov and Hutter, arXiv 1711.05101).
class AdamW : public Adam {
 public:
  explicit AdamW(Parameters parameters, const AdamOptions& options = {})
      : Adam(std::move(parameters), options, true) {}
};

}  // namespace heed::optim
