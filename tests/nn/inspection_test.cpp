// Statistics, and norms of gradients by parameter and by part.
#include <cmath>

#include <gtest/gtest.h>

#include <heed/core/ops.h>
#include <heed/nn/inspection.h>
#include <heed/nn/transformer.h>

#include "expect_error.h"

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
  const Statistics s = statistics(tensor({1.0f, 2.0f, 3.0f, 6.0f}));
  EXPECT_DOUBLE_EQ(s.mean, 3);
  EXPECT_DOUBLE_EQ(s.deviation, std::sqrt((4 + 1 + 0 + 9) / 4.0));
  EXPECT_DOUBLE_EQ(s.minimum, 1);
  EXPECT_DOUBLE_EQ(s.maximum, 6);
  test::expect_error<ShapeError>([] { statistics(zeros({0, 3})); }, {"[0, 3]", "no elements"});
}

TEST(Inspection, GradientsThatBackwardHasNotReachedAreZero) {
  Linear layer(3, 2);
  for (const GradientNorm& n : gradient_norms(layer)) {
    EXPECT_EQ(n.gradient, 0) << n.name;
    EXPECT_GT(n.value, 0) << n.name;
  }
}

// Of y = x wᵀ + b with the loss Σy: ∂b is the number of rows, ∂w the column sums of x.
TEST(Inspection, GradientNorms) {
  Linear layer(2, 3);
  sum(layer(tensor(std::vector<float>{1, 2, 3, 4}, {2, 2}))).backward();
  const std::vector<GradientNorm> norms = gradient_norms(layer);
  ASSERT_EQ(norms.size(), 2u);
  EXPECT_EQ(norms[0].name, "weight");
  EXPECT_NEAR(norms[0].gradient, std::sqrt(3 * (16.0 + 36.0)), 1e-6);
  EXPECT_EQ(norms[1].name, "bias");
  EXPECT_NEAR(norms[1].gradient, std::sqrt(3 * 4.0), 1e-6);
  EXPECT_NEAR(norms[1].value, norm(layer.bias).item<double>(), 1e-7);
}

TEST(Inspection, StackedProjectionsAreSplit) {
  EncoderLayer layer(small_layer());
  layer.to(DType::f64);
  const Tensor x = randn({5, 8}, {.dtype = DType::f64});
  sum(layer(x, Segments::dense(1, 5)) * randn({5, 8}, x.options())).backward();
  const std::vector<GradientNorm> norms = gradient_norms(layer);
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
}

TEST(Inspection, NormsOfParts) {
  Encoder stack(small_layer(), 3, true);
  stack.to(DType::f64);
  sum(stack(randn({5, 8}, {.dtype = DType::f64}), Segments::dense(1, 5)) * 2).backward();
  const std::vector<GradientNorm> parts = join_norms(gradient_norms(stack), 2);
  ASSERT_EQ(parts.size(), 5u);
  EXPECT_EQ(parts[1].name, "layers.1");
  EXPECT_EQ(parts[3].name, "norm.weight");
  const std::vector<GradientNorm> all = join_norms(parts, 1);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_NEAR(std::hypot(all[0].gradient, all[1].gradient), stack.parameters().gradient_norm(), 1e-10);
}

TEST(Inspection, Table) {
  EXPECT_EQ(gradient_table({{"linear1.weight", 0.5, 2}, {"bias", 12, 0}}),
            "parameter       gradient  value  gradient/value\n"
            "linear1.weight       0.5      2            0.25\n"
            "bias                  12      0               -");
}

}  // namespace
}  // namespace heed::nn
