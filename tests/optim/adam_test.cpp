#include <cmath>
#include <functional>
#include <string>

#include <gtest/gtest.h>

#include <heed/core/ops.h>
#include <heed/core/runtime/captured_step.h>
#include <heed/optim/adam.h>
#include <heed/optim/schedule.h>
#include <heed/optim/sgd.h>

#include "expect_error.h"
#include "op_check.h"

namespace heed::optim {
namespace {

Tensor leaf(const Shape& shape, uint64_t seed) { return test::normal(shape, seed).set_requires_grad(); }

// Gives x the gradient g.
void set_gradient(const Tensor& x, const Tensor& g) { sum(x * g).backward(); }

TEST(Adam, FollowsTheFormulaForManySteps) {
  for (const bool decoupled : {false, true}) {
    const Tensor x = leaf({5, 3}, 1);
    const Parameters parameters({{"x", {}, x}});
    const AdamOptions options{.lr = 0.01, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.1};
    std::unique_ptr<Optimizer> adam;
    if (decoupled)
      adam = std::make_unique<AdamW>(parameters, options);
    else
      adam = std::make_unique<Adam>(parameters, options);
    std::vector<double> value = x.to_vector<double>(), m(15), v(15);
    for (int step = 1; step <= 50; ++step) {
      const Tensor g = test::normal({5, 3}, static_cast<uint64_t>(100 + step));
      set_gradient(x, g);
      adam->step();
      for (size_t i = 0; i < 15; ++i) {
        double grad = g.data<double>()[i];
        if (decoupled)
          value[i] *= 1 - 0.01 * 0.1;
        else
          grad += 0.1 * value[i];
        m[i] = 0.8 * m[i] + 0.2 * grad;
        v[i] = 0.95 * v[i] + 0.05 * grad * grad;
        const double first = 1 - std::pow(0.8, step), second = 1 - std::pow(0.95, step);
        value[i] -= 0.01 / first * m[i] / (std::sqrt(v[i]) / std::sqrt(second) + 1e-6);
      }
    }
    const std::vector<double> got = x.to_vector<double>();
    for (size_t i = 0; i < 15; ++i) EXPECT_NEAR(got[i], value[i], 1e-12);
    EXPECT_EQ(adam->steps(), 50);
  }
}

TEST(Adam, DecayIsThatOfPyTorchUnlessGiven) {
  const auto after_a_step = [](bool decoupled, const AdamOptions& options) {
    const Tensor x = full({1}, 2.0, {.dtype = DType::f64}).set_requires_grad();
    const Parameters parameters({{"x", {}, x}});
    set_gradient(x, zeros({1}, {.dtype = DType::f64}));
    if (decoupled)
      AdamW(parameters, options).step();
    else
      Adam(parameters, options).step();
    return x.to_vector<double>()[0];
  };
  EXPECT_DOUBLE_EQ(after_a_step(true, {}), 2 * (1 - 1e-3 * 0.01));
  EXPECT_DOUBLE_EQ(after_a_step(true, {.lr = 0.5}), 2 * (1 - 0.5 * 0.01))
      << "a rate of its own changes no decay";
  EXPECT_DOUBLE_EQ(after_a_step(true, {.lr = 0.5, .weight_decay = 0}), 2);
  EXPECT_DOUBLE_EQ(after_a_step(false, {.lr = 0.5}), 2);
}

// They would shrink to some units of the least subnormal number and stay there, where each step is slow.
TEST(Adam, MomentsWithoutGradientsAreNeverSubnormal) {
  const Tensor w = ones({1000}).set_requires_grad();
  Adam adam(Parameters({{"w", {}, w}}), {.lr = 1e-3, .beta2 = 0.9});
  set_gradient(w, full({1000}, 1e-3));
  adam.step();
  for (int step = 0; step < 1100; ++step) {
    set_gradient(w, zeros({1000}));
    adam.step();
  }
  for (const auto& [name, state] : adam.state()) {
    if (state.numel() != 1000) continue;
    for (float value : state.to_vector<float>()) {
      ASSERT_LT(value, 2e-37f) << name;
      ASSERT_NE(std::fpclassify(value), FP_SUBNORMAL) << name;
    }
  }
}

TEST(Sgd, FollowsTheFormula) {
  const Tensor x = leaf({7}, 1);
  Sgd sgd(Parameters({{"x", {}, x}}), {.lr = 0.1, .momentum = 0.9, .nesterov = true});
  std::vector<double> value = x.to_vector<double>(), b(7);
  for (int step = 0; step < 20; ++step) {
    const Tensor g = test::normal({7}, static_cast<uint64_t>(step));
    set_gradient(x, g);
    sgd.step();
    for (size_t i = 0; i < 7; ++i) {
      b[i] = 0.9 * b[i] + g.data<double>()[i];
      value[i] -= 0.1 * (g.data<double>()[i] + 0.9 * b[i]);
    }
  }
  const std::vector<double> got = x.to_vector<double>();
  for (size_t i = 0; i < 7; ++i) EXPECT_NEAR(got[i], value[i], 1e-12);
}

TEST(Optimizer, ClipsInItsOwnPassAndForgetsGradients) {
  const Tensor x = leaf({4}, 1);
  const Parameters parameters({{"x", {}, x}});
  Sgd sgd(parameters, {.lr = 1});
  const std::vector<double> before = x.to_vector<double>();
  set_gradient(x, full({4}, 3, {.dtype = DType::f64}));
  const StepResult result = sgd.step({.clip = 1.5});
  EXPECT_NEAR(result.gradient_norm(), 6, 1e-12);
  const double scale = 1.5 / (6 + 1e-6);
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(x.to_vector<double>()[i], before[i] - 3 * scale, 1e-12);
  EXPECT_FALSE(x.grad().defined());
  EXPECT_EQ(parameters.gradient_norm(), 0);
}

TEST(Optimizer, GradientsAccumulateOverBackwards) {
  const Tensor x = leaf({4}, 1), y = leaf({4}, 1);
  Adam one(Parameters({{"x", {}, x}})), two(Parameters({{"y", {}, y}}));
  const Tensor g = test::normal({4}, 2), h = test::normal({4}, 3);
  set_gradient(x, g + h);
  set_gradient(y, g);
  set_gradient(y, h);
  one.step();
  two.step();
  EXPECT_LE(test::max_difference(x, y), 1e-15);
}

TEST(Optimizer, LeavesParametersWithoutAGradientAlone) {
  const Tensor x = leaf({4}, 1), y = leaf({4}, 2);
  const std::vector<double> before = y.to_vector<double>();
  AdamW adam(Parameters({{"x", {}, x}, {"y", {}, y}}), {.weight_decay = 0.5});
  set_gradient(x, ones({4}, {.dtype = DType::f64}));
  EXPECT_EQ(adam.step().without_gradient, 1);
  EXPECT_EQ(y.to_vector<double>(), before);
}

TEST(Optimizer, GroupsHaveTheirOwnRateAndDecay) {
  const Tensor w = full({2}, 1, {.dtype = DType::f64}).set_requires_grad();
  const Tensor b = full({2}, 1, {.dtype = DType::f64}).set_requires_grad();
  Sgd sgd(Parameters({{"a.weight", {}, w}, {"a.bias", {}, b}}),
          {.lr = 0.1,
           .weight_decay = 0.5,
           .groups = {{.patterns = {"*.bias"}, .lr_factor = 2, .weight_decay = 0}}});
  set_gradient(w, ones({2}, {.dtype = DType::f64}));
  set_gradient(b, ones({2}, {.dtype = DType::f64}));
  sgd.step();
  EXPECT_NEAR(w.to_vector<double>()[0], 1 - 0.1 * (1 + 0.5), 1e-15);
  EXPECT_NEAR(b.to_vector<double>()[0], 1 - 0.2, 1e-15);
}

TEST(Optimizer, ANormThatIsNotFiniteRaisesOrSkips) {
  const Tensor x = leaf({2}, 1);
  Adam adam(Parameters({{"x", {}, x}}));
  const std::vector<double> before = x.to_vector<double>();
  set_gradient(x, full({2}, INFINITY, {.dtype = DType::f64}));
  EXPECT_THROW(adam.step({.clip = 1}), NumericError);
  EXPECT_EQ(x.to_vector<double>(), before);
  EXPECT_TRUE(adam.step({.clip = 1, .non_finite = NonFinite::skip}).skipped());
  EXPECT_EQ(x.to_vector<double>(), before);
  EXPECT_EQ(adam.steps(), 0);
  EXPECT_FALSE(x.grad().defined());
}

TEST(Optimizer, StateSavedAndLoadedGoesOnTheSame) {
  const Tensor x = leaf({5}, 1);
  Adam first(Parameters({{"x", {}, x}}));
  const auto train = [](Adam& adam, const Tensor& t, int from, int to) {
    for (int step = from; step < to; ++step) {
      set_gradient(t, test::normal({5}, static_cast<uint64_t>(step)));
      adam.step();
    }
  };
  train(first, x, 0, 5);
  const Tensor y = x.detach().clone().set_requires_grad();
  Adam second(Parameters({{"x", {}, y}}));
  second.load_state(first.state());
  train(first, x, 5, 9);
  train(second, y, 5, 9);
  EXPECT_EQ(x.to_vector<double>(), y.to_vector<double>());
  EXPECT_EQ(second.steps(), 9);

  auto missing = first.state();
  missing.pop_back();
  EXPECT_THROW(second.load_state(missing), CheckpointError);
  Adam other(Parameters({{"x", {}, leaf({6}, 1)}}));
  EXPECT_THROW(other.load_state(first.state()), CheckpointError);
}

TEST(Optimizer, BFloat16StepsItsMasters) {
  const Tensor x = full({8}, 1, {.dtype = DType::bf16}).set_requires_grad();
  Sgd sgd(Parameters({{"x", {}, x}}), {.lr = 1e-4});
  for (int step = 0; step < 100; ++step) {
    set_gradient(x, ones({8}, {.dtype = DType::bf16}));
    sgd.step();
  }
  EXPECT_NEAR(x.to(DType::f32).to_vector<float>()[0], 0.99, 0.004) << "single steps are too small for bf16";
}

struct Training {
  std::vector<int64_t> sizes;  // elements of each parameter
  uint64_t steps;
  StepOptions step;
};

// All values after steps from the same gradients.
template <class Optimizer, class Options>
std::vector<double> trained(const Options& options, const Training& run, DType dtype, Device device) {
  std::vector<Parameter> list;
  for (const int64_t size : run.sizes) {
    const Tensor value = test::normal({size}, list.size() + 1).to(dtype).to(device);
    list.push_back({"p" + std::to_string(list.size()), {}, value.set_requires_grad()});
  }
  Optimizer optimizer(Parameters(list), options);
  for (uint64_t step = 0; step < run.steps; ++step) {
    for (const Parameter& parameter : list)
      set_gradient(parameter.tensor, test::normal(parameter.tensor.shape(), 10 + step).to(dtype).to(device));
    optimizer.step(run.step);
  }
  std::vector<double> values;
  for (const Parameter& parameter : list) {
    const std::vector<double> more = parameter.tensor.to(kCpu).to(DType::f64).template to_vector<double>();
    values.insert(values.end(), more.begin(), more.end());
  }
  return values;
}

TEST(Optimizer, OnCudaEqualsTheCpu) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
  const auto compare = [](const auto& train, double eps) {
    const std::vector<double> cpu = train(kCpu), cuda = train(cuda_device());
    ASSERT_EQ(cpu.size(), cuda.size());
    for (size_t i = 0; i < cpu.size(); ++i) ASSERT_NEAR(cuda[i], cpu[i], 2 * eps * (1 + std::abs(cpu[i])));
  };
  const AdamOptions adam{.lr = 0.01, .weight_decay = 0.1};
  const SgdOptions sgd{.lr = 0.01, .momentum = 0.9};
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Training& run :
         {Training{{165, 7}, 6, {.clip = 3.0}}, {{165, 7}, 2, {.measure_norm = true}}, {{165, 7}, 2, {}}}) {
      const double eps = test::epsilon(dtype);
      compare([&](Device d) { return trained<Adam>(adam, run, dtype, d); }, eps);
      compare([&](Device d) { return trained<AdamW>(adam, run, dtype, d); }, eps);
      compare([&](Device d) { return trained<Sgd>(sgd, run, dtype, d); }, eps);
    }
  // More than the blocks of a launch take at once, and more parameters than a launch has, of sizes that can
  // and that cannot be read four at a time.
  Training large{{4'300'001, 4'300'004}, 1, {.clip = 3.0}};
  compare([&](Device d) { return trained<Adam>(adam, large, DType::f32, d); }, 0x1p-23);
  Training many{{}, 2, {.clip = 3.0}};
  for (int64_t i = 0; i < 300; ++i) many.sizes.push_back(i % 2 ? 4 * i : 1 + 17 * i % 101);
  compare([&](Device d) { return trained<AdamW>(adam, many, DType::f32, d); }, 0x1p-23);
}

