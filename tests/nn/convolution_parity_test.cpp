// Convolutions, pooling, batch and group norm against PyTorch, in f64 and in f32 on every device: training
// with gradients, running statistics, evaluation, and files.
#include <cmath>

#include <heed/nn/layers/channel_norm.h>
#include <heed/nn/layers/convolution.h>
#include <heed/nn/sequential.h>
#include <heed/nn/weights.h>

#include "expect_error.h"
#include "fixture.h"
#include "on_device.h"
#include "op_check.h"
#include "temporary_folder.h"

namespace heed::test {
namespace {

struct Net : nn::Module {
  virtual Tensor operator()(const Tensor& x) const = 0;
};

struct Image : Net {
  nn::Conv2d conv1{2, 6, {3, 5}, {.padding = {1, 2}}},
      conv2{6, 8, 3, {.stride = 2, .padding = 2, .dilation = 2, .groups = 2}, false};
  nn::BatchNorm2d norm1{6};
  nn::GroupNorm norm2{4, 8};
  nn::MaxPool2d largest{3, {.stride = 2, .padding = 1}};
  nn::AvgPool2d average{2, {.padding = 1}};

  Tensor operator()(const Tensor& x) const override {
    return average(norm2(conv2(largest(gelu(norm1(conv1(x)))))));
  }
  void visit(nn::Visitor& v) override {
    v("conv1", conv1);
    v("norm1", norm1);
    v("conv2", conv2);
    v("norm2", norm2);
  }
};

struct Sequence : Net {
  nn::Conv1d conv1{4, 4, 3, {.stride = 2, .padding = 1, .groups = 4}}, conv2{4, 5, 2, {.dilation = 2}};
  nn::BatchNorm1d norm1{4, 1e-5, 0.3}, norm2{5, 1e-3};

  Tensor operator()(const Tensor& x) const override {
    const Tensor y = max_pool1d(norm1(conv1(x)), 2, {.stride = 1});
    return norm2(sum(avg_pool1d(conv2(y), 2), {.axes = {2}}));
  }
  void visit(nn::Visitor& v) override {
    v("conv1", conv1);
    v("norm1", norm1);
    v("conv2", conv2);
    v("norm2", norm2);
  }
};

struct Trial {
  Fixture fixture;
  std::unique_ptr<Net> net;
  Tensor x, output, evaluated;

  Trial(const std::string& label, DType dtype, Device device) : fixture("convolution", label) {
    const bool image = label == "image";
    net = image ? std::unique_ptr<Net>(std::make_unique<Image>()) : std::make_unique<Sequence>();
    move(*net, dtype, device);
    fill_parameters(net->parameters(), fixture);
    x = golden_input(1000, image ? Shape{3, 2, 11, 10} : Shape{3, 4, 13})
            .to(dtype)
            .to(device)
            .set_requires_grad();
    output = (*net)(x);
    sum(output * golden_input(2000, output.shape()).to(dtype).to(device)).backward();
    net->eval();
    evaluated = (*net)(x).detach();
  }

