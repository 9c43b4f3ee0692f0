// The optimizers' steps on the device, and the norm of many gradients.
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <heed/kernels/optimizer.h>
#include <heed/kernels/runtime.h>

#include "../kernels/optimizer_cases.h"
#include "device_buffer.h"
#include "device_test.h"

namespace heed {
namespace {

using namespace heed::testing;

// Runs step(slice, m, v) on a copy of `host` on the device, which then replaces it. Of the slice what is
// not a pointer into `host` is kept.
template <class T, class Step>
void on_device(Arenas<T>& host, kernels::StepSlice<T> slice, const Step& step) {
  const DeviceBuffer<T> value(host.value);
  const DeviceBuffer<float> gradient(host.gradient), master(host.master), m(host.m), v(host.v);
  const DeviceBuffer<int64_t> steps(host.steps);
  const DeviceBuffer<double> lr(std::vector<double>{*slice.lr}),
      norm(slice.gradient_norm == nullptr ? std::vector<double>()
                                          : std::vector<double>{*slice.gradient_norm});
  for (kernels::StepPart<T>& part : host.parts) {
    part.g = gradient.data() + part.state;
    part.value = value.data() + part.state;
  }
  host.parts.insert(host.parts.begin(), kernels::StepPart<T>{});  // a parameter without elements
  slice.parts = host.parts;
  slice.master = master.data();
  slice.steps = steps.data();
  slice.lr = lr.data();
  slice.gradient_norm = norm.data();
  step(slice, m.data(), v.data());
  cuda::synchronize(0);
  host.value = value.get();
  host.master = master.get();
  host.m = m.get();
  host.v = v.get();
}

// Parameters that can be read four elements at a time and that cannot, each more than a launch has; and one
// of more than a block takes at once.
std::vector<std::vector<int64_t>> all_sizes() {
  std::vector<int64_t> even(90, 12), odd(90, 5), mixed{8, 4100, 4, 3, 8, 9001, 2, 7};
  return {{1}, even, odd, mixed};
}

template <class T>
struct Cuda {
  using Type = T;

  static std::vector<Arenas<T>> arenas() {
    std::vector<Arenas<T>> all;
    for (const std::vector<int64_t>& sizes : all_sizes()) {
      all.emplace_back(sizes, false);
      if (sizeof(T) == 2) all.emplace_back(sizes, true);
    }
    kernel_cases.count += static_cast<int>(all.size());
    return all;
  }

  static void adam(Arenas<T>& arenas, const kernels::StepSlice<T>& slice, const Options& o) {
    on_device(arenas, slice, [&](const kernels::StepSlice<T>& there, float* m, float* v) {
      cuda::adam_step<T>({there, m, v, o.beta1, o.beta2, 1e-8, o.decoupled});
    });
  }

  static void sgd(Arenas<T>& arenas, const kernels::StepSlice<T>& slice, const Options& o) {
    on_device(arenas, slice, [&](const kernels::StepSlice<T>& there, float* m, float*) {
      cuda::sgd_step<T>({there, o.momentum != 0 ? m : nullptr, o.momentum, o.dampening, o.nesterov});
    });
  }

  static void lion(Arenas<T>& arenas, const kernels::StepSlice<T>& slice, const Options& o) {
    on_device(arenas, slice, [&](const kernels::StepSlice<T>& there, float* m, float*) {
      cuda::lion_step<T>({there, m, o.beta1, o.beta2});
    });
  }

  static double rate(double value) {
    const DeviceBuffer<double> lr(1);
    cuda::set_lr({lr.data(), value});
    return lr.get()[0];
  }

