// What a program outside heed does: train a small model, and add an operation of its own with its gradient.
#include <cmath>
#include <cstdio>

#include <heed/core/ops.h>
#include <heed/nn/layers/linear.h>
#include <heed/optim/adam.h>
#include <heed/train/checkpoint.h>
#include <heed/version.h>

namespace {

using namespace heed;

// log(1 + exp(x)), by a loop over memory.
Tensor smooth_relu(const Tensor& x) {
  const Tensor input = x.contiguous(), y = empty_like(input);
  for (int64_t i = 0; i < input.numel(); ++i)
    y.data<float>()[i] = std::log1p(std::exp(input.data<float>()[i]));
  return record("smooth_relu", {x}, y, [input = save(input)](const GradIn& gy, GradOut& gx) {
    const Tensor g = gy[0].contiguous(), x = *input;
    const GradSlot to = gx.into(0);
    for (int64_t i = 0; i < g.numel(); ++i) {
      const float slope = 1 / (1 + std::exp(-x.data<float>()[i]));
      to.tensor.data<float>()[i] =
          slope * g.data<float>()[i] + (to.accumulate ? to.tensor.data<float>()[i] : 0);
    }
  });
}

}  // namespace

int main() {
  if (train::has_checkpoint(".")) return 1;  // the component is linked
  manual_seed(1);
  nn::Linear layer(3, 1);
  const Tensor x = randn({64, 3}), target = sum(x, {.axes = {1}, .keep = true});
  optim::Adam adam(layer.parameters(), {.lr = 0.05});
  double first = 0, last = 0;
  for (int step = 0; step < 200; ++step) {
    const Tensor loss = mean(smooth_relu(square(layer(x) - target)));
    loss.backward();
    adam.step();
    last = loss.item<double>();
    if (step == 0) first = last;
  }
  std::printf("heed %s: loss %.4f -> %.4f\n", HEED_VERSION, first, last);
  return last < first && last < std::log(2.0) + 0.01 ? 0 : 1;
}