  std::vector<std::pair<std::string, Tensor>> results() const {
    std::vector<std::pair<std::string, Tensor>> all{
        {"output", output}, {"evaluated", evaluated}, {"gradient/x", x.grad()}};
    for (const Parameter& p : net->parameters()) all.emplace_back("gradient/" + p.name, p.tensor.grad());
    for (const auto& [name, buffer] : net->named_buffers()) all.emplace_back("state/" + name, buffer);
    return all;
  }
};

class ConvolutionParity : public ::testing::TestWithParam<const char*> {};

TEST_P(ConvolutionParity, WithPyTorch) {
  const Trial trial(GetParam(), DType::f64, kCpu);
  EXPECT_EQ(trial.net->parameters().size() + 1, static_cast<int64_t>(trial.fixture.names("gradient").size()));
  for (const auto& [name, value] : trial.results()) {
    const Tensor want = trial.fixture[name];
    EXPECT_LE(difference(value.to(DType::f64), want.to(DType::f64).reshape(value.shape())), 1e-10) << name;
  }
  for (const Device device : devices()) {
    SCOPED_TRACE(concat("f32 on ", device));
    for (const auto& [name, value] : Trial(GetParam(), DType::f32, device).results()) {
      const Tensor want = trial.fixture[name].to(DType::f64).reshape(value.shape());
      EXPECT_LE(difference(value, want), 1e-5 * std::max(1.0, largest(want))) << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, ConvolutionParity, ::testing::Values("image", "sequence"));

// A state dict of PyTorch's, buffers included, and a file of ours that has the same.
TEST(ConvolutionFiles, BuffersTravel) {
  const std::string theirs = HEED_FIXTURES "/convolution_state.safetensors";
  const TemporaryFolder folder;
  const std::string ours = folder.file("weights.safetensors");
  Image net, again;
  const nn::LoadReport report = nn::load_weights(net, theirs);
  EXPECT_TRUE(report.missing.empty() && report.unexpected.empty());
  EXPECT_EQ(net.norm1.num_batches_tracked.item<int64_t>(), 1);
  EXPECT_GT(max_abs(net.norm1.running_mean), 0);
  nn::save_weights(net, ours);
  nn::check_weights(again, ours);
  nn::load_weights(again, ours);
  net.eval();
  again.eval();
  const Tensor x = randn({1, 2, 11, 10});
  EXPECT_EQ(max_difference(net(x), again(x)), 0);
  nn::Conv2d none(2, 6, 1);
  expect_error<CheckpointError>([&] { nn::load_weights(none, theirs); }, {"norm1.running_mean"});
}

TEST(BatchNormModule, MovesConvertsAndIsNoParameter) {
  for (Device device : devices()) {
    nn::BatchNorm2d norm(3);
    move(norm, DType::bf16, device);
    EXPECT_EQ(norm.running_mean.dtype(), DType::f32);
    EXPECT_EQ(norm.running_mean.device(), device);
    EXPECT_EQ(norm.parameters().size(), 2);
    EXPECT_EQ(norm.named_buffers().size(), 3u);
    (void)norm(randn({2, 3, 4, 4}).to(DType::bf16).to(device));
    EXPECT_EQ(norm.num_batches_tracked.item<int64_t>(), 1);
    norm.eval();
    (void)norm(randn({2, 3, 4, 4}).to(DType::bf16).to(device));
    EXPECT_EQ(norm.num_batches_tracked.item<int64_t>(), 1);
  }
}

TEST(ConvolutionModules, TreeAndErrors) {
  EXPECT_EQ(nn::Conv2d(2, 4, 3, {.stride = 2, .groups = 2}, false).describe(),
            "Conv2d(2, 4, 3 x 3, stride 2 x 2, padding 0 x 0, groups 2, no bias)");
  EXPECT_EQ(nn::Conv1d(2, 4, 3).describe(), "Conv1d(2, 4, 3, stride 1, padding 0)");
  EXPECT_EQ(nn::BatchNorm1d(4).describe(), "BatchNorm1d(4, eps 1e-05, momentum 0.1)");
  EXPECT_EQ(nn::GroupNorm(2, 4).describe(), "GroupNorm(2, 4, eps 1e-05)");
  EXPECT_EQ(nn::MaxPool2d(2).describe(), "MaxPool2d(2 x 2)");
  const double bound = 1 / std::sqrt(2 * 9.0);
  EXPECT_LE(max_abs(nn::Conv2d(4, 8, 3, {.groups = 2}).weight), bound);
  expect_error<ConfigError>([&] { nn::Conv2d(3, 4, 3, {.groups = 2}); }, {"2 groups do not divide 3 and 4"});
  expect_error<ConfigError>([&] { nn::Conv2d(0, 4, 3); }, {"in = 0"});
  expect_error<ConfigError>([&] { nn::Conv1d(2, 4, 0); },
                            {"Conv1d: the kernel's size must be positive, got 0"});
  expect_error<ConfigError>([&] { nn::BatchNorm1d(0); }, {"BatchNorm1d: channels must be positive"});
  expect_error<ConfigError>([&] { nn::BatchNorm2d(2, 1e-5, 2); }, {"momentum is 2"});
  expect_error<ConfigError>([&] { nn::GroupNorm(3, 4); }, {"4 channels do not divide into 3 groups"});
  expect_error<ShapeError>(
      [&] {
        (void)nn::BatchNorm2d(2)(zeros({2, 2, 3}));
      },
      {"BatchNorm2d: x is [2, 2, 3], expected [batch, 2, height, width]"});
  expect_error<ShapeError>([&] { (void)nn::BatchNorm1d(2)(zeros({1, 2})); }, {"more than one value"});
}

}  // namespace
}  // namespace heed::test