  static void advance(int64_t& step, std::vector<int64_t>& steps, const std::vector<int64_t>& stepped,
                      const double* norm) {
    const DeviceBuffer<double> measured(norm == nullptr ? std::vector<double>() : std::vector<double>{*norm});
    const DeviceBuffer<int64_t> step_there(std::vector<int64_t>{step}), steps_there(steps);
    cuda::advance_steps({step_there.data(), steps_there.data(), stepped, measured.data()});
    step = step_there.get()[0];
    steps = steps_there.get();
  }
};
using CudaTypes = ::testing::Types<Cuda<float>, Cuda<bfloat16>>;
INSTANTIATE_TYPED_TEST_SUITE_P(Cuda, OptimizerSteps, CudaTypes);

double norm_of(const std::vector<kernels::GradientPart<float>>& parts) {
  const DeviceBuffer<double> norm(1);
  cuda::gradient_norm(kernels::GradientNorm<float>{parts, norm.data()});
  return norm.get()[0];
}

// More parameters than a launch has, and more partial sums than a block has threads.
TEST(OptimizerKernels, NormOfManyGradients) {
  std::vector<float> values;
  std::vector<int64_t> sizes{0, 5000, 9001};
  for (int64_t i = 0; i < 320; ++i) sizes.push_back(i % 2 == 1 ? 4 * (i % 7 + 1) : 1 + 17 * i % 31);
  std::vector<size_t> first;
  for (const int64_t size : sizes) {
    first.push_back((values.size() + 3) / 4 * 4);
    values.resize(first.back());
    const std::vector<float> more = random_values<float>(size, static_cast<uint32_t>(first.size()));
    values.insert(values.end(), more.begin(), more.end());
  }
  const DeviceBuffer<float> there(values);
  std::vector<kernels::GradientPart<float>> parts;
  for (size_t i = 0; i < sizes.size(); ++i) parts.push_back({there.data() + first[i], sizes[i]});
  double squares = 0;  // what is between them is 0
  for (const float value : values) squares += double(value) * double(value);
  EXPECT_NEAR(norm_of(parts), std::sqrt(squares), 1e-11 * std::sqrt(squares));
  EXPECT_EQ(norm_of({}), 0);
  EXPECT_EQ(norm_of({{there.data(), 0}}), 0);
}

// More launches that find out their last block than there are counters for it.
TEST(OptimizerKernels, CountersAreUsedAgain) {
  const DeviceBuffer<float> three(std::vector<float>{3}), four(std::vector<float>{4});
  for (int i = 0; i < 1030; ++i) ASSERT_EQ(norm_of({{three.data(), 1}, {four.data(), 1}}), 5) << i;
}

// Four elements that could be taken at once but for their place among the moments.
TEST(OptimizerKernels, MomentsLieAnywhere) {
  const std::vector<float> gradient{1, -2, 3, -4};
  const DeviceBuffer<float> value(std::vector<float>(4, 1.0f)), g(gradient), m(std::vector<float>(5)),
      v(std::vector<float>(5));
  const DeviceBuffer<double> lr(std::vector<double>{kLr});
  const DeviceBuffer<int64_t> steps(std::vector<int64_t>{1});
  const kernels::StepPart<float> part{g.data(), 4, value.data(), 1, 0};
  kernels::StepSlice<float> slice{};
  slice.parts = {&part, 1};
  slice.steps = steps.data();
  slice.lr = lr.data();
  slice.lr_factor = 1;
  cuda::adam_step<float>({slice, m.data(), v.data(), 0.9, 0.999, 1e-8, false});
  const std::vector<float> got = value.get(), got_m = m.get(), got_v = v.get();
  EXPECT_TRUE(got_m[0] == 0 && got_v[0] == 0);
  for (size_t i = 0; i < 4; ++i) {
    float right = 1, right_m = 0, right_v = 0;
    plain_adam(right, right_m, right_v, gradient[i], 1, {});
    EXPECT_EQ(got[i], right);
    EXPECT_EQ(got_m[i + 1], right_m);
    EXPECT_EQ(got_v[i + 1], right_v);
  }
}

// More elements than the blocks of a launch take at once: the first goes on to another parameter, which is at
// another step.
TEST(OptimizerKernels, ABlockGoesFromOneParameterToTheNext) {
  constexpr int64_t kLarge = 1024 * 4096;
  Arenas<float> arenas({kLarge, 8}, false);
  arenas.behind = 2;
  arenas.draw_gradient(1);
  const Arenas<float> before = arenas;
  Cuda<float>::adam(arenas, arenas.slice(3, 0, nullptr, 0), {});
  for (const int64_t first : {int64_t{0}, kLarge - 8, kLarge})
    for (size_t i = static_cast<size_t>(first); i < static_cast<size_t>(first) + 8; ++i) {
      float value = before.value[i], m = 0, v = 0;
      plain_adam(value, m, v, before.gradient[i], first == kLarge ? 1 : 3, {});
      ASSERT_EQ(arenas.value[i], value) << i;
    }
  const DeviceBuffer<float> g(before.gradient), small(std::vector<float>{3, 4, 5});
  constexpr int64_t kAgain = 64 * 4096;  // in a launch of their own: no vectors begin there
  double squares = 50;
  for (const float value : before.gradient) squares += double(value) * double(value);
  for (int64_t i = 1; i <= kAgain; ++i) squares += double(before.gradient[i]) * double(before.gradient[i]);
  EXPECT_NEAR(norm_of({{g.data(), kLarge + 8}, {g.data() + 1, kAgain}, {small.data(), 3}}),
              std::sqrt(squares), 1e-9 * std::sqrt(squares));
}

}  // namespace
}  // namespace heed
