// Freezing under optimizers, and what is written to parameters between their steps.
#include <cmath>

#include <gtest/gtest.h>

#include <heed/core/base/memory/allocator.h>
#include <heed/core/ops.h>
#include <heed/core/runtime/captured_step.h>
#include <heed/nn/layers/linear.h>
#include <heed/nn/weights.h>
#include <heed/optim/adam.h>
#include <heed/optim/lion.h>
#include <heed/optim/sgd.h>

#include "each_device.h"
#include "expect_error.h"
#include "temporary_folder.h"

namespace heed::optim {
namespace {

class FreezeOn : public test::EachDevice {
 protected:
  static std::unique_ptr<nn::Linear> linear(DType dtype = DType::f32) {
    manual_seed(1);
    auto result = std::make_unique<nn::Linear>(64, 8);
    result->to(dtype);
    result->to(device());
    return result;
  }
  static Tensor input(const nn::Linear& l, uint64_t seed = 1) {
    return test::normal({4, 64}, seed).to(l.weight.dtype()).to(device());
  }
  static void backward(const nn::Linear& l, uint64_t seed = 1) { sum(square(l(input(l, seed)))).backward(); }
  static std::vector<float> values(const Tensor& x) { return x.detach().to(DType::f32).to_vector<float>(); }
  static int64_t in_use() { return allocator(device()).stats().in_use; }
};
HEED_ON_EACH_DEVICE(FreezeOn);

TEST_P(FreezeOn, AfterTheOptimizerWasMade) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const auto l = linear(dtype);
    Adam adam(l->parameters(), {.lr = 0.1, .weight_decay = 0.1});
    const std::vector<float> bias = values(l->bias), weight = values(l->weight);
    l->bias.set_requires_grad(false);
    backward(*l);
    EXPECT_EQ(adam.step({.clip = 1}).without_gradient, 0) << "a frozen one misses none";
    EXPECT_EQ(values(l->bias), bias);
    EXPECT_NE(values(l->weight), weight);
    l->parameters().zero_grad();
  }
}

TEST_P(FreezeOn, AGradientFromBeforeIsNotStepped) {
  const auto l = linear();
  Sgd sgd(l->parameters());
  const std::vector<float> bias = values(l->bias);
  backward(*l);
  l->bias.set_requires_grad(false);
  sgd.step();
  EXPECT_EQ(values(l->bias), bias);
}

TEST_P(FreezeOn, ThawedItGoesOnAsIfItHadOnlyHadNoGradient) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const auto frozen = linear(dtype), other = linear(dtype);
    Adam a(frozen->parameters()), b(other->parameters());
    for (uint64_t i = 0; i < 9; ++i) {
      const bool resting = i >= 3 && i < 6;
      frozen->set_requires_grad(!resting, "bias");
      backward(*frozen, i);
      backward(*other, i);
      if (resting) other->bias.zero_grad();
      a.step();
      b.step();
    }
    EXPECT_EQ(values(frozen->bias), values(other->bias));
    EXPECT_EQ(values(frozen->weight), values(other->weight));
  }
}

TEST_P(FreezeOn, FrozenAndThawedAtOnceChangesNothing) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const auto toggled = linear(dtype), other = linear(dtype);
    Adam a(toggled->parameters()), b(other->parameters());
    toggled->weight.set_requires_grad(false);
    toggled->weight.set_requires_grad();
    for (uint64_t i = 0; i < 3; ++i) {
      backward(*toggled, i);
      backward(*other, i);
      EXPECT_EQ(toggled->weight.grad().dtype(), DType::f32);
      a.step();
      b.step();
    }
    EXPECT_EQ(values(toggled->weight), values(other->weight));
  }
}

TEST_P(FreezeOn, FrozenBeforeItHasNoMomentsUntilItIsThawed) {
  const int64_t moments = 2 * 512 * 512 * 4;
  nn::Linear l(512, 512);
  l.to(device());
  l.set_requires_grad(false, "weight");
  const int64_t before = in_use();
  AdamW adam(l.parameters());
  EXPECT_LT(in_use(), before + moments);
  const auto names = [&] {
    std::string all;
    for (const auto& entry : adam.state()) all += entry.first + ' ';
    return all;
  };
  EXPECT_EQ(names(), "step step.weight step.bias m.bias v.bias ");
  const auto train = [&] {
    sum(square(l(ones({1, 512}, {.device = device()})))).backward();
    adam.step();
  };
  const std::vector<float> weight = values(l.weight);
  train();
  EXPECT_EQ(values(l.weight), weight);
  l.set_requires_grad(true);
  train();
  EXPECT_NE(values(l.weight), weight);
  EXPECT_GE(in_use(), before + moments);
  EXPECT_EQ(names(), "step step.weight m.weight v.weight step.bias m.bias v.bias ");
}

