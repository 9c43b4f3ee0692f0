#include <cmath>

#include <gtest/gtest.h>

#include <heed/core/ops.h>

#include "../fused_check.h"

namespace heed::test {
namespace {

constexpr uint64_t kSeed = 77, kOffset = 5;

void check(const Shape& shape, double p) {
  const Tensor factors = dropout_factors(shape, p, kSeed, kOffset);
  const auto function = [=](const Tensors& in) {
    Generator generator(kSeed, kOffset);
    return Tensors{dropout(in[0], {.p = p, .generator = &generator})};
  };
  const auto plain = [=](const Tensors& in) { return Tensors{in[0] * factors.to(in[0].dtype())}; };
  check_fused({.name = concat("dropout ", p, " ", shape),
               .inputs = {normal(shape, 1)},
               .function = function,
               .reference = plain,
               .plain = plain});
}

void check_residual(const Shape& shape, double p) {
  const Tensor factors = dropout_factors(shape, p, kSeed, kOffset);
  const auto function = [=](const Tensors& in) {
    Generator generator(kSeed, kOffset);
    return Tensors{residual_dropout(in[0], in[1], {.p = p, .generator = &generator})};
  };
  const auto plain = [=](const Tensors& in) { return Tensors{in[0] + in[1] * factors.to(in[1].dtype())}; };
  check_fused({.name = concat("residual_dropout ", p, " ", shape),
               .inputs = {normal(shape, 1), normal(shape, 2)},
               .function = function,
               .reference = plain,
               .plain = plain});
}

TEST(Dropout, RatesAndSizes) {
  for (double p : {0.1, 0.5, 0.999})
    for (int64_t count : {1, 7, 33, 1025}) check({count}, p);
  check({2, 3, 5}, 0.3);
  check({0, 5}, 0.3);
  check({}, 0.5);
}

TEST(Dropout, ADecisionThatIsTheThresholdKeeps) {
  check({33}, dropout_bits({kSeed, nullptr, kOffset}, 2).bits(3) / 65536.0);
}
TEST(Dropout, OnAResidual) {
  for (double p : {0.0, 0.25, 0.9})
    for (int64_t cols : {1, 33}) check_residual({3, cols}, p);
  check_residual({0, 5}, 0.3);
}

TEST(Dropout, MaskAndGradientAreThoseOfPhiloxToTheBit) {
  const Tensor x = normal({4099}, 3).to(DType::f32).set_requires_grad();
  Generator generator(kSeed, kOffset);
  const Tensor y = dropout(x, {.p = 0.4, .generator = &generator});
  y.backward(ones({4099}));
  const std::vector<double> factors = dropout_factors({4099}, 0.4, kSeed, kOffset).to_vector<double>();
  const std::vector<float> in = x.to_vector<float>(), out = y.to_vector<float>(),
                           gradient = x.grad().to_vector<float>();
  for (size_t i = 0; i < factors.size(); ++i) {
    const float factor = static_cast<float>(factors[i]);
    EXPECT_EQ(out[i], in[i] * factor);
    EXPECT_EQ(gradient[i], factor);
  }
}

TEST(Dropout, DroppedElementsDoNotSpreadNaN) {
  const Tensor x = full({1000}, NAN).set_requires_grad();
  Generator generator(1);
  const Tensor y = dropout(x, {.p = 0.5, .generator = &generator});
  y.backward(full({1000}, NAN));
  const std::vector<double> factors = dropout_factors({1000}, 0.5, 1).to_vector<double>();
  const std::vector<float> out = y.to_vector<float>(), gradient = x.grad().to_vector<float>();
  for (size_t i = 0; i < factors.size(); ++i) {
    if (factors[i] != 0) continue;
    EXPECT_EQ(out[i], 0.0f);
    EXPECT_EQ(gradient[i], 0.0f);
  }
}

TEST(Dropout, TakesOneOffsetAndNoneForARateOfZero) {
  Generator generator(1, 10);
  const Tensor x = ones({8});
  EXPECT_EQ(dropout(x, {.p = 0, .generator = &generator}).raw_data(), x.raw_data());
  residual_dropout(x, x, {.p = 0, .generator = &generator});
  EXPECT_EQ(generator.offset(), 10u);
  dropout(x, {.p = 0.5, .generator = &generator});
  residual_dropout(x, x, {.p = 0.5, .generator = &generator});
  EXPECT_EQ(generator.offset(), 12u);
  const uint64_t before = default_generator().offset();
  dropout(x, {.p = 0.5});
  EXPECT_EQ(default_generator().offset(), before + 1);
}

TEST(Dropout, TheSameTensorOnBothSides) {
  const Tensor x = normal({40}, 1).set_requires_grad();
  Generator generator(kSeed);
  residual_dropout(x, x, {.p = 0.5, .generator = &generator}).backward(ones({40}, x.options()));
  EXPECT_EQ(max_difference(x.grad(), dropout_factors({40}, 0.5, kSeed) + 1.0), 0);
}

TEST(Dropout, Errors) {
  const Tensor x = ones({2, 3});
  Generator generator(1);
  for (double p : {-0.1, 1.0, 1.5, static_cast<double>(NAN)}) {
    expect_error<ConfigError>([&] { dropout(x, {.p = p, .generator = &generator}); },
                              concat("dropout: the dropout rate is ", p, "; it must be in [0, 1)"));
    EXPECT_THROW(residual_dropout(x, x, {.p = p, .generator = &generator}), ConfigError);
  }
  expect_error<ShapeError>([&] { residual_dropout(ones({3}), x, {.p = 0.5, .generator = &generator}); },
                           "residual_dropout: residual is [3], x is [2, 3]");
  EXPECT_THROW(residual_dropout(ones({2, 3}, {.dtype = DType::f64}), x), DTypeError);
  EXPECT_THROW(dropout(zeros({2}, {.dtype = DType::i32}), {.p = 0.5, .generator = &generator}), DTypeError);
  EXPECT_EQ(generator.offset(), 0u);  // what fails has drawn nothing
}

}  // namespace
}  // namespace heed::test
