#include <cmath>

#include <gtest/gtest.h>

#include <heed/core/ops.h>

#include "../fused_check.h"

namespace heed::test {
namespace {

constexpr uint64_t kSeed = 22;
constexpr double kEps = 1e-5;

// Rows in plain loops.
Tensor reference(const Tensor& x, const Tensor& weight) {
  const int64_t cols = x.size(-1), rows = cols ? x.numel() / cols : 0;
  const Tensor input = x.contiguous(), y = empty_like(input);
  for (int64_t r = 0; r < rows; ++r) {
    const double* in = input.data<double>() + r * cols;
    double squares = 0;
    for (int64_t c = 0; c < cols; ++c) squares += in[c] * in[c] / static_cast<double>(cols);
    for (int64_t c = 0; c < cols; ++c)
      y.data<double>()[r * cols + c] =
          in[c] / std::sqrt(squares + kEps) * (weight.defined() ? weight.contiguous().data<double>()[c] : 1);
  }
  return y;
}

void check(const Shape& shape, bool weight) {
  const int64_t cols = shape[shape.rank() - 1];
  check_composed({.name = concat("rms_norm ", shape, weight ? " weight" : ""),
                  .inputs = {normal(shape, 1) * 3.0 + 0.5, weight ? normal({cols}, 2) : Tensor()},
                  .function = [](const Tensors& in) { return Tensors{rms_norm(in[0], in[1], kEps)}; },
                  .reference = [](const Tensors& in) { return Tensors{reference(in[0], in[1])}; },
                  .magnitude = 4});  // the gradient is a difference of terms of this size
}

enum class Used { both, sum, normed };

Tensors pick(const ResidualNorm& result, Used used) {
  if (used == Used::both) return {result.sum, result.normed};
  return {used == Used::sum ? result.sum : result.normed};
}

void check_residual(const Shape& shape, double p, bool weight = true, Used used = Used::both) {
  const int64_t cols = shape[shape.rank() - 1];
  check_composed({.name = concat("residual_rms_norm ", shape, " dropout ", p, weight ? " weight" : "",
                                 " used ", static_cast<int>(used)),
                  .inputs = {normal(shape, 1), normal(shape, 2), weight ? normal({cols}, 3) : Tensor()},
                  .function =
                      [=](const Tensors& in) {
                        Generator generator(kSeed);
                        return pick(
                            residual_rms_norm(in[0], in[1], in[2], {.p = p, .generator = &generator}, kEps),
                            used);
                      },
                  .reference =
                      [=](const Tensors& in) {
                        const Tensor sum = in[0] + in[1] * dropout_factors(shape, p, kSeed);
                        return pick({sum, reference(sum, in[2])}, used);
                      }});
}

TEST(RMSNorm, SizesThatFillNoVector) {
  for (int64_t cols : {2, 7, 31, 32, 33, 128, 1025, 4099}) check({3, cols}, true);
}

TEST(RMSNorm, WithoutWeight) { check({5, 33}, false); }

TEST(RMSNorm, RanksAndEmptyBatches) {
  check({16}, true);
  check({2, 3, 4, 8}, true);
  check({0, 8}, true);
  check({2, 0}, true);
  check({257, 16}, true);  // more rows than any block takes
}

TEST(ResidualRMSNorm, SizesThatFillNoVector) {
  for (int64_t cols : {2, 7, 33, 128, 257}) {
    check_residual({3, cols}, 0);
    check_residual({3, cols}, 0.25);
  }
}

TEST(ResidualRMSNorm, RanksEmptyBatchesAndNoWeight) {
  check_residual({16}, 0.5);
  check_residual({2, 3, 8}, 0.5);
  check_residual({0, 8}, 0.5);
  check_residual({5, 9}, 0.5, false);
}

TEST(ResidualRMSNorm, OneResultAlone) {
  for (double p : {0.0, 0.5}) {
    check_residual({4, 9}, p, true, Used::normed);
    const Tensor residual = normal({3, 5}, 1).set_requires_grad(), x = normal({3, 5}, 2).set_requires_grad(),
                 weight = normal({5}, 3).set_requires_grad(), seed = normal({3, 5}, 4);
    Generator generator(kSeed);
    residual_rms_norm(residual, x, weight, {.p = p, .generator = &generator}).sum.backward(seed);
    EXPECT_EQ(max_difference(residual.grad(), seed), 0);
    EXPECT_EQ(max_difference(x.grad(), seed * dropout_factors({3, 5}, p, kSeed)), 0);
    EXPECT_FALSE(weight.grad().defined());
  }
}

// Without a backward to come there are no statistics to write.
TEST(RMSNorm, RecordingChangesNothing) {
  for (Device device : devices())
    for (DType dtype : {DType::f32, DType::bf16})
      for (int64_t cols : {12, 300}) {
        const Tensor x = normal({5, cols}, 1).to(dtype).to(device);
        EXPECT_EQ(max_difference(rms_norm(x), rms_norm(x.clone().set_requires_grad())), 0);
        EXPECT_EQ(max_difference(residual_rms_norm(x, x, {}).normed,
                                 residual_rms_norm(x, x.clone().set_requires_grad(), {}).normed),
                  0);
      }
}

TEST(RMSNorm, RowsWhoseSquaresOverflow) {
  for (Device device : devices())
    for (double level : {1e18, 3e19, 1e25, 1e38}) {
      const Tensor row = tensor(std::vector<float>{1, -1, 2, 3}, {1, 4}) * level;
      const Tensor x = row.to(device).set_requires_grad(),
                   weight = ones({4}, {.device = device}).set_requires_grad();
      const Tensor y = rms_norm(x, weight);
      const double unit = 1 / std::sqrt(15.0 / 4), exact[] = {unit, -unit, 2 * unit, 3 * unit};
      const std::vector<float> got = y.to_vector<float>();
      for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(got[i], exact[i], 1e-6) << level;
      if (level > 8e37) continue;  // the root is beyond what has a normal reciprocal
      sum(y * y).backward();
      for (size_t i = 0; i < 4; ++i)
        EXPECT_NEAR(weight.grad().to_vector<float>()[i], 2 * exact[i] * exact[i], 1e-5) << level;
      for (float g : x.grad().to_vector<float>()) EXPECT_NEAR(g, 0, 1e-5 / level);
    }
}

TEST(RMSNorm, AWrongElementSpoilsItsRowAlone) {
  for (Device device : devices()) {
    const Tensor x = ones({2, 4});
    x.data<float>()[1] = INFINITY;
    const std::vector<float> y = rms_norm(x.to(device)).to_vector<float>();
    EXPECT_TRUE(std::isnan(y[1]));
    for (size_t i = 4; i < 8; ++i) EXPECT_NEAR(y[i], 1 / std::sqrt(1 + 1e-6), 1e-7);
  }
}

TEST(RMSNorm, Errors) {
  const Tensor x = zeros({2, 4});
  EXPECT_THROW(rms_norm(zeros({})), ShapeError);
  EXPECT_THROW(rms_norm(x, ones({4}, {.dtype = DType::f64})), DTypeError);
  EXPECT_THROW(rms_norm(zeros({2, 4}, {.dtype = DType::i64})), DTypeError);
  expect_error<ShapeError>([&] { rms_norm(x, ones({3})); },
                           "rms_norm: weight is [3], expected [4] for an input of [2, 4]");
  expect_error<ConfigError>([&] { rms_norm(x, {}, 0); }, "rms_norm: eps is 0; it must be positive");
  Generator generator(1);
  expect_error<ShapeError>([&] { residual_rms_norm(zeros({4}), x, {}); },
                           "residual_rms_norm: residual is [4], x is [2, 4]");
  EXPECT_THROW(residual_rms_norm(x, x, {}, {.p = 1, .generator = &generator}), ConfigError);
  EXPECT_THROW(residual_rms_norm(x.to(DType::f64), x, {}, {.p = 0.5, .generator = &generator}), DTypeError);
  EXPECT_EQ(generator.offset(), 0u);
}

TEST(RMSNorm, ChangedTensorsAreNoticed) {
  const Tensor x = normal({2, 4}, 1).set_requires_grad(), weight = normal({4}, 2).set_requires_grad();
  const ResidualNorm result = residual_rms_norm(x, x, weight);
  expect_change_is_noticed(result.normed, result.sum);
  expect_change_is_noticed(rms_norm(x, weight), weight);
}

}  // namespace
}  // namespace heed::test
