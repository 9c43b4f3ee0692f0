// A part of a model from a file, frozen while a new head is trained, then thawed; the average of the weights
// is what is kept. docs/fine_tuning.md explains it.
#include <cstdio>
#include <filesystem>

#include <heed/core/ops.h>
#include <heed/core/serialize.h>
#include <heed/nn/layers/linear.h>
#include <heed/nn/weights.h>
#include <heed/optim/adam.h>
#include <heed/optim/ema.h>

using namespace heed;

struct Body : nn::Module {
  nn::Linear first{8, 32}, second{32, 16};
  void visit(nn::Visitor& v) override {
    v("first", first);
    v("second", second);
  }
  std::string describe() const override { return "Body"; }
  Tensor forward(const Tensor& x) const { return second(relu(first(x))); }
};

struct Classifier : nn::Module {
  Body body;
  nn::Linear head{16, 3};
  void visit(nn::Visitor& v) override {
    v("body", body);
    v("head", head);
  }
  std::string describe() const override { return "Classifier"; }
  Tensor forward(const Tensor& x) const { return head(relu(body.forward(x))); }
};

int main() {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "heed-fine-tuning";
  std::filesystem::create_directories(folder);
  Classifier trained, model;
  nn::save_weights(trained, folder / "trained.safetensors");
  nn::load_weights(model.body, folder / "trained.safetensors", {.prefix = "body."});

  model.body.set_requires_grad(false);
  optim::AdamW adam(model.parameters(), {.lr = 1e-2, .groups = {{.patterns = {"*bias"}, .weight_decay = 0}}});
  optim::Ema ema(model.parameters(), 0.9);
  const Tensor x = randn({64, 8}), targets = randint(0, 3, {64});
  for (int step = 0; step < 200; ++step) {
    if (step == 100) model.set_requires_grad(true);
    cross_entropy(model.forward(x), targets).backward();
    adam.step({.clip = 1});
    ema.update();
  }

  const optim::EmaScope averaged(ema);  // until the end
  const NoGrad no_grad;
  const double loss = cross_entropy(model.forward(x), targets).item<double>();
  std::printf("%s\n", loss < 0.9 ? "learned" : "not learned");
  save_tensors(folder / "average.safetensors", ema.state());
  nn::load_weights(trained, folder / "average.safetensors");
  std::filesystem::remove_all(folder);
  return loss < 0.9 ? 0 : 1;
}
