// Each parameter counts its own steps, as in PyTorch: when its first gradient comes, and how often it gets
// one, is its own affair.
#include <cmath>
#include <map>

#include <gtest/gtest.h>

#include <heed/core/ops.h>
#include <heed/core/runtime/captured_step.h>
#include <heed/core/serialize.h>
#include <heed/optim/adam.h>
#include <heed/optim/lion.h>
#include <heed/optim/sgd.h>

#include "each_device.h"
#include "expect_error.h"
#include "temporary_folder.h"

namespace heed::optim {
namespace {

using State = std::vector<std::pair<std::string, Tensor>>;

class StepsOn : public test::EachDevice {
 protected:
  static DType dtype() { return device().is_cpu() ? DType::f64 : DType::f32; }  // CUDA has no f64
  static double tolerance() { return device().is_cpu() ? 1e-12 : 1e-6; }
  static Tensor one() { return ones({1}, {.dtype = dtype(), .device = device()}).set_requires_grad(); }
  static double value(const Tensor& x) { return x.detach().to(kCpu).to(DType::f64).item<double>(); }
};
HEED_ON_EACH_DEVICE(StepsOn);

// PyTorch 2.15 gives 0.9 in each case.
TEST_P(StepsOn, AdamsFirstStepIsThatOfTheParameter) {
  for (const int late : {1, 2, 5, 100}) {
    const Tensor w = one(), u = one();
    Adam adam(Parameters({{"w", {}, w}, {"u", {}, u}}), {.lr = 0.1});
    for (int i = 1; i <= late; ++i) {
      (i == late ? w * 2.0 + u * 3.0 : w * 2.0).backward();
      adam.step();
    }
    EXPECT_NEAR(value(u), 0.9, 1e-6 + tolerance()) << late;
  }
}

// PyTorch 2.15: 0.700000001 after three steps each.
TEST_P(StepsOn, AdamInTurns) {
  const Tensor w = one(), u = one();
  Adam adam(Parameters({{"w", {}, w}, {"u", {}, u}}), {.lr = 0.1});
  for (int i = 0; i < 6; ++i) {
    (i % 2 ? w * 2.0 : u * 3.0).backward();
    adam.step();
  }
  EXPECT_NEAR(value(u), 0.700000001, tolerance() + 1e-9);
  EXPECT_EQ(adam.steps(), 6);
}

// PyTorch 2.15: 0.7, since the first momentum is the gradient whatever the dampening.
TEST_P(StepsOn, TheFirstMomentumIsThatOfTheParameter) {
  const Tensor a = one(), b = one();
  Sgd sgd(Parameters({{"a", {}, a}, {"b", {}, b}}), {.lr = 0.1, .momentum = 0.9, .dampening = 0.5});
  (a * 2.0).backward();
  sgd.step();
  (a * 2.0 + b * 3.0).backward();
  sgd.step();
  EXPECT_NEAR(value(b), 0.7, tolerance());
}

// A captured step has the counts in the memory of the device; two kinds of steps share them.
TEST(Steps, InCapturedSteps) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
  const auto run = [](Device device, bool capture) {
    const Tensor w = ones({3}, {.device = device}).set_requires_grad(), u = w.detach().clone();
    u.set_requires_grad();
    Adam adam(Parameters({{"w", {}, w}, {"u", {}, u}}), {.lr = 0.1});
    CapturedStep step(device,
                      [&](const StepInputs& inputs) {
                        const Tensor x = inputs.tensors[0];
                        (inputs.constants[0] ? sum(w * x) + sum(u * x) : sum(w * x)).backward();
                        adam.step();
                        return PooledVector<Tensor>{};
                      },
                      {.capture = capture});
    for (int i = 0; i < 12; ++i)
      step({{test::normal({3}, static_cast<uint64_t>(i)).to(DType::f32)}, {i % 3 == 2}});
    EXPECT_EQ(step.graphs(), capture ? 2 : 0);
    std::vector<float> values = w.detach().to_vector<float>();
    for (const float v : u.detach().to_vector<float>()) values.push_back(v);
    return values;
  };
  const std::vector<float> called = run(cuda_device(), false), cpu = run(kCpu, false);
  EXPECT_EQ(run(cuda_device(), true), called);
  for (size_t i = 0; i < cpu.size(); ++i) EXPECT_NEAR(called[i], cpu[i], 1e-6);
}

// ---- state

struct Pair {
  Tensor w, u;
  Parameters parameters;
  Pair(Device device, DType dtype, uint64_t seed)
      : w(test::normal({5}, seed).to(dtype).to(device).set_requires_grad()),
        u(test::normal({70}, seed + 1).to(dtype).to(device).set_requires_grad()),
        parameters({{"w", {}, w}, {"u", {}, u}}) {}

