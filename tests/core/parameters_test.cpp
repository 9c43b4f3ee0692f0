#include <cmath>

#include <gtest/gtest.h>

#include <heed/core/base/allocator.h>
#include <heed/core/ops.h>
#include <heed/core/parameters.h>

#include "each_device.h"

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
  parameters.slot(parameters.values(), 0).fill_(2);
  EXPECT_EQ(a.to_vector<float>(), std::vector<float>(15, 2.0f));
}

TEST_P(ParametersOn, GapsStayZero) {
  const Parameters parameters({{"a", {}, leaf({3}, 1)}, {"b", {}, leaf({5}, 2)}});
  const std::vector<float> values = parameters.values().to_vector<float>();
  for (int64_t i = 3; i < parameters.offset(1); ++i) EXPECT_EQ(values[static_cast<size_t>(i)], 0.0f);
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
  EXPECT_THROW(Parameters({{"a", {}, zeros({2})}}), ConfigError);
  EXPECT_THROW(Parameters({{"a", {}, a}, {"b", {}, normal({2}, 1).set_requires_grad()}}), ConfigError);
  const Parameters parameters({{"a", {}, a}});
  EXPECT_THROW(Parameters({{"a", {}, a}}), StateError);
  EXPECT_THROW(Parameters().values(), StateError);
}

}  // namespace
}  // namespace heed::test
