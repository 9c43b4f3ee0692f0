#include <cmath>

#include <gtest/gtest.h>

#include <heed/core/base/memory/allocator.h>
#include <heed/core/ops.h>
#include <heed/core/parameters.h>

#include "each_device.h"
#include "expect_error.h"

namespace heed::test {
namespace {

class ParametersOn : public EachDevice {
 protected:
  static Tensor leaf(const Shape& shape, uint64_t seed, DType dtype = DType::f32) {
    return normal(shape, seed).to(dtype).to(device()).set_requires_grad();
  }
};
HEED_ON_EACH_DEVICE(ParametersOn);

TEST_P(ParametersOn, PackingKeepsValuesAndSharesHandles) {
  const Tensor a = leaf({3, 5}, 1), b = leaf({7}, 2);
  const std::vector<float> before = a.to_vector<float>();
  const Parameters parameters({{"a", {}, a}, {"b", {}, b}});
  EXPECT_EQ(a.to_vector<float>(), before);
  EXPECT_EQ(parameters.size(), 2);
  EXPECT_EQ(parameters.numel(), 22);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(b.raw_data()) % 128, 0u);
  parameters[0].tensor.detach().fill_(2);
  EXPECT_EQ(a.to_vector<float>(), std::vector<float>(15, 2.0f));
}

TEST_P(ParametersOn, GradientsCountUntilTheyAreForgotten) {
  const Tensor a = leaf({4}, 1), b = leaf({4}, 2);
  const Parameters parameters({{"a", {}, a}, {"b", {}, b}});
  sum(a * 3.0).backward();
  EXPECT_EQ(parameters.with_gradient(), PooledVector<int64_t>{0});
  EXPECT_FALSE(parameters.gradient(1).defined());
  EXPECT_EQ(parameters.gradient(0).to_vector<float>(), std::vector<float>(4, 3.0f));
  EXPECT_NEAR(parameters.gradient_norm(), 6, 1e-12);
  sum(a + b).backward();
  EXPECT_NEAR(parameters.gradient_norm(), std::sqrt(4 * 16.0 + 4), 1e-12);
  parameters.zero_grad();
  EXPECT_FALSE(a.grad().defined());
  EXPECT_EQ(parameters.gradient_norm(), 0);
}

TEST_P(ParametersOn, AForgottenGradientNeitherCountsNorHasMemory) {
  const Tensor a = leaf({400, 400}, 1);
  const Parameters parameters({{"a", {}, a}});
  const int64_t before = allocator(device()).stats().in_use;
  sum(a).backward();
  EXPECT_GE(allocator(device()).stats().in_use, before + 640000);
  a.zero_grad();
  EXPECT_EQ(parameters.gradient_norm(), 0);
  EXPECT_LT(allocator(device()).stats().in_use, before + 640000);
}

TEST_P(ParametersOn, WhoeverHoldsAGradientKeepsIt) {
  const Tensor a = leaf({4}, 1);
  const Parameters parameters({{"a", {}, a}});
  sum(a * 3.0).backward();
  const Tensor held = a.grad();
  parameters.zero_grad();
  sum(a * 5.0).backward();
  EXPECT_EQ(held.to_vector<float>(), std::vector<float>(4, 3.0f));
  EXPECT_EQ(a.grad().to_vector<float>(), std::vector<float>(4, 5.0f));
}

TEST_P(ParametersOn, AnEarlierGradientStays) {
  const Tensor a = leaf({2}, 1);
  sum(a * 5.0).backward();
  const Parameters parameters({{"a", {}, a}});
  EXPECT_EQ(a.grad().to_vector<float>(), std::vector<float>(2, 5.0f));
  EXPECT_NEAR(parameters.gradient_norm(), 5 * std::sqrt(2.0), 1e-12);
}

TEST_P(ParametersOn, TiedIsOneSlotWithTwoNames) {
  const Tensor a = leaf({4}, 1);
  const Parameters parameters({{"first", {}, a}, {"second", {}, a}});
  EXPECT_EQ(parameters.size(), 1);
  EXPECT_EQ(parameters.find("second"), parameters.find("first"));
  EXPECT_EQ(parameters[0].aliases, std::vector<std::string>{"second"});
  EXPECT_EQ(parameters.find("third"), nullptr);
}

TEST_P(ParametersOn, SlotsHaveVersionsOfTheirOwn) {
  const Tensor a = leaf({4}, 1), b = leaf({4}, 2);
  const Parameters parameters({{"a", {}, a}, {"b", {}, b}});
  const Tensor y = a * b;
  b.bump_version();
  EXPECT_THROW(sum(y).backward(), AutogradError);
  const Tensor z = a * a;
  b.bump_version();
  EXPECT_NO_THROW(sum(z).backward());
}

TEST_P(ParametersOn, BFloat16KeepsGradientsInFloat) {
  const Tensor a = leaf({4}, 1, DType::bf16);
  const Parameters parameters({{"a", {}, a}});
  EXPECT_EQ(parameters.gradient_dtype(), DType::f32);
  sum(a * 2.0).backward();
  EXPECT_EQ(a.grad().dtype(), DType::f32);
  EXPECT_EQ(a.grad().to_vector<float>(), std::vector<float>(4, 2.0f));
}

TEST_P(ParametersOn, AGradientIsConvertedWithItsParameter) {
  if (device().is_cuda()) GTEST_SKIP() << "CUDA has no f64";
  const Tensor a = leaf({4}, 1);
  const Parameters parameters({{"a", {}, a}});
  sum(a * 2.0).backward();
  parameters.to(DType::f64);
  EXPECT_EQ(a.grad().dtype(), DType::f64);
  sum(a * 3.0).backward();
  EXPECT_EQ(a.grad().to_vector<double>(), std::vector<double>(4, 5.0));
}

TEST_P(ParametersOn, MoveWithTheirGradients) {
  const Tensor a = normal({4}, 1).to(DType::f32).set_requires_grad();
  const std::vector<float> before = a.to_vector<float>();
  const Parameters parameters({{"a", {}, a}});
  sum(a * 2.0).backward();
  parameters.to(device());
  EXPECT_EQ(a.device(), device());
  EXPECT_EQ(a.grad().device(), device());
  EXPECT_EQ(a.to_vector<float>(), before);
  sum(a * 3.0).backward();
  EXPECT_EQ(a.grad().to_vector<float>(), std::vector<float>(4, 5.0f));
}

TEST_P(ParametersOn, ConvertAndHold) {
  if (device().is_cuda()) GTEST_SKIP() << "CUDA has no f64";
  const Tensor a = leaf({4}, 1);
  const Parameters parameters({{"a", {}, a}});
  const std::vector<double> before = a.to(DType::f64).to_vector<double>();
  parameters.to(DType::f64);
  EXPECT_EQ(a.dtype(), DType::f64);
  EXPECT_EQ(a.to_vector<double>(), before);
  sum(a).backward();
  EXPECT_EQ(a.grad().dtype(), DType::f64);
  parameters.hold();
  EXPECT_THROW(parameters.to(DType::f32), StateError);
}

TEST_P(ParametersOn, Errors) {
  const Tensor a = leaf({4}, 1);
  EXPECT_THROW(Parameters({{"", {}, a}}), ConfigError);
  EXPECT_THROW(Parameters({{"a", {}, a}, {"a", {}, leaf({2}, 2)}}), ConfigError);
  expect_error<ConfigError>(
      [&] {
        Parameters({{"a", {}, zeros({2})}});
      },
      {"'a' is no leaf", "call set_requires_grad(), or set_requires_grad(false)"});
  expect_error<ConfigError>([&] { Parameters({{"a", {}, a * 2.0}}); }, {"but the result of mul"});
  EXPECT_THROW(Parameters({{"a", {}, a}}).to(DType::i64), DTypeError);
  EXPECT_EQ(a.dtype(), DType::f32);
  EXPECT_THROW(Parameters().dtype(), StateError);
}

// ---- lists that share parameters

TEST_P(ParametersOn, APartAndTheWholeMayBeListedInAnyOrder) {
  const Tensor a = leaf({4}, 1), b = leaf({70}, 2), c = leaf({2, 3}, 3);
  const std::vector<float> before = b.to_vector<float>();
  const Parameters part({{"b", {}, b}});
  const void* const place = b.raw_data();
  const Parameters whole({{"a", {}, a}, {"b", {}, b}, {"c", {}, c}}), again({{"c", {}, c}, {"a", {}, a}});
  EXPECT_EQ(b.raw_data(), place) << "what is packed stays where it is";
  EXPECT_EQ(b.to_vector<float>(), before);
  EXPECT_EQ(whole.numel(), 80);
  sum(a * 3.0).backward();
  sum(b * 2.0).backward();
  EXPECT_EQ(part.with_gradient(), PooledVector<int64_t>{0});
  EXPECT_EQ(whole.with_gradient(), (PooledVector<int64_t>{0, 1}));
  EXPECT_NEAR(part.gradient_norm(), std::sqrt(70 * 4.0), 1e-12);
  EXPECT_NEAR(whole.gradient_norm(), std::sqrt(36 + 70 * 4.0), 1e-12);
  again.zero_grad();
  EXPECT_FALSE(a.grad().defined());
  EXPECT_TRUE(b.grad().defined());
  for (const Tensor& x : {a, b, c}) EXPECT_EQ(reinterpret_cast<uintptr_t>(x.raw_data()) % 128, 0u);
}

TEST_P(ParametersOn, APartIsConvertedByItselfAndThenTheWhole) {
  const Tensor a = leaf({4}, 1), b = leaf({70}, 2);
  const std::vector<float> values = a.to_vector<float>();
  const Parameters whole({{"a", {}, a}, {"b", {}, b}}), part({{"b", {}, b}});
  part.to(DType::bf16);
  EXPECT_EQ(part.dtype(), DType::bf16);
  EXPECT_EQ(a.dtype(), DType::f32);
  expect_error<ConfigError>([&] { whole.dtype(); }, {"'b' is bf16", "'a' f32", "all must agree"});
  EXPECT_THROW(whole.gradient_norm(), ConfigError);
  const Parameters mixed({{"a", {}, a}, {"b", {}, b}});
  EXPECT_EQ(mixed.numel(), 74);
  sum(b * 2.0).backward();
  EXPECT_EQ(b.grad().dtype(), DType::f32);
  whole.to(DType::bf16);
  EXPECT_EQ(whole.dtype(), DType::bf16);
  whole.to(DType::f32);
  EXPECT_EQ(mixed.dtype(), DType::f32);
  EXPECT_LE(max_difference(a, tensor(values, {4}).to(device())), 0.02);
}

TEST_P(ParametersOn, WhatAnOptimizerHoldsStaysWhoeverLists) {
  const Tensor a = leaf({4}, 1), b = leaf({70}, 2);
  const Parameters whole({{"a", {}, a}, {"b", {}, b}}), part({{"b", {}, b}}), rest({{"a", {}, a}});
  part.hold();
  EXPECT_TRUE(whole.is_held(1));
  expect_error<StateError>([&] { whole.to(DType::bf16); }, {"'b' cannot become bf16", "an optimizer holds"});
  EXPECT_EQ(a.dtype(), DType::f32) << "nothing has changed";
  rest.to(DType::bf16);
  EXPECT_EQ(a.dtype(), DType::bf16);
  whole.to(DType::f32);  // b is
}

TEST_P(ParametersOn, WhatTwoHoldIsFreeWhenBothHaveReleasedIt) {
  const Tensor a = leaf({4}, 1), b = leaf({70}, 2);
  const Parameters whole({{"a", {}, a}, {"b", {}, b}}), part({{"b", {}, b}});
  whole.hold();
  part.hold();
  whole.release();
  EXPECT_FALSE(whole.is_held(0));
  EXPECT_TRUE(whole.is_held(1));
  expect_error<StateError>([&] { whole.to(DType::bf16); }, {"'b' cannot become bf16"});
  expect_error<StateError>([&] { whole.release(); }, {"'a' is released, but nothing holds it"});
  EXPECT_TRUE(whole.is_held(1)) << "nothing has changed";
  part.release();
  whole.to(DType::bf16);
  EXPECT_EQ(b.dtype(), DType::bf16);
}

TEST_P(ParametersOn, AnIndexOutsideIsAnError) {
  const Parameters parameters({{"a", {}, leaf({4}, 1)}, {"b", {}, leaf({70}, 2)}});
  EXPECT_EQ(parameters[1].name, "b");
  for (const int64_t i : {int64_t{-1}, int64_t{2}, int64_t{1} << 62}) {
    expect_error<IndexError>([&] { parameters[i]; }, {"no parameter ", std::to_string(i), "among 2"});
    EXPECT_THROW(parameters.gradient(i), IndexError);
    EXPECT_THROW(parameters.is_held(i), IndexError);
  }
  EXPECT_THROW(Parameters()[0], IndexError);
}

// ---- freezing

TEST_P(ParametersOn, AFrozenOneHasNoGradientAndNoMemoryForOne) {
  const Tensor a = leaf({400, 400}, 1), b = leaf({400, 400}, 2);
  const Parameters parameters({{"a", {}, a}, {"b", {}, b}});
  sum(a * b).backward();
  const int64_t with_both = allocator(device()).stats().in_use;
  a.set_requires_grad(false);
  EXPECT_FALSE(a.requires_grad());
  EXPECT_FALSE(a.grad().defined());
  EXPECT_LE(allocator(device()).stats().in_use, with_both - 640000);
  EXPECT_EQ(parameters.with_gradient(), PooledVector<int64_t>{1});
  parameters.zero_grad();
  const int64_t before = allocator(device()).stats().in_use;
  sum(a * b).backward();
  EXPECT_LT(allocator(device()).stats().in_use, before + 2 * 640000);
  EXPECT_EQ(parameters.with_gradient(), PooledVector<int64_t>{1});
  EXPECT_NEAR(parameters.gradient_norm(), norm(a.to(kCpu)).item<double>(), 1e-2);
  parameters.to(DType::bf16);
  EXPECT_EQ(a.dtype(), DType::bf16);
}

TEST_P(ParametersOn, AFrozenOneCanBeListedAndThawed) {
  for (const bool marked_before : {false, true}) {
    const Tensor a = normal({4}, 1).to(DType::bf16).to(device()), b = leaf({4}, 2, DType::bf16);
    if (marked_before) a.set_requires_grad();
    a.set_requires_grad(false);
    const Parameters parameters({{"a", {}, a}, {"b", {}, b}});
    sum(a * b).backward();
    EXPECT_EQ(parameters.with_gradient(), PooledVector<int64_t>{1});
    a.set_requires_grad();
    sum(a * 2.0).backward();
    EXPECT_EQ(a.grad().dtype(), DType::f32) << "a thawed bf16 parameter has a gradient in f32, as all have";
    EXPECT_EQ(a.grad().to_vector<float>(), std::vector<float>(4, 2.0f));
    EXPECT_NO_THROW(parameters.gradient_norm());
  }
}

TEST_P(ParametersOn, FreezingBetweenForwardAndBackwardCounts) {
  const Tensor a = leaf({4}, 1), b = leaf({4}, 2);
  const Parameters parameters({{"a", {}, a}, {"b", {}, b}});
  const Tensor loss = sum(a * b) + sum(a + b);
  a.set_requires_grad(false);
  loss.backward();
  EXPECT_EQ(parameters.with_gradient(), PooledVector<int64_t>{1});
  a.set_requires_grad();
  EXPECT_FALSE(a.grad().defined());
}

TEST_P(ParametersOn, AFrozenOneMayBeWrittenToWhileGradientsAreOn) {
  const Tensor a = leaf({4}, 1);
  EXPECT_THROW(a.fill_(1), AutogradError);
  a.set_requires_grad(false);
  a.fill_(1);
  EXPECT_EQ(a.to_vector<float>(), std::vector<float>(4, 1.0f));
}

// ---- names

TEST(Patterns, FitAnyName) {
  const Tensor a = ones({2}).set_requires_grad(), b = ones({2}).set_requires_grad();
  const std::vector<Parameter> list =
      join_tied({{"x.weight", {}, a}, {"y.bias", {}, b}, {"z.weight", {}, a}});
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0].aliases, std::vector<std::string>{"z.weight"});
  EXPECT_TRUE(list[0].fits("z.*"));
  EXPECT_FALSE(list[1].fits("*.weight"));
  check_pattern("test", "z.*", list);
  expect_error<ConfigError>(
      [&] { check_pattern("test", "*nrom*", list); },
      {"test: the pattern '*nrom*' fits none of the 2 parameters: 'x.weight', 'y.bias'"});
  EXPECT_THROW(check_pattern("test", "*", {}), ConfigError);
}

}  // namespace
}  // namespace heed::test