  // u has a gradient in every third step.
  void train(Optimizer& optimizer, int from, int to) const {
    for (int i = from; i < to; ++i) {
      const auto loss = [&](const Tensor& x) {
        const Tensor g = test::normal(x.shape(), static_cast<uint64_t>(50 + i));
        return sum(x * g.to(x.dtype()).to(x.device()));
      };
      loss(w).backward();
      if (i % 3 == 1) loss(u).backward();
      optimizer.step();
    }
  }
  std::vector<float> values() const {
    std::vector<float> all;
    for (const Tensor& x : {w, u})
      for (const float v : x.detach().to(DType::f32).to_vector<float>()) all.push_back(v);
    return all;
  }
};

template <class Kind>
void check_resume(Device device, DType dtype, const test::TemporaryFolder& folder) {
  Pair whole(device, dtype, 1), stopped(device, dtype, 1), resumed(device, dtype, 9);
  Kind one(whole.parameters), two(stopped.parameters), three(resumed.parameters);
  whole.train(one, 0, 9);
  stopped.train(two, 0, 5);
  State all = two.state();
  for (const Parameter& parameter : stopped.parameters)
    all.emplace_back("model." + parameter.name, parameter.tensor);
  save_tensors(folder.file("state"), all);
  State saved;
  std::map<std::string, Tensor> values;
  for (const auto& entry : load_tensors(folder.file("state"))) {
    if (entry.first.compare(0, 6, "model.") == 0)
      values.insert(entry);
    else
      saved.push_back(entry);
  }
  three.load_state(saved);  // before the values, as a checkpoint is read
  {
    const NoGrad no_grad;
    for (const Parameter& parameter : resumed.parameters)
      parameter.tensor.copy_(values.at("model." + parameter.name));
  }
  EXPECT_EQ(resumed.values(), stopped.values());
  resumed.train(three, 5, 9);
  EXPECT_EQ(resumed.values(), whole.values()) << dtype << " on " << device;
  EXPECT_EQ(three.steps(), 9);
}

TEST_P(StepsOn, AResumedRunHasTheSameBits) {
  const test::TemporaryFolder folder;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    check_resume<Adam>(device(), dtype, folder);
    check_resume<AdamW>(device(), dtype, folder);
    check_resume<Lion>(device(), dtype, folder);
  }
}

// As versions before wrote it: one number of steps for all.
TEST_P(StepsOn, AStateWithOneNumberOfStepsGivesItToAll) {
  Pair a(device(), DType::f32, 1), b(device(), DType::f32, 1);
  Adam from(a.parameters), to(b.parameters);
  const auto both = [](const Pair& pair, Optimizer& optimizer) {
    for (uint64_t i = 0; i < 3; ++i) {
      for (const Tensor& x : {pair.w, pair.u})
        sum(x * test::normal(x.shape(), i).to(DType::f32).to(x.device())).backward();
      optimizer.step();
    }
  };
  both(a, from);
  State old;
  for (const auto& entry : from.state())
    if (entry.first.compare(0, 5, "step.") != 0) old.push_back(entry);
  EXPECT_EQ(old.size(), 1u + 4u);
  to.load_state(old);
  {
    const NoGrad no_grad;
    b.w.copy_(a.w);
    b.u.copy_(a.u);
  }
  both(a, from);
  both(b, to);
  EXPECT_EQ(a.values(), b.values());
}

