#include <cmath>

#include <gtest/gtest.h>

#include <heed/core/ops.h>

#include "../fused_check.h"

namespace heed::test {
namespace {

// Rows in plain loops.
Tensor reference(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  const int64_t cols = x.size(-1), rows = cols ? x.numel() / cols : 0;
  const Tensor input = x.contiguous(), y = empty_like(input);
  for (int64_t r = 0; r < rows; ++r) {
    const double* in = input.data<double>() + r * cols;
    double* out = y.data<double>() + r * cols;
    double mean = 0, variance = 0;
    for (int64_t c = 0; c < cols; ++c) mean += in[c] / static_cast<double>(cols);
    for (int64_t c = 0; c < cols; ++c)
      variance += (in[c] - mean) * (in[c] - mean) / static_cast<double>(cols);
    for (int64_t c = 0; c < cols; ++c)
      out[c] =
          (in[c] - mean) / std::sqrt(variance + eps) * (weight.defined() ? weight.data<double>()[c] : 1) +
          (bias.defined() ? bias.data<double>()[c] : 0);
  }
  return y;
}

void check(const Shape& shape, bool weight, bool bias, double eps = 1e-5) {
  const int64_t cols = shape[shape.rank() - 1];
  check_composed(
      {.name = concat("layer_norm ", shape, weight ? " weight" : "", bias ? " bias" : ""),
       .inputs = {normal(shape, 1) * 3.0 + 0.5, weight ? normal({cols}, 2) : Tensor(),
                  bias ? normal({cols}, 3) : Tensor()},
       .function = [=](const Tensors& in) { return Tensors{layer_norm(in[0], in[1], in[2], eps)}; },
       .reference = [=](const Tensors& in) { return Tensors{reference(in[0], in[1], in[2], eps)}; },
       .magnitude = 4});  // the gradient is a difference of terms of this size
}

TEST(LayerNorm, SizesThatFillNoVector) {
  for (int64_t cols : {2, 7, 31, 32, 33, 128, 1025, 4099}) check({3, cols}, true, true);
}

TEST(LayerNorm, OptionalParameters) {
  check({5, 33}, false, false);
  check({5, 33}, true, false);
  check({5, 33}, false, true);
}

TEST(LayerNorm, RanksAndEmptyBatches) {
  check({16}, true, true);
  check({2, 3, 4, 8}, true, true);
  check({0, 8}, true, true);
  check({2, 0}, true, true);
  check({257, 16}, true, true);  // more rows than any block takes
}

TEST(LayerNorm, ARowOfEqualValuesGivesTheBias) {
  for (Device device : devices()) {
    const Tensor y =
        layer_norm(full({2, 5}, 7.0, {.device = device}), {}, full({5}, 0.25, {.device = device}));
    for (float value : y.to_vector<float>()) EXPECT_EQ(value, 0.25f);
  }
}

// Without a backward to come there are no statistics to write.
TEST(LayerNorm, RecordingChangesNothing) {
  for (Device device : devices())
    for (DType dtype : {DType::f32, DType::bf16})
      for (int64_t cols : {12, 300}) {
        const Tensor x = normal({5, cols}, 1).to(dtype).to(device);
        EXPECT_EQ(max_difference(layer_norm(x), layer_norm(x.clone().set_requires_grad())), 0);
      }
}

TEST(LayerNorm, RowsWhoseSquaresOverflow) {
  for (Device device : devices())
    for (double level : {1e18, 3e19, 1e25, 1e38}) {
      const Tensor row = tensor(std::vector<float>{1, -1, 2, 3}, {1, 4}) * level;
      const Tensor x = row.to(device).set_requires_grad(),
                   weight = ones({4}, {.device = device}).set_requires_grad();
      const Tensor y = layer_norm(x, weight);
      const double exact[] = {-0.16903085, -1.52127766, 0.50709255, 1.18321596};
      const std::vector<float> got = y.to_vector<float>();
      for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(got[i], exact[i], 1e-6) << level;
      sum(y * y).backward();
      for (size_t i = 0; i < 4; ++i)
        EXPECT_NEAR(weight.grad().to_vector<float>()[i], 2 * exact[i] * exact[i], 1e-5) << level;
      for (float g : x.grad().to_vector<float>()) EXPECT_NEAR(g, 0, 1e-5 / level);
    }
}

TEST(LayerNorm, LargeMeanLosesLittle) {
  const Tensor exact = normal({4, 1024}, 5) + 1e4;
  const Tensor x = exact.to(DType::f32);
  EXPECT_LE(max_difference(layer_norm(x).to(DType::f64), reference(x.to(DType::f64), {}, {}, 1e-5)),
            8 * 0x1p-23 * 1e4);
}

TEST(LayerNorm, Errors) {
  const Tensor x = zeros({2, 4});
  EXPECT_THROW(layer_norm(zeros({})), ShapeError);
  EXPECT_THROW(layer_norm(x, ones({3})), ShapeError);
  EXPECT_THROW(layer_norm(x, ones({4}, {.dtype = DType::f64})), DTypeError);
  EXPECT_THROW(layer_norm(x, {}, {}, 0), ConfigError);
  EXPECT_THROW(layer_norm(zeros({2, 4}, {.dtype = DType::i64})), DTypeError);
  try {
    layer_norm(x, ones({3}));
  } catch (const ShapeError& error) {
    EXPECT_STREQ(error.what(), "layer_norm: weight is [3], expected [4] for an input of [2, 4]");
  }
}

TEST(LayerNorm, ChangedInputIsNoticed) {
  const Tensor x = normal({2, 4}, 1).set_requires_grad();
  const Tensor scaled = x * 2.0;
  const Tensor y = layer_norm(scaled);
  {
    NoGrad no_grad;
    scaled.zero_();
  }
  EXPECT_THROW(y.backward(ones({2, 4}, {.dtype = DType::f64})), AutogradError);
}

}  // namespace
}  // namespace heed::test
