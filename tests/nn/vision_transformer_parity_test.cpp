// The Vision Transformer against PyTorch, in f64 and in f32 on every device, and what may be asked of it.
#include <heed/core/attention.h>
#include <heed/core/ops.h>
#include <heed/nn/models/vision_transformer.h>
#include <heed/nn/parameter.h>

#include "expect_error.h"
#include "fixture.h"
#include "on_device.h"
#include "op_check.h"

namespace heed::test {
namespace {

nn::VisionTransformerConfig small() {
  nn::VisionTransformerConfig config;
  config.image = {6, 4};
  config.patch = {3, 2};
  config.channels = 2;
  config.classes = 5;
  config.layers = 2;
  config.d_model = 8;
  config.heads = 2;
  config.d_ff = 12;
  return config;
}

struct Trial {
  Fixture fixture{"vision_transformer", "small"};
  nn::VisionTransformer model{small()};
  Tensor x, output;

  Trial(DType dtype, Device device) {
    move(model, dtype, device);
    fill_parameters(model.parameters(), fixture);
    x = golden_input(1000, {3, 2, 6, 4}).to(dtype).to(device).set_requires_grad();
    output = model(x);
  }
  std::vector<std::pair<std::string, Tensor>> gradients() {
    sum(output * golden_input(2000, output.shape()).to(output.dtype()).to(output.device())).backward();
    std::vector<std::pair<std::string, Tensor>> all{{"x", x.grad()}};
    for (const Parameter& p : model.parameters()) all.emplace_back(p.name, p.tensor.grad());
    return all;
  }
};

TEST(VisionTransformerParity, WithPyTorch) {
  Trial trial(DType::f64, kCpu);
  EXPECT_LE(difference(trial.output, trial.fixture["output"]), 1e-10);
  const auto gradients = trial.gradients();
  EXPECT_EQ(gradients.size(), trial.fixture.names("gradient").size());
  for (const auto& [name, value] : gradients)
    EXPECT_LE(difference(value, trial.fixture["gradient/" + name]), 1e-10) << name;
}

// Each result is as far from that in f64 as rounding takes it: some tens of operations of 6e-8 each.
TEST(VisionTransformerParity, InF32OnEveryDevice) {
  Trial exact(DType::f64, kCpu);
  const auto want = exact.gradients();
  for (const Device device : devices()) {
    Trial trial(DType::f32, device);
    EXPECT_LE(difference(trial.output, exact.output), 2e-6 * largest(exact.output)) << device;
    const auto got = trial.gradients();
    for (size_t i = 0; i < want.size(); ++i) {
      const Tensor exact_value = as_f64(want[i].second);
      EXPECT_LE(norm(as_f64(got[i].second) - exact_value).item<double>(),
                2e-6 * norm(exact_value).item<double>())
          << want[i].first << " on " << device;
    }
  }
}

TEST(VisionTransformer, NamesShapesAndDescription) {
  nn::VisionTransformer model(small());
  EXPECT_EQ(model.describe(),
            "VisionTransformer(6 x 4 in patches of 3 x 2, 8, heads 2, 2 layers, d_ff 12, pre-norm)");
  EXPECT_EQ(model.parameters().find("patch_embedding.weight")->tensor.shape(), (Shape{8, 2, 3, 2}));
  EXPECT_EQ(model.parameters().find("class_token")->tensor.shape(), (Shape{8}));
  EXPECT_EQ(model.parameters().find("position.weight")->tensor.shape(), (Shape{5, 8}));
  EXPECT_NE(model.parameters().find("layers.1.norm2.bias"), nullptr);
  EXPECT_EQ(model.states(zeros({3, 2, 6, 4})).shape(), (Shape{3, 5, 8}));
}

// 86,567,656: the number that the paper's model has with its 1000 classes.
TEST(VisionTransformer, TheDefaultIsViTBase) {
  const nn::ShapesOnly shapes_only;
  nn::VisionTransformer model{nn::VisionTransformerConfig()};
  int64_t count = 0;
  for (const Parameter& p : model.named_parameters()) count += p.tensor.numel();
  EXPECT_EQ(count, 86'567'656);
}

TEST(VisionTransformer, DropoutActsInTrainingAlone) {
  nn::VisionTransformerConfig config = small();
  config.embedding_dropout = 0.5;
  nn::VisionTransformer model(config);
  const Tensor x = randn({2, 2, 6, 4});
  EXPECT_GT(max_difference(model.states(x), model.states(x)), 0);
  model.eval();
  EXPECT_EQ(max_difference(model(x), model(x)), 0);
}

TEST(VisionTransformer, Errors) {
  const auto refused = [](auto change, const char* text) {
    nn::VisionTransformerConfig config = small();
    change(config);
    expect_error<ConfigError>([&] { nn::VisionTransformer model(config); }, {text});
  };
  refused([](auto& c) { c.patch = 4; }, "patches of 4 x 4 do not divide an image of 6 x 4");
  refused([](auto& c) { c.image = {0, 4}; }, "a height must be positive, got 0");
  refused([](auto& c) { c.classes = 0; }, "classes must be positive");
  refused([](auto& c) { c.layers = -1; }, "-1 layers");
  refused([](auto& c) { c.heads = 3; }, "heads");
  refused([](auto& c) { c.position = nn::PositionKind::rotary; }, "positions are learned or none");
  const nn::VisionTransformer model(small());
  expect_error<ShapeError>(
      [&] {
        model(zeros({2, 1, 6, 4}));
      },
      {"images are [2, 1, 6, 4], expected [batch, 2, 6, 4]"});
}

}  // namespace
}  // namespace heed::test