struct CapturedRun {
  std::vector<float> value;
  std::vector<double> norms;
  int64_t steps;
};

// Eight steps with another rate each, the fifth with a gradient that is not finite.
template <class Kind, class Options>
CapturedRun captured_run(const Options& options, Device device, bool capture) {
  const Tensor x = test::normal({6}, 1).to(DType::f32).to(device).set_requires_grad();
  Kind optimizer(Parameters({{"x", {}, x}}), options);
  CapturedStep step(
      device,
      [&](const StepInputs& inputs) {
        sum(x * inputs.tensors[0]).backward();
        return PooledVector<Tensor>{optimizer.step({.clip = 1, .non_finite = NonFinite::skip}).norm};
      },
      {.capture = capture});
  CapturedRun run;
  for (int i = 0; i < 8; ++i) {
    optimizer.set_lr(0.01 * (i + 1));
    const Tensor g =
        i == 4 ? full({6}, INFINITY) : test::normal({6}, static_cast<uint64_t>(10 + i)).to(DType::f32);
    const StepResult result{.norm = step({{g}, {}}).get()[0]};
    EXPECT_EQ(result.skipped(), i == 4);
    run.norms.push_back(result.gradient_norm());
  }
  EXPECT_EQ(step.graphs(), capture && device.is_cuda());
  run.value = x.detach().to_vector<float>();
  run.steps = optimizer.steps();
  return run;
}

