#include "bench/training.h"

#include <heed/core/autograd/autograd.h>
#include <heed/version.h>

#include "bench/step_profile.h"

namespace heed::bench {

void time_training(nn::Module& model, optim::Optimizer& optimizer,
                   const std::function<Tensor()>& loss_of_batch, const TrainingTimes& times,
                   const ResidentMemory& memory) {
  const auto loss_without_dropout = [&] {
    const NoGrad no_grad;
    model.eval();
    const double loss = loss_of_batch().item<double>();
    model.train();
    return loss;
  };
  const auto step = [&] {
    const Tensor loss = loss_of_batch();
    loss.backward();
    optimizer.step({.clip = 1.0});
    loss.item<double>();
  };
  const Parameters parameters = model.parameters();
  apps::Json about{{"name", concat("heed ", HEED_VERSION, " ", parameters.dtype())},
                   {"parameters", parameters.numel()},
                   {"loss", loss_without_dropout()}};
  for (int i = 0; i < times.warm_up; ++i) step();
  if (times.profile) return print_profile(step, parameters.dtype());
  about["peak_mebibytes"] = memory.peak();
  take_turns(about, step);
}

}  // namespace heed::bench
