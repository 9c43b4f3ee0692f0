#include <cmath>

#include <heed/core/sampling.h>

#include "reference.h"

namespace heed::test {
namespace {

// How often each of n numbers is among the draws.
std::vector<double> shares(const Tensor& draws, int64_t n) {
  std::vector<double> count(static_cast<size_t>(n), 0);
  for (int64_t i : draws.to_vector<int64_t>()) count.at(static_cast<size_t>(i)) += 1;
  for (double& c : count) c /= static_cast<double>(draws.numel());
  return count;
}

constexpr int64_t kDraws = 20000;

// Six deviations of a share of kDraws draws.
void expect_shares(const Tensor& draws, const std::vector<double>& want) {
  const std::vector<double> got = shares(draws, static_cast<int64_t>(want.size()));
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_NEAR(got[i], want[i], 6 * std::sqrt(want[i] * (1 - want[i]) / kDraws)) << i;
}

TEST(Sampling, SharesAreThoseOfTheWeights) {
  Generator generator(1);
  const Tensor weights = tensor<float>({1, 0, 3, 4});
  expect_shares(multinomial(weights, kDraws, {.replacement = true, .generator = &generator}),
                {0.125, 0, 0.375, 0.5});
  const Tensor logits = log(weights).expand({kDraws, 4});
  expect_shares(sample(logits, {.generator = &generator}), {0.125, 0, 0.375, 0.5});
  expect_shares(sample(logits, {.temperature = 0.5, .generator = &generator}),
                {1. / 26, 0, 9. / 26, 16. / 26});
  expect_shares(sample(logits, {.top_k = 2, .generator = &generator}), {0, 0, 3. / 7, 4. / 7});
  expect_shares(sample(logits, {.top_p = 0.8, .generator = &generator}), {0, 0, 3. / 7, 4. / 7});
  expect_shares(sample(logits, {.top_p = 0.45, .generator = &generator}), {0, 0, 0, 1});
  expect_shares(sample(logits, {.top_k = 2, .top_p = 0.5, .generator = &generator}), {0, 0, 0, 1});
  expect_shares(sample(logits, {.top_k = 9, .top_p = 0.99, .generator = &generator}), {0.125, 0, 0.375, 0.5});
}

TEST(Sampling, WithoutReplacementNothingComesTwice) {
  Generator generator(1);
  const Tensor weights = tensor<float>({1, 2, 3, 4}).expand({kDraws, 4});
  const Tensor draws = multinomial(weights, 2, {.generator = &generator});
  EXPECT_EQ(draws.shape(), (Shape{kDraws, 2}));
  EXPECT_FALSE(any(equal(draws.select(1, 0), draws.select(1, 1))).item<bool>());
  expect_shares(draws.select(1, 0), {0.1, 0.2, 0.3, 0.4});
  // P(second = j) = Σ over i ≠ j of p_i p_j / (1 - p_i)
  std::vector<double> second(4, 0);
  const double p[] = {0.1, 0.2, 0.3, 0.4};
  for (size_t i = 0; i < 4; ++i)
    for (size_t j = 0; j < 4; ++j)
      if (i != j) second[j] += p[i] * p[j] / (1 - p[i]);
  expect_shares(draws.select(1, 1), second);
  const std::vector<double> all = shares(multinomial(tensor<float>({1, 2, 3}), 3), 3);
  EXPECT_EQ(all, (std::vector<double>{1. / 3, 1. / 3, 1. / 3}));
}

TEST(Sampling, OfNoRowsNothingIsDrawn) {
  for (const Device device : devices()) {
    const Tensor none = ones({0, 5}).to(device);
    EXPECT_EQ(sample(none).shape(), Shape{0}) << device;
    EXPECT_EQ(multinomial(none, 2).shape(), (Shape{0, 2})) << device;
  }
}

TEST(Sampling, TheSameOnEveryDeviceAndInEveryLayout) {
  const Tensor logits = (normal({40, 137}, 1) * 3.0).to(DType::f32);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    std::vector<std::vector<int64_t>> first;
    for (const Device device : devices())
      for (const bool strided : {false, true}) {
        Generator generator(7, 11);
        const Tensor there = logits.to(dtype).to(device), x = strided ? strided_copy(there) : there;
        std::vector<std::vector<int64_t>> draws;
        for (const Tensor& y :
             {sample(x, {.generator = &generator}),
              sample(x, {.temperature = 0.7, .top_k = 20, .top_p = 0.9, .generator = &generator}),
              multinomial(exp(logits).to(dtype).to(device), 5, {.generator = &generator})}) {
          EXPECT_EQ(y.device(), device);
          draws.push_back(y.to_vector<int64_t>());
        }
        EXPECT_EQ(generator.offset(), 14u);
        if (first.empty()) first = draws;
        EXPECT_EQ(draws, first) << device << (strided ? " strided" : "");
      }
  }
}

TEST(Sampling, ShapesAndRequiredGradients) {
  const Tensor x = zeros({2, 3, 4}).set_requires_grad();
  EXPECT_EQ(sample(x).shape(), (Shape{2, 3}));
  EXPECT_FALSE(sample(x).requires_grad());
  EXPECT_EQ(multinomial(exp(x), 2).shape(), (Shape{2, 3, 2}));
  EXPECT_EQ(multinomial(zeros({0, 4}), 2).shape(), (Shape{0, 2}));
  EXPECT_EQ(sample(zeros({4})).rank(), 0);
}

TEST(Sampling, Errors) {
  for (const Device device : devices()) {
    SCOPED_TRACE(concat(device));
    const auto row = [&](std::initializer_list<float> values) { return tensor<float>(values, device); };
    for (const Tensor& bad : {row({1, NAN}), row({1, -1}), row({0, 0}), row({1, HUGE_VALF})})
      expect_error<NumericError>([&] { multinomial(bad, 1); }, {"multinomial", "a row of weights"});
    expect_error<NumericError>([&] { multinomial(row({1, 0, 2}), 3); }, {"multinomial", "fewer above 0"});
    for (const Tensor& bad : {row({1, NAN}), row({-HUGE_VALF, -HUGE_VALF}), row({1, HUGE_VALF})}) {
      expect_error<NumericError>([&] { sample(bad); }, {"sample", "a row of logits"});
      expect_error<NumericError>([&] { sample(bad, {.top_k = 1, .top_p = 0.5}); }, {"sample"});
    }
    EXPECT_EQ(sample(row({-HUGE_VALF, 2})).item<int64_t>(), 1);
  }
  const Tensor x = zeros({2, 3});
  expect_error<ConfigError>([&] { sample(x, {.temperature = 0}); }, {"sample", "temperature is 0"});
  expect_error<ConfigError>([&] { sample(x, {.top_k = -1}); }, {"sample", "top_k is -1"});
  expect_error<ConfigError>([&] { sample(x, {.top_p = 0}); }, {"sample", "top_p is 0"});
  expect_error<ConfigError>([&] { multinomial(x, -1); }, {"multinomial", "-1"});
  expect_error<ShapeError>([&] { sample(zeros({2, 0})); }, {"sample", "[2, 0]"});
  expect_error<ShapeError>([&] { sample(scalar(1)); }, {"sample", "rank 0"});
  expect_error<DTypeError>([&] { sample(x.to(DType::i64)); }, {"sample", "i64"});
}

}  // namespace
}  // namespace heed::test