template <class Kind, class Options>
void check_captured_runs(const Options& options) {
  const CapturedRun cpu = captured_run<Kind>(options, kCpu, true),
                    called = captured_run<Kind>(options, cuda_device(), false),
                    captured = captured_run<Kind>(options, cuda_device(), true);
  EXPECT_EQ(captured.value, called.value);
  EXPECT_EQ(captured.norms, called.norms);
  EXPECT_EQ(captured.steps, 7);
  EXPECT_EQ(cpu.steps, 7);
  for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(captured.value[i], cpu.value[i], 1e-6);
}

TEST(Optimizer, ACapturedStepTakesEachRateAndLeavesOutWhatIsNotFinite) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
  check_captured_runs<Adam>(AdamOptions{.weight_decay = 0.1});
  check_captured_runs<AdamW>(AdamOptions{.weight_decay = 0.1});
  check_captured_runs<Sgd>(SgdOptions{.momentum = 0.9, .dampening = 0.5});
}

TEST(Optimizer, WhatACapturedStepCannotDo) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
  const auto refused = [](const std::function<void(Optimizer&)>& call, const char* message) {
    const Tensor x = ones({6}, {.device = cuda_device()}).set_requires_grad();
    Adam adam(Parameters({{"x", {}, x}}));
    CapturedStep step(cuda_device(), [&](const StepInputs& inputs) {
      sum(x * inputs.tensors[0]).backward();
      call(adam);
      return PooledVector<Tensor>{};
    });
    step({{ones({6})}, {}});
    const std::vector<float> before = x.detach().to_vector<float>();
    test::expect_error<StateError>([&] { step({{ones({6})}, {}}); }, {message});
    EXPECT_EQ(x.detach().to_vector<float>(), before);
  };
  refused([](Optimizer& adam) { adam.step({.clip = 1}); }, "the host would wait for cuda:0");
  refused(
      [](Optimizer& adam) {
        adam.step();
        adam.set_lr(1);
      },
      "set_lr within a captured step");
}

