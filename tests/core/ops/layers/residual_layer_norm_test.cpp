#include <cmath>

#include <gtest/gtest.h>

#include <heed/core/ops.h>

#include "../fused_check.h"

namespace heed::test {
namespace {

constexpr uint64_t kSeed = 21;
constexpr double kEps = 1e-5;

Tensor normed_reference(const Tensor& sum, const Tensor& weight, const Tensor& bias) {
  const int64_t cols = sum.size(-1), rows = sum.numel() / cols;
  const Tensor y = empty_like(sum);
  for (int64_t r = 0; r < rows; ++r) {
    const double* in = sum.data<double>() + r * cols;
    double mean = 0, variance = 0;
    for (int64_t c = 0; c < cols; ++c) mean += in[c] / static_cast<double>(cols);
    for (int64_t c = 0; c < cols; ++c)
      variance += (in[c] - mean) * (in[c] - mean) / static_cast<double>(cols);
    for (int64_t c = 0; c < cols; ++c)
      y.data<double>()[r * cols + c] = (in[c] - mean) / std::sqrt(variance + kEps) *
                                           (weight.defined() ? weight.contiguous().data<double>()[c] : 1) +
                                       (bias.defined() ? bias.contiguous().data<double>()[c] : 0);
  }
  return y;
}

enum class Used { both, sum, normed };

Tensors pick(const ResidualNorm& result, Used used) {
  if (used == Used::both) return {result.sum, result.normed};
  return {used == Used::sum ? result.sum : result.normed};
}

void check(const Shape& shape, double p, bool weight = true, bool bias = true, Used used = Used::both) {
  const int64_t cols = shape[shape.rank() - 1];
  check_composed({.name = concat("residual_layer_norm ", shape, " dropout ", p, weight ? " weight" : "",
                                 bias ? " bias" : "", " used ", static_cast<int>(used)),
                  .inputs = {normal(shape, 1), normal(shape, 2), weight ? normal({cols}, 3) : Tensor(),
                             bias ? normal({cols}, 4) : Tensor()},
                  .function =
                      [=](const Tensors& in) {
                        Generator generator(kSeed);
                        return pick(residual_layer_norm(in[0], in[1], in[2], in[3],
                                                        {.p = p, .generator = &generator}, kEps),
                                    used);
                      },
                  .reference =
                      [=](const Tensors& in) {
                        const Tensor sum = in[0] + in[1] * dropout_factors(shape, p, kSeed);
                        return pick({sum, normed_reference(sum, in[2], in[3])}, used);
                      }});
}

TEST(ResidualLayerNorm, SizesThatFillNoVector) {
  for (int64_t cols : {2, 7, 33, 128, 257}) {
    check({3, cols}, 0);
    check({3, cols}, 0.25);
  }
}

TEST(ResidualLayerNorm, TheNormAlone) {
  check({4, 9}, 0, true, true, Used::normed);
  check({4, 9}, 0.5, true, true, Used::normed);
}

// `spread`: of the weights, around 1. Where it is large, y cannot be turned back into what was normalised.
void check_post(const Shape& shape, double p, double spread, bool weight = true, bool bias = true) {
  const int64_t cols = shape[shape.rank() - 1];
  check_composed(
      {.name = concat("post_layer_norm ", shape, " dropout ", p, " spread ", spread, weight ? " weight" : "",
                      bias ? " bias" : ""),
       .inputs = {normal(shape, 1), normal(shape, 2), weight ? normal({cols}, 3) * spread + 1.0 : Tensor(),
                  bias ? normal({cols}, 4) * 0.5 : Tensor()},
       .function =
           [=](const Tensors& in) {
             Generator generator(kSeed);
             return Tensors{
                 post_layer_norm(in[0], in[1], in[2], in[3], {.p = p, .generator = &generator}, kEps)};
           },
       .reference =
           [=](const Tensors& in) {
             const Tensor sum = in[0] + in[1] * dropout_factors(shape, p, kSeed);
             return Tensors{normed_reference(sum, in[2], in[3])};
           }});
}

TEST(PostLayerNorm, WhereTheWeightsAllowItAndWhereNot) {
  for (const double spread : {0.1, 1.0})
    for (const int64_t cols : {2, 7, 33, 128, 257}) {
      check_post({3, cols}, 0, spread);
      check_post({3, cols}, 0.25, spread);
    }
}

TEST(PostLayerNorm, OptionalParametersRanksAndEmptyBatches) {
  check_post({5, 9}, 0.5, 0.1, false, false);
  check_post({5, 9}, 0.5, 0.1, true, false);
  check_post({5, 9}, 0.5, 0.1, false, true);
  check_post({16}, 0.5, 0.1);
  check_post({2, 3, 8}, 0.5, 0.1);
  check_post({0, 8}, 0.5, 0.1);
}

TEST(PostLayerNorm, IsTheNormOfTheSumBitByBit) {
  for (const Device device : devices())
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const double spread : {0.1, 1.0}) {
        const auto make = [&](const Shape& shape, uint64_t seed) {
          return normal(shape, seed).to(dtype).to(device);
        };
        const Tensor residual = make({5, 300}, 1), x = make({5, 300}, 2),
                     weight = (normal({300}, 3) * spread + 1.0).to(dtype).to(device), bias = make({300}, 4);
        const Tensor sum_too = residual_layer_norm(residual, x, weight, bias).normed;
        EXPECT_EQ(max_difference(post_layer_norm(residual, x, weight, bias), sum_too), 0);
        EXPECT_EQ(
            max_difference(post_layer_norm(residual, x.clone().set_requires_grad(), weight, bias), sum_too),
            0);
      }
}

TEST(PostLayerNorm, ChangedTensorsAreNoticed) {
  for (const Device device : devices()) {
    const auto leaf = [&](const Shape& shape, uint64_t seed) {
      return normal(shape, seed).to(DType::f32).to(device).set_requires_grad();
    };
    const Tensor x = leaf({2, 4}, 1), weight = leaf({4}, 2), bias = leaf({4}, 3);
    expect_change_is_noticed(post_layer_norm(x, x, weight, bias), weight);
    if (!device.is_cuda()) continue;  // the CPU's backward needs neither
    const Tensor y = post_layer_norm(x, x, weight, bias);
    expect_change_is_noticed(y, y);
    expect_change_is_noticed(post_layer_norm(x, x, weight, bias), bias);
  }
}

TEST(ResidualLayerNorm, OptionalParameters) {
  check({5, 9}, 0.5, false, false);
  check({5, 9}, 0.5, true, false);
  check({5, 9}, 0.5, false, true);
}

TEST(ResidualLayerNorm, RanksAndEmptyBatches) {
  check({16}, 0.5);
  check({2, 3, 8}, 0.5);
  check({0, 8}, 0.5);
}

TEST(ResidualLayerNorm, SumAloneNeedsNoGradientOfTheNorm) {
  for (double p : {0.0, 0.5}) {
    const Tensor residual = normal({3, 5}, 1).set_requires_grad(), x = normal({3, 5}, 2).set_requires_grad(),
                 weight = normal({5}, 3).set_requires_grad(), seed = normal({3, 5}, 4);
    Generator generator(kSeed);
    residual_layer_norm(residual, x, weight, {}, {.p = p, .generator = &generator}).sum.backward(seed);
    EXPECT_EQ(max_difference(residual.grad(), seed), 0);
    EXPECT_EQ(max_difference(x.grad(), seed * dropout_factors({3, 5}, p, kSeed)), 0);
    EXPECT_FALSE(weight.grad().defined());
  }
}

// Without a backward to come there are no statistics to write.
TEST(ResidualLayerNorm, RecordingChangesNothing) {
  for (Device device : devices())
    for (DType dtype : {DType::f32, DType::bf16})
      for (int64_t cols : {12, 300}) {
        const Tensor x = normal({5, cols}, 1).to(dtype).to(device),
                     other = normal({5, cols}, 2).to(dtype).to(device);
        const ResidualNorm plain = residual_layer_norm(other, x, {}, {}),
                           recorded = residual_layer_norm(other, x.clone().set_requires_grad(), {}, {});
        EXPECT_EQ(max_difference(plain.sum, recorded.sum), 0);
        EXPECT_EQ(max_difference(plain.normed, recorded.normed), 0);
      }
}

TEST(ResidualLayerNorm, TheSumIsThatOfResidualDropout) {
  const Tensor residual = normal({5, 33}, 1).to(DType::f32), x = normal({5, 33}, 2).to(DType::f32);
  Generator a(kSeed), b(kSeed);
  const Tensor sum = residual_layer_norm(residual, x, {}, {}, {.p = 0.3, .generator = &a}).sum;
  EXPECT_EQ(max_difference(sum, residual_dropout(residual, x, {.p = 0.3, .generator = &b})), 0);
}

TEST(ResidualLayerNorm, GraphsThatAreDroppedGiveTheirMemoryBack) {
  const Tensor x = normal({64, 64}, 1).set_requires_grad();
  const int64_t before = cpu_allocator().stats().in_use;
  for (int i = 0; i < 3; ++i) residual_layer_norm(x, x, {}, {});
  EXPECT_EQ(cpu_allocator().stats().in_use, before);
}

TEST(ResidualLayerNorm, Errors) {
  const Tensor x = zeros({2, 4});
  Generator generator(1);
  expect_error<ShapeError>([&] { residual_layer_norm(zeros({4}), x, {}, {}); },
                           "residual_layer_norm: residual is [4], x is [2, 4]");
  expect_error<ShapeError>([&] { residual_layer_norm(x, x, ones({3}), {}); }, "weight is [3], expected [4]");
  EXPECT_THROW(residual_layer_norm(zeros({}), zeros({}), {}, {}), ShapeError);
  for (double eps : {0.0, -1.0, static_cast<double>(NAN)})
    expect_error<ConfigError>([&] { residual_layer_norm(x, x, {}, {}, {}, eps); },
                              "residual_layer_norm: eps is");
  expect_error<ShapeError>([&] { post_layer_norm(zeros({4}), x, {}, {}); },
                           "post_layer_norm: residual is [4], x is [2, 4]");
  EXPECT_THROW(residual_layer_norm(x, x, {}, {}, {.p = 1, .generator = &generator}), ConfigError);
  EXPECT_THROW(residual_layer_norm(x, x.to(DType::f64), {}, {}), DTypeError);
  EXPECT_THROW(residual_layer_norm(x, x, ones({4}, {.dtype = DType::f64}), {}), DTypeError);
  EXPECT_EQ(generator.offset(), 0u);
}

TEST(ResidualLayerNorm, ChangedTensorsAreNoticed) {
  const Tensor x = normal({2, 4}, 1).set_requires_grad(), weight = normal({4}, 2).set_requires_grad();
  const ResidualNorm result = residual_layer_norm(x, x, weight, {});
  expect_change_is_noticed(result.normed, result.sum);
  expect_change_is_noticed(residual_layer_norm(x, x, weight, {}).normed, weight);
}

TEST(ResidualLayerNorm, RowsWithoutColumns) {
  for (Device device : devices()) {
    const TensorOptions options{.device = device};
    const Tensor x = zeros({2, 0}, options).set_requires_grad(),
                 weight = ones({0}, options).set_requires_grad();
    const auto [added, normed] = residual_layer_norm(zeros({2, 0}, options), x, weight, {}, {.p = 0.1});
    EXPECT_EQ(added.shape(), (Shape{2, 0}));
    EXPECT_EQ(normed.shape(), (Shape{2, 0}));
    sum(normed * normed).backward();
    EXPECT_EQ(x.grad().shape(), (Shape{2, 0}));
    EXPECT_EQ(weight.grad().shape(), (Shape{0}));
  }
}

}  // namespace
}  // namespace heed::test
