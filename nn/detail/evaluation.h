// A model in evaluation mode for a while.
#pragma once

#include <heed/core/autograd/autograd.h>
#include <heed/nn/module.h>

namespace heed::nn {

/// While one lives, the module's dropout is off and nothing is recorded.
class Evaluation {
 public:
  explicit Evaluation(Module& module) : module_(module), was_training_(module.training()) {
    if (was_training_) module_.eval();
  }
  ~Evaluation() {
    if (was_training_) module_.train();
  }
  Evaluation(const Evaluation&) = delete;
  Evaluation& operator=(const Evaluation&) = delete;

 private:
  NoGrad no_grad_;
  Module& module_;
  bool was_training_;
};

}  // namespace heed::nn
