#include <gtest/gtest.h>

#include <heed/core/ops.h>
#include <heed/core/runtime/captured_step.h>
#include <heed/core/serialize.h>
#include <heed/nn/layers/linear.h>
#include <heed/nn/weights.h>
#include <heed/optim/ema.h>
#include <heed/optim/sgd.h>

#include "each_device.h"
#include "expect_error.h"
#include "temporary_folder.h"

namespace heed::optim {
namespace {

class EmaOn : public test::EachDevice {
 protected:
  static Tensor leaf(double value, DType dtype = DType::f32, int64_t size = 3) {
    return full({size}, value, {.dtype = dtype, .device = device()}).set_requires_grad();
  }
  static std::vector<float> values(const Tensor& x) { return x.detach().to(DType::f32).to_vector<float>(); }
};
HEED_ON_EACH_DEVICE(EmaOn);

TEST_P(EmaOn, FollowsTheFormula) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Tensor x = leaf(2, dtype);
    Ema ema(Parameters({{"x", {}, x}}), 0.75);
    double average = 2;
    for (const double value : {4.0, -1.0, 0.5}) {
      x.detach().fill_(value);
      ema.update();
      average = 0.75 * average + 0.25 * value;
      EXPECT_EQ(values(ema.state()[0].second), std::vector<float>(3, float(average))) << "exact in binary";
      EXPECT_EQ(values(x), std::vector<float>(3, float(value)));
    }
  }
}

// 0.999 and 1 - 0.999, each rounded to a float, do not add up to 1: the sum of their products would drift.
TEST_P(EmaOn, TheAverageOfEqualValuesIsThatValue) {
  const Tensor x = leaf(0.7);
  Ema ema(Parameters({{"x", {}, x}}), 0.999);
  const std::vector<float> before = values(x);
  for (int i = 0; i < 500; ++i) ema.update();
  EXPECT_EQ(values(ema.state()[0].second), before);
}

TEST_P(EmaOn, IsSwappedInForAnEvaluation) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Tensor x = leaf(1, dtype), other = leaf(1, dtype);
    Sgd sgd(Parameters({{"x", {}, x}}), {.lr = 1e-3}), plain(Parameters({{"x", {}, other}}), {.lr = 1e-3});
    Ema ema(sgd.parameters(), 0.5);
    for (int step = 0; step < 50; ++step) {
      for (const Tensor& t : {x, other}) sum(t * 3.0).backward();
      sgd.step();
      plain.step();
      ema.update();
      const std::vector<float> now = values(x);
      {
        const EmaScope averaged(ema);
        EXPECT_NEAR(values(x)[0], values(ema.state()[0].second)[0], dtype == DType::bf16 ? 0.004 : 0);
        EXPECT_THROW(ema.update(), StateError);
        EXPECT_THROW(const EmaScope again(ema), StateError);
      }
      EXPECT_EQ(values(x), now);
    }
    EXPECT_EQ(values(x), values(other)) << "training goes on as if nothing had been swapped, " << dtype;
    EXPECT_LT(values(x)[0], 0.87);
  }
}

TEST_P(EmaOn, IsSavedLoadedAndReadAsWeights) {
  const test::TemporaryFolder folder;
  nn::Linear a(4, 3), b(4, 3);
  a.to(device());
  b.to(device());
  Ema from(a.parameters(), 0.5), to(b.parameters(), 0.5);
  a.weight.detach().fill_(5);
  from.update();
  save_tensors(folder.file("average"), from.state());
  to.load_state(load_tensors(folder.file("average")));
  for (const nn::Linear* l : {&a, &b}) {
    l->weight.detach().fill_(1);
    l->bias.detach().fill_(3);
  }
  from.update();
  to.update();
  for (size_t i = 0; i < 2; ++i)
    EXPECT_TRUE(array_equal(from.state()[i].second, to.state()[i].second)) << from.state()[i].first;
  nn::load_weights(b, folder.file("average"));
  const EmaScope averaged(from);
  EXPECT_FALSE(array_equal(a.weight.detach(), b.weight.detach()))
      << "the file is from before the second update";
  save_tensors(folder.file("average"), from.state());
  nn::load_weights(b, folder.file("average"));
  EXPECT_TRUE(array_equal(a.weight.detach(), b.weight.detach()));
}

TEST_P(EmaOn, WhatDoesNotFitIsRefused) {
  const Tensor x = leaf(1), tied = leaf(2);
  const Parameters parameters({{"x", {}, x}, {"a", {}, tied}, {"b", {}, tied}});
  EXPECT_THROW(Ema(parameters, 1), ConfigError);
  EXPECT_THROW(Ema(parameters, -0.1), ConfigError);
  Ema ema(parameters);
  auto state = ema.state();
  ASSERT_EQ(state.size(), 3u) << "each name, as weights are saved";
  state.pop_back();
  test::expect_error<CheckpointError>([&] { ema.load_state(state); }, {"'b' is missing"});
  state.emplace_back("b", zeros({4}));
  test::expect_error<CheckpointError>([&] { ema.load_state(state); }, {"'b' is f32 [4], expected f32 [3]"});
  state = ema.state();
  state.emplace_back("c", zeros({4}));
  test::expect_error<CheckpointError>([&] { ema.load_state(state); }, {"4 tensors, expected 3"});
}

TEST(Ema, WithinACapturedStep) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
  const auto run = [](bool capture) {
    const Tensor x = ones({5}, {.device = cuda_device()}).set_requires_grad();
    Sgd sgd(Parameters({{"x", {}, x}}), {.lr = 0.1});
    Ema ema(sgd.parameters(), 0.9);
    CapturedStep step(cuda_device(),
                      [&](const StepInputs& inputs) {
                        sum(x * inputs.tensors[0]).backward();
                        sgd.step();
                        ema.update();
                        return PooledVector<Tensor>{};
                      },
                      {.capture = capture});
    for (uint64_t i = 0; i < 6; ++i) step({{test::normal({5}, i).to(DType::f32)}, {}});
    return ema.state()[0].second.to_vector<float>();
  };
  EXPECT_EQ(run(true), run(false));
}

}  // namespace
}  // namespace heed::optim