TEST_P(StepsOn, AStateThatCannotBeIsRefusedAndChangesNothing) {
  Pair pair(device(), DType::f32, 1);
  Adam adam(pair.parameters);
  pair.train(adam, 0, 4);
  const auto numbers = [&] {
    std::vector<double> all;
    for (const auto& entry : adam.state()) {
      const auto part = entry.second.to(kCpu).to(DType::f64).to_vector<double>();
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  };
  const std::vector<double> before = numbers();
  const auto refused = [&](const char* name, const Tensor& wrong, std::initializer_list<std::string> pieces) {
    State state;
    for (const auto& entry : adam.state()) {
      const Tensor tensor = entry.first == name ? wrong : entry.second.clone();
      if (tensor.defined()) state.emplace_back(entry.first, tensor);
    }
    test::expect_error<CheckpointError>([&] { adam.load_state(state); }, pieces);
    EXPECT_EQ(numbers(), before) << name;
  };
  refused("step", tensor<int64_t>({-1}), {"'step' is -1"});
  refused("step.u", tensor<int64_t>({-7}), {"'step.u' is -7"});
  refused("step.u", tensor<int64_t>({INT64_MAX}), {"'step.u' is 9223372036854775807"});
  refused("step.w", {}, {"'step.w' is missing"});
  refused("step.w", tensor<int64_t>({1, 1}), {"'step.w' is i64 [2]"});
  refused("m.u", {}, {"'m.u' is missing"});
  refused("v.w", zeros({6}), {"'v.w' is f32 [6], expected f32 [5]"});
  State more = adam.state();
  more.emplace_back("m.other", zeros({2}));
  test::expect_error<CheckpointError>([&] { adam.load_state(more); }, {"1 tensors are unknown", "'m.other'"});
  EXPECT_EQ(numbers(), before);
  Sgd other(Parameters({{"w", {}, test::normal({5}, 1).to(DType::f32).set_requires_grad()}}));
  EXPECT_THROW(other.load_state(adam.state()), CheckpointError);
}

// ---- groups and options

TEST(Groups, APatternThatFitsNothingIsAnError) {
  Pair pair(kCpu, DType::f32, 1);
  test::expect_error<ConfigError>(
      [&] {
        Adam(pair.parameters, {.groups = {{.patterns = {"w", "*nrom*"}, .weight_decay = 0}}});
      },
      {"the pattern '*nrom*' fits none of the 2 parameters: 'w', 'u'"});
  pair.parameters.to(DType::f64);  // nothing holds them
}

TEST(Groups, AGroupWithoutPatternsIsAnError) {
  Pair pair(kCpu, DType::f32, 1);
  test::expect_error<ConfigError>([&] { Adam(pair.parameters, {.groups = {{.patterns = {}}}}); },
                                  {"a group has no patterns"});
}

TEST(Groups, APatternMayFitAnAlias) {
  const Tensor x = ones({1}, {.dtype = DType::f64}).set_requires_grad();
  Sgd sgd(Parameters({{"first", {}, x}, {"second", {}, x}}),
          {.lr = 1, .groups = {{.patterns = {"sec*"}, .lr_factor = 0.25}}});
  sum(x).backward();
  sgd.step();
  EXPECT_EQ(x.item<double>(), 0.75);
}

TEST(Groups, OptionsThatCannotBeLeaveTheParametersFree) {
  Pair pair(kCpu, DType::f32, 1);
  EXPECT_THROW(Adam(pair.parameters, {.beta1 = 2}), ConfigError);
  for (const double dampening : {std::nan(""), double(INFINITY), -1.0})
    test::expect_error<ConfigError>([&] { Sgd(pair.parameters, {.momentum = 0.9, .dampening = dampening}); },
                                    {"dampening must be finite"});
  EXPECT_THROW(Lion(pair.parameters, {.beta2 = 1}), ConfigError);
  pair.parameters.to(DType::f64);
}

}  // namespace
}  // namespace heed::optim