TEST_P(FreezeOn, StatesTravelBetweenFrozenAndThawed) {
  const auto from = linear(), to = linear();
  from->set_requires_grad(false, "bias");
  Adam saved(from->parameters()), loaded(to->parameters());
  for (uint64_t i = 0; i < 3; ++i) {
    backward(*from, i);
    saved.step();
    backward(*to, i);
    loaded.step();
  }
  loaded.load_state(saved.state());  // bias, which was frozen there, starts anew
  for (const auto& entry : loaded.state()) {
    const bool all_zero = norm(entry.second.to(kCpu).to(DType::f64)).item<double>() == 0;
    EXPECT_EQ(all_zero, entry.first.ends_with("bias")) << entry.first;
  }
  const auto third = linear();
  third->set_requires_grad(false, "weight");
  Adam thaws(third->parameters());
  thaws.load_state(saved.state());  // of a frozen parameter: kept until it is thawed
  std::vector<float> kept;
  for (const auto& entry : thaws.state())
    if (entry.first == "m.weight") kept = values(entry.second);
  for (const auto& entry : saved.state())
    if (entry.first == "m.weight") {
      EXPECT_EQ(kept, values(entry.second));
    }
}

TEST(Freeze, AThawedParameterInACapturedStep) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
  const Tensor x = ones({6}, {.device = cuda_device()}).set_requires_grad();
  const Tensor y = x.detach().clone().set_requires_grad(false);
  Adam adam(Parameters({{"x", {}, x}, {"y", {}, y}}));
  CapturedStep step(cuda_device(), [&](const StepInputs& inputs) {
    sum((x + y) * inputs.tensors[0]).backward();
    adam.step();
    return PooledVector<Tensor>{};
  });
  step({{ones({6})}, {}});
  y.set_requires_grad();
  test::expect_error<StateError>([&] { step({{ones({6})}, {}}); }, {"'y' was thawed and has no moments yet"});
}

// ---- writes between steps

TEST_P(FreezeOn, WhatIsWrittenAfterTheOptimizerWasMadeStays) {
  const test::TemporaryFolder folder;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const auto model = linear(dtype), trained = linear(dtype);
    {
      const NoGrad no_grad;
      trained->weight.copy_(test::normal(trained->weight.shape(), 7));
    }
    nn::save_weights(*trained, folder.file("trained"));
    AdamW adam(model->parameters(), {.lr = 1e-5});
    nn::load_weights(*model, folder.file("trained"));
    for (uint64_t i = 0; i < 2; ++i) {
      backward(*model, i);
      adam.step();
    }
    EXPECT_LE(test::max_difference(model->weight.to(DType::f32), trained->weight.to(DType::f32)), 0.01)
        << dtype;
  }
}

TEST_P(FreezeOn, EachKindOfWriteStays) {
  const Tensor w = ones({2}, {.dtype = DType::bf16, .device = device()}).set_requires_grad();
  AdamW adam(Parameters({{"w", {}, w}}), {.lr = 0, .weight_decay = 0});
  const auto after_a_step = [&] {
    sum(w.to(DType::f32)).backward();
    adam.step();
    return values(w)[0];
  };
  {
    const NoGrad no_grad;
    w.fill_(5);
  }
  EXPECT_EQ(after_a_step(), 5);
  w.detach().slice(0, 0, 1).fill_(3);
  EXPECT_EQ(after_a_step(), 3);
  EXPECT_EQ(values(w)[1], 5);
  sum(w.to(DType::f32) * double(INFINITY)).backward();
  w.detach().fill_(2);
  EXPECT_TRUE(adam.step({.non_finite = NonFinite::skip, .measure_norm = true}).skipped());
  EXPECT_EQ(after_a_step(), 2) << "a skipped step has not taken it over";
}

TEST_P(FreezeOn, AWriteOfTheSameValueLeavesTheMastersDigits) {
  const auto run = [&](bool rewritten) {
    const Tensor w = ones({8}, {.dtype = DType::bf16, .device = device()}).set_requires_grad();
    Sgd sgd(Parameters({{"w", {}, w}}), {.lr = 1e-4});
    for (int i = 0; i < 100; ++i) {
      if (rewritten) w.detach().copy_(w.detach().clone());
      sum(w.to(DType::f32)).backward();
      sgd.step();
    }
    return values(w)[0];
  };
  EXPECT_NEAR(run(false), 0.99, 0.004);
  EXPECT_EQ(run(true), run(false));
}

TEST(Freeze, AWriteBetweenCapturedStepsStays) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
  const Tensor w = ones({300}, {.dtype = DType::bf16, .device = cuda_device()}).set_requires_grad();
  Sgd sgd(Parameters({{"w", {}, w}}), {.lr = 1e-3});
  CapturedStep step(cuda_device(), [&](const StepInputs& inputs) {
    sum(w.to(DType::f32) * inputs.tensors[0]).backward();
    sgd.step();
    return PooledVector<Tensor>{};
  });
  for (int i = 0; i < 5; ++i) step({{ones({300})}, {}});
  EXPECT_EQ(step.graphs(), 1);
  w.detach().fill_(4);
  step({{ones({300})}, {}});
  for (const float v : w.detach().to(DType::f32).to_vector<float>()) ASSERT_EQ(v, 4);
  for (int i = 0; i < 100; ++i) step({{ones({300})}, {}});
  for (const float v : w.detach().to(DType::f32).to_vector<float>()) ASSERT_NEAR(v, 4 - 0.101, 0.017);
}

}  // namespace
}  // namespace heed::optim
