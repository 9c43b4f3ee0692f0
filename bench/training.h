// Training steps that are timed, or taken apart.
#pragma once

#include <functional>

#include <heed/nn/module.h>
#include <heed/optim/optimizer.h>

#include "bench/peer.h"

namespace heed::bench {

struct TrainingTimes {
  int warm_up = 0;       // steps that go before
  bool profile = false;  // print_profile() instead of take_turns()
};

/// take_turns() with a training step: forward, backward, clipping and the optimizer's step. The loss without
/// dropout of the first weights is told, and the peak of `memory`, which began before the model was made.
void time_training(nn::Module& model, optim::Optimizer& optimizer,
                   const std::function<Tensor()>& loss_of_batch, const TrainingTimes& times,
                   const ResidentMemory& memory);

}  // namespace heed::bench
