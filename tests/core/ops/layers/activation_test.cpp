#include <cmath>

#include <gtest/gtest.h>

#include <heed/core/ops.h>

#include "../fused_check.h"

namespace heed::test {
namespace {

double reference(double x, Activation which) {
  switch (which) {
    case Activation::relu:
      return std::max(x, 0.0);
    case Activation::gelu:
      return 0.5 * x * std::erfc(-x * M_SQRT1_2);
    case Activation::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::silu:
      return x / (1 + std::exp(-x));
    default:
      return x;
  }
}

Tensor reference(const Tensor& x, Activation which) {
  const Tensor y = x.clone();
  for (int64_t i = 0; i < y.numel(); ++i) y.data<double>()[i] = reference(y.data<double>()[i], which);
  return y;
}

// Rows of [gate | up].
Tensor gated_reference(const Tensor& x, Activation which) {
  const int64_t cols = x.size(-1) / 2;
  Shape shape = x.shape();
  shape[x.rank() - 1] = cols;
  const Tensor in = x.contiguous(), y = empty(shape, x.options());
  for (int64_t i = 0; i < y.numel(); ++i) {
    const double* row = in.data<double>() + i / cols * 2 * cols;
    y.data<double>()[i] = reference(row[i % cols], which) * row[cols + i % cols];
  }
  return y;
}

void check(const Shape& shape, Activation which) {
  check_composed({.name = concat("activation ", static_cast<int>(which), " ", shape),
                  .inputs = {normal(shape, 1) * 2.0},
                  .function = [=](const Tensors& in) { return Tensors{activation(in[0], which)}; },
                  .reference = [=](const Tensors& in) { return Tensors{reference(in[0], which)}; }});
}

void check_gated(const Shape& shape, Activation which) {
  check_composed({.name = concat("gated ", static_cast<int>(which), " ", shape),
                  .inputs = {normal(shape, 2)},
                  .function = [=](const Tensors& in) { return Tensors{gated(in[0], which)}; },
                  .reference = [=](const Tensors& in) { return Tensors{gated_reference(in[0], which)}; }});
}

TEST(Activation, SizesThatFillNoVector) {
  for (Activation which : kActivations) {
    if (which == Activation::none) continue;
    for (int64_t count : {1, 7, 33, 1025}) check({count}, which);
    check({2, 3, 5}, which);
  }
}

TEST(Activation, ScalarsAndNothing) {
  check({}, Activation::gelu);
  check({0, 4}, Activation::silu);
}

TEST(Activation, NoneIsTheTensorItself) {
  const Tensor x = ones({3});
  EXPECT_EQ(activation(x, Activation::none).raw_data(), x.raw_data());
}

TEST(Activation, FarFromZero) {
  const Tensor x = tensor<double>({-1e4, -40, 40, 1e4, INFINITY});
  for (const Tensor& y : {gelu(x), gelu_tanh(x), silu(x), relu(x)}) {
    const std::vector<double> values = y.to_vector<double>();
    EXPECT_NEAR(values[0], 0, 1e-12);
    EXPECT_NEAR(values[1], 0, 1e-12);
    EXPECT_EQ(values[2], 40);
    EXPECT_EQ(values[3], 1e4);
    EXPECT_EQ(values[4], INFINITY);
  }
}

TEST(Gated, SizesThatFillNoVector) {
  for (Activation which : kActivations)
    for (int64_t cols : {1, 5, 33}) check_gated({3, 2 * cols}, which);
  check_gated({2, 3, 8}, Activation::silu);
  check_gated({0, 6}, Activation::silu);
}

TEST(Activation, Errors) {
  expect_error<DTypeError>([] { relu(zeros({2}, {.dtype = DType::i64})); },
                           "activation: needs a floating-point");
  expect_error<ShapeError>(
      [] {
        gated(zeros({2, 3}), Activation::silu);
      },
      "gated: the last axis of [2, 3] is odd");
  expect_error<ShapeError>([] { gated(zeros({}), Activation::silu); }, "needs at least one axis");
}

TEST(Activation, ChangedInputIsNoticed) {
  const Tensor x = (normal({2, 4}, 1).set_requires_grad() * 2.0);
  expect_change_is_noticed(gelu(x), x);
  const Tensor z = (normal({2, 4}, 1).set_requires_grad() * 2.0);
  expect_change_is_noticed(gated(z, Activation::silu), z);
}

}  // namespace
}  // namespace heed::test
