// Statistics, and norms of gradients by parameter and by part.
#include <cmath>

#include <gtest/gtest.h>

#include <heed/core/ops.h>
#include <heed/nn/inspection.h>
#include <heed/nn/models/transformer.h>

#include "expect_error.h"
#include "on_device.h"
#include "op_check.h"

namespace heed::nn {
namespace {

LayerConfig small_layer() {
  LayerConfig config;
  config.d_model = 8;
  config.heads = 2;
  config.d_ff = 16;
  config.attention_dropout = config.activation_dropout = config.residual_dropout = 0;
  return config;
}

TEST(Inspection, Statistics) {
  for (const Device device : test::devices()) {
    const Statistics s = statistics(tensor({1.0f, 2.0f, 3.0f, 6.0f}).to(device));
    EXPECT_DOUBLE_EQ(s.mean, 3) << device;
    EXPECT_DOUBLE_EQ(s.deviation, std::sqrt((4 + 1 + 0 + 9) / 4.0)) << device;
    EXPECT_DOUBLE_EQ(s.minimum, 1) << device;
    EXPECT_DOUBLE_EQ(s.maximum, 6) << device;
  }
  test::expect_error<ShapeError>([] { statistics(zeros({0, 3})); }, {"[0, 3]", "no elements"});
}

TEST(Inspection, GradientsThatBackwardHasNotReachedAreZero) {
  Linear layer(3, 2);
  for (const Device device : test::devices()) {
    layer.to(device);
    for (const GradientNorm& n : gradient_norms(layer)) {
      EXPECT_EQ(n.gradient, 0) << n.name << " on " << device;
      EXPECT_GT(n.value, 0) << n.name << " on " << device;
    }
  }
}

// Of y = x wᵀ + b with the loss Σy: ∂b is the number of rows, ∂w the column sums of x.
TEST(Inspection, GradientNorms) {
  for (const Device device : test::devices()) {
    SCOPED_TRACE(concat("on ", device));
    Linear layer(2, 3);
    layer.to(device);
    sum(layer(tensor(std::vector<float>{1, 2, 3, 4}, {2, 2}).to(device))).backward();
    const std::vector<GradientNorm> norms = gradient_norms(layer);
    ASSERT_EQ(norms.size(), 2u);
    EXPECT_EQ(norms[0].name, "weight");
    EXPECT_NEAR(norms[0].gradient, std::sqrt(3 * (16.0 + 36.0)), 1e-6);
    EXPECT_EQ(norms[1].name, "bias");
    EXPECT_NEAR(norms[1].gradient, std::sqrt(3 * 4.0), 1e-6);
    EXPECT_NEAR(norms[1].value, norm(layer.bias).item<double>(), 1e-7);
  }
}

// The values and the gradients.
test::Tensors numbers(const std::vector<GradientNorm>& norms) {
  std::vector<double> values, gradients;
  for (const GradientNorm& n : norms) {
    values.push_back(n.value);
    gradients.push_back(n.gradient);
  }
  const auto count = static_cast<int64_t>(norms.size());
  return {tensor(values, {count}), tensor(gradients, {count})};
}

TEST(Inspection, StackedProjectionsAreSplit) {
  EncoderLayer layer(small_layer());
  const Tensor x = test::normal({5, 8}, 1), r = test::normal({5, 8}, 2);
  const auto norms_of = [&](DType dtype, Device device) {
    test::move(layer, dtype, device);
    layer.parameters().zero_grad();
    sum(layer(x.to(dtype).to(device), Segments::dense(1, 5)) * r.to(dtype).to(device)).backward();
    return gradient_norms(layer);
  };
  const std::vector<GradientNorm> norms = norms_of(DType::f64, kCpu);
  ASSERT_EQ(norms.size(), 16u);
  const char* names[] = {"self_attn.in_proj_weight[q]", "self_attn.in_proj_weight[k]",
                         "self_attn.in_proj_weight[v]", "self_attn.in_proj_bias[q]",
                         "self_attn.in_proj_bias[k]",   "self_attn.in_proj_bias[v]"};
  for (size_t i = 0; i < std::size(names); ++i) EXPECT_EQ(norms[i].name, names[i]);
  EXPECT_LT(norms[4].gradient, 1e-14);  // softmax ignores what all keys share
  EXPECT_GT(norms[3].gradient, 1e-6);
  double squares = 0;
  for (const GradientNorm& n : norms) squares += n.gradient * n.gradient;
  EXPECT_NEAR(std::sqrt(squares), layer.parameters().gradient_norm(), 1e-10);
  test::check_f32([&](DType dtype, Device device) { return numbers(norms_of(dtype, device)); });
}

TEST(Inspection, NormsOfParts) {
  Encoder stack(small_layer(), 3, true);
  const Tensor x = test::normal({5, 8}, 1), r = test::normal({5, 8}, 2);
  const auto parts_of = [&](DType dtype, Device device) {
    test::move(stack, dtype, device);
    stack.parameters().zero_grad();
    sum(stack(x.to(dtype).to(device), Segments::dense(1, 5)) * r.to(dtype).to(device)).backward();
    return join_norms(gradient_norms(stack), 2);
  };
  const std::vector<GradientNorm> parts = parts_of(DType::f64, kCpu);
  ASSERT_EQ(parts.size(), 5u);
  EXPECT_EQ(parts[1].name, "layers.1");
  EXPECT_EQ(parts[3].name, "norm.weight");
  const std::vector<GradientNorm> all = join_norms(parts, 1);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_NEAR(std::hypot(all[0].gradient, all[1].gradient), stack.parameters().gradient_norm(), 1e-10);
  test::check_f32([&](DType dtype, Device device) { return numbers(parts_of(dtype, device)); });
}

TEST(Inspection, Table) {
  EXPECT_EQ(gradient_table({{"linear1.weight", 0.5, 2}, {"bias", 12, 0}}),
            "parameter       gradient  value  gradient/value\n"
            "linear1.weight       0.5      2            0.25\n"
            "bias                  12      0               -");
}

}  // namespace
}  // namespace heed::nn