TEST(Optimizer, ACapturedStepAddsToNoEarlierGradient) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
  const Tensor x = ones({6}, {.device = cuda_device()}).set_requires_grad();
  Sgd sgd(Parameters({{"x", {}, x}}), {.lr = 1});
  CapturedStep step(cuda_device(), [&](const StepInputs& inputs) {
    for (int i = 0; i < 2; ++i) sum(x * inputs.tensors[0]).backward();
    sgd.step();
    return PooledVector<Tensor>{};
  });
  const auto once = [&] { step({{ones({6})}, {}}); };
  once();
  sum(x).backward();
  test::expect_error<StateError>(once,
                                 {"add to a gradient from before it; call zero_grad() before the step"});
  EXPECT_EQ(x.grad().to_vector<float>(), std::vector<float>(6, 1.0f));
  x.zero_grad();
  once();
  once();
  EXPECT_EQ(x.detach().to_vector<float>(), std::vector<float>(6, 1.0f - 3 * 2));
}

TEST(Optimizer, ImpossibleOptions) {
  const auto make = [](AdamOptions options) { Adam adam(Parameters({{"x", {}, leaf({2}, 1)}}), options); };
  EXPECT_THROW(make({.lr = -1}), ConfigError);
  EXPECT_THROW(make({.lr = std::nan("")}), ConfigError);
  EXPECT_THROW(make({.beta1 = 1}), ConfigError);
  EXPECT_THROW(make({.beta2 = -0.1}), ConfigError);
  EXPECT_THROW(make({.eps = 0}), ConfigError);
  EXPECT_THROW(make({.weight_decay = -1}), ConfigError);
  EXPECT_THROW(Adam(Parameters{}), ConfigError);
  EXPECT_THROW(Sgd(Parameters({{"x", {}, leaf({2}, 1)}}), {.nesterov = true}), ConfigError);
}

