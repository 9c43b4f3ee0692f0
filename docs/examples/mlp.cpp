#include <heed/heed.h>
using namespace heed;

int main() {
  nn::Sequential model;
  model.add<nn::Linear>(1, 32).add(gelu).add<nn::Linear>(32, 1);
  optim::Adam adam(model.parameters(), {.lr = 0.01});
  for (int step = 0; step < 1000; ++step) {
    const Tensor x = rand({64, 1}) * 6.0 - 3.0;
    mse_loss(model(x), sin(x)).backward();
    adam.step();  // and forgets the gradients
  }
  const Tensor x = linspace(-3, 3, 7).unsqueeze(1), error = max(abs(model(x) - sin(x)));
  std::cout << "largest error: " << error << "\n";
  return error.item<double>() < 0.1 ? 0 : 1;
}
