// Making tensors from ranges and lists, and reading single elements back.
#include <cmath>
#include <limits>

#include <heed/core/ops.h>

#include "ops/reference.h"

namespace heed::test {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max(), kMin = std::numeric_limits<int64_t>::min();

template <class T>
void expect_range(const Tensor& x, const std::vector<T>& values) {
  EXPECT_EQ(x.dtype(), dtype_of<T>());
  EXPECT_EQ(x.to_vector<T>(), values);
}

TEST(Arange, FloatingNumbersMakeFloats) {
  expect_range<float>(arange(0, 1, 0.25), {0, 0.25f, 0.5f, 0.75f});
  expect_range<float>(arange(0.5, 3), {0.5f, 1.5f, 2.5f});
  expect_range<float>(arange(0, 3.0), {0, 1, 2});
  expect_range<float>(arange(1, 0, -0.5f), {1, 0.5f});
  expect_range<double>(arange(0, 1, 0.25, {.dtype = DType::f64}), {0, 0.25, 0.5, 0.75});
  expect_range<double>(arange(0, 3, 1, {.dtype = DType::f64}), {0, 1, 2});
  expect_range<float>(arange(0, -1.5), {});
}

TEST(Arange, IntegersMakeIntegers) {
  expect_range<int64_t>(arange(0, 3), {0, 1, 2});
  expect_range<int64_t>(arange(5, -4, -3), {5, 2, -1});
  expect_range<int64_t>(arange(3, 0), {});
  expect_range<int64_t>(arange(size_t{2}, 4u), {2, 3});
  expect_range<int32_t>(arange(0, 3, 1, {.dtype = DType::i32}), {0, 1, 2});
  expect_range<int64_t>(arange(0.0, 2.5, 1.0, {.dtype = DType::i64}), {0, 1, 2});
  // What a double cannot hold.
  expect_range<int64_t>(arange(kMax - 2, kMax), {kMax - 2, kMax - 1});
  expect_range<int64_t>(arange(kMin, kMax, int64_t{1} << 62), {kMin, kMin / 2, 0, int64_t{1} << 62});
  expect_range<int64_t>(arange(kMax, kMin, kMin), {kMax, -1});
  const Tensor many = arange(7, 7 + 3 * 40000, 3);  // in several tasks
  for (const int64_t i : {0, 16383, 16384, 39999}) EXPECT_EQ(many[i].item<int64_t>(), 7 + 3 * i);
}

TEST(Arange, WhatCannotBeIsAnError) {
  expect_error<ShapeError>([] { arange(0, 1e19); }, {"arange: from 0 to 1e+19 by 1", "2^63 - 1"});
  expect_error<ShapeError>([] { arange(kMin, kMax); }, {"arange", "2^63 - 1"});
  expect_error<ShapeError>([] { arange(-1e308, 1e308, 1e-3); }, {"arange", "inf elements"});
  expect_error<ConfigError>([] { arange(0, INFINITY); }, {"arange", "to inf", "finite"});
  expect_error<ConfigError>([] { arange(0, NAN); }, {"arange", "nan"});
  expect_error<ConfigError>([] { arange(-INFINITY, 0); }, {"arange", "-inf"});
  expect_error<ConfigError>([] { arange(0, 5, 0); }, {"arange", "step is 0"});
  expect_error<ConfigError>([] { arange(0, 5, 0.0); }, {"arange", "step not 0"});
  expect_error<ConfigError>([] { arange(0, 1, 0.25, {.dtype = DType::i64}); }, {"0.25 is not an i64 number"});
  expect_error<ConfigError>([] { arange(0, 1e19, 1, {.dtype = DType::i64}); },
                            {"1e+19 is not an i64 number"});
  expect_error<ConfigError>([] { arange(0, int64_t{1} << 40, int64_t{1} << 39, {.dtype = DType::i32}); },
                            {"549755813888 does not fit i32"});
  expect_error<ConfigError>([] { arange(0, std::numeric_limits<uint64_t>::max()); }, {"2^63 - 1"});
}

TEST(TensorOfAList, PlainIntegersAreIndices) {
  expect_range<int64_t>(tensor({1, 2}), {1, 2});
  expect_range<int32_t>(tensor<int32_t>({1, 2}), {1, 2});
  expect_range<int64_t>(tensor<int64_t>({1, 2}), {1, 2});
  expect_range<double>(tensor({1.5, 2.0}), {1.5, 2});
  expect_range<float>(tensor({1.0f}), {1});
  expect_range<bool>(tensor({true, false}), {true, false});
  const Tensor table = arange(0, 6, 1, {.dtype = DType::f32}).view({3, 2});
  EXPECT_EQ(embedding(tensor({2, 0}), table).to_vector<float>(), (std::vector<float>{4, 5, 0, 1}));
  EXPECT_NEAR(cross_entropy(zeros({2, 4}), tensor({3, 1})).item<float>(), std::log(4.0f), 1e-6);
}

TEST(Item, GivesWhatTheTypeHoldsOrAnError) {
  const auto of = [](double value, DType dtype) { return full({1}, value, {.dtype = dtype}); };
  EXPECT_EQ(of(2.75, DType::f32).item<int>(), 2);
  EXPECT_EQ(of(-2.75, DType::f64).item<int64_t>(), -2);
  EXPECT_EQ(of(-0x1p63, DType::f64).item<int64_t>(), kMin);
  EXPECT_EQ(tensor<int64_t>({kMax}).item<int64_t>(), kMax);
  EXPECT_EQ(tensor<int64_t>({kMax}).item<uint64_t>(), static_cast<uint64_t>(kMax));
  EXPECT_EQ(of(255, DType::i32).item<uint8_t>(), 255);
  EXPECT_EQ(of(1, DType::boolean).item<int>(), 1);
  for (const double value : {1e30, -1e30, 0x1p63, double(NAN), double(INFINITY)})
    expect_error<NumericError>([&] { of(value, DType::f32).item<int64_t>(); },
                               {"item", "64-bit integer", "f32"});
  expect_error<NumericError>([&] { of(0x1p40, DType::i64).item<int>(); },
                             {"1099511627776 does not fit", "-2147483648 and 2147483647"});
  expect_error<NumericError>([&] { of(0x1p40, DType::f64).item<int32_t>(); }, {"1099511627776"});
  expect_error<NumericError>([&] { of(-1, DType::i64).item<uint64_t>(); }, {"-1 does not fit"});
  expect_error<NumericError>([&] { of(256, DType::i32).item<uint8_t>(); }, {"256", "0 and 255"});
}

TEST(Index, ChoosesAlongTheFirstAxis) {
  const Tensor x = arange(0, 6).view({2, 3});
  expect_range<int64_t>(x[1], {3, 4, 5});
  expect_range<int64_t>(x[-1][0], {3});
  expect_error<IndexError>([&] { x[2]; }, {"index 2", "[-2, 1]"});
  expect_error<IndexError>([&] { x[0][0][0]; }, {"rank 0"});
  const Tensor leaf = tensor<float>({1, 2}).set_requires_grad();
  square(leaf[1]).backward();
  EXPECT_EQ(leaf.grad().to_vector<float>(), (std::vector<float>{0, 4}));
}

}  // namespace
}  // namespace heed::test