TEST(Schedule, KnownPoints) {
  const Schedule cosine{.kind = ScheduleKind::cosine, .lr = 2, .warmup = 10, .total = 110};
  EXPECT_DOUBLE_EQ(cosine.at(0), 0.2);
  EXPECT_DOUBLE_EQ(cosine.at(9), 2);
  EXPECT_DOUBLE_EQ(cosine.at(10), 2);
  EXPECT_NEAR(cosine.at(60), 1, 1e-12);
  EXPECT_NEAR(cosine.at(110), 0, 1e-12);
  EXPECT_NEAR(cosine.at(1000), 0, 1e-12);
  const Schedule step{.kind = ScheduleKind::step, .lr = 1, .step_size = 5, .gamma = 0.5};
  EXPECT_DOUBLE_EQ(step.at(4), 1);
  EXPECT_DOUBLE_EQ(step.at(5), 0.5);
  EXPECT_DOUBLE_EQ(step.at(14), 0.25);
  const Schedule linear{.kind = ScheduleKind::linear, .lr = 1, .total = 10, .floor = 0.5};
  EXPECT_DOUBLE_EQ(linear.at(5), 0.75);
  const Schedule noam{.kind = ScheduleKind::noam, .lr = 1e-3, .warmup = 4000};
  EXPECT_DOUBLE_EQ(noam.at(3999), 1e-3);
  EXPECT_DOUBLE_EQ(noam.at(999), 2.5e-4);
  EXPECT_DOUBLE_EQ(noam.at(15999), 5e-4);
  // The paper's formula: d_model^-0.5 * min(step^-0.5, step * warmup^-1.5).
  const Schedule paper{.kind = ScheduleKind::noam, .lr = noam_lr(512, 4000), .warmup = 4000};
  for (const double step : {1.0, 100.0, 4000.0, 4001.0, 100000.0})
    EXPECT_NEAR(paper.at(static_cast<int64_t>(step) - 1),
                std::pow(512, -0.5) * std::min(std::pow(step, -0.5), step * std::pow(4000, -1.5)), 1e-15);
  EXPECT_THROW(noam_lr(0, 1), ConfigError);
  EXPECT_THROW(noam_lr(1, 0), ConfigError);
  EXPECT_GT(noam.at(3999), noam.at(3998));
  EXPECT_GT(noam.at(3999), noam.at(4000));
  EXPECT_THROW((Schedule{.kind = ScheduleKind::cosine, .total = 0}.check()), ConfigError);
  const Schedule falling{.kind = ScheduleKind::noam, .lr = 1e-3};  // without a warm-up
  EXPECT_DOUBLE_EQ(falling.at(0), 1e-3);
  EXPECT_DOUBLE_EQ(falling.at(3), 5e-4);
  EXPECT_THROW(parse_schedule("cosinus"), ConfigError);
}

}  // namespace
}  // namespace heed::optim
