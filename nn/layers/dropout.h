// Dropout as a module.
#pragma once

#include <heed/core/ops.h>
#include <heed/nn/module.h>

namespace heed::nn {

/// Zeroes elements with probability p while training and scales the others by 1 / (1 - p); the identity in
/// evaluation.
class Dropout : public Module {
 public:
  explicit Dropout(double p);

  Tensor operator()(const Tensor& x) const { return dropout(x, options()); }
  /// What a fused operation takes: p while training, else 0.
  DropoutOptions options() const { return {.p = training() ? p : 0}; }

  void visit(Visitor&) override {}
  std::string describe() const override { return concat("Dropout(", p, ")"); }

  double p;
};

/// ConfigError unless p is in [0, 1).
void check_dropout_rate(double p, const char* what);

}  // namespace heed::nn
