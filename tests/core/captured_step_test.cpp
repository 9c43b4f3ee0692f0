// CapturedStep: on the CPU a call, on a CUDA device a graph with the same results as calls.
#include <vector>

#include <gtest/gtest.h>

#include <heed/core/autograd/autograd.h>
#include <heed/core/creation.h>
#include <heed/core/ops.h>
#include <heed/core/parameters.h>
#include <heed/core/runtime/captured_step.h>

#include "expect_error.h"
#include "op_check.h"

namespace heed::test {
namespace {

// Trains w with dropout on what it is given: one product, its backward and a step by hand.
struct Model {
  explicit Model(Device device)
      : parameters({{"w", {}, test::normal({5, 3}, 1).to(DType::f32).to(device).set_requires_grad()}}),
        w(parameters[0].tensor) {}

  PooledVector<Tensor> step(const StepInputs& inputs) {
    ++calls;
    const Tensor y = dropout(matmul(inputs.tensors[0], w), {.p = 0.25});
    const Tensor loss = sum(y * y);
    loss.backward();
    const NoGrad no_grad;
    w.copy_(w - 0.01 * w.grad());
    parameters.zero_grad();
    return {loss, sum(inputs.tensors[1])};
  }

  Parameters parameters;
  Tensor w;
  int calls = 0;
};

StepInputs inputs(int64_t rows, uint64_t seed) {
  return {{test::normal({rows, 5}, seed).to(DType::f32), tensor<int64_t>({rows, 7})}, {3}};
}

struct Trace {
  std::vector<std::vector<float>> weights;
  std::vector<float> losses;
  int calls;
  int64_t graphs;
};

// Ten steps on batches of 4 and of 6 rows, in turn.
Trace train(Device device, const CapturedStepOptions& options) {
  Generator generator(7);
  const GeneratorScope scope(generator);
  Model model(device);
  CapturedStep step(
      device, [&](const StepInputs& in) { return model.step(in); }, options);
  Trace trace;
  for (uint64_t i = 0; i < 10; ++i) {
    const int64_t rows = i % 2 == 0 ? 4 : 6;
    const PooledVector<Tensor> outputs = step(inputs(rows, 10 + i)).get();
    trace.losses.push_back(outputs[0].item<float>());
    EXPECT_EQ(outputs[1].item<int64_t>(), rows + 7);
    trace.weights.push_back(model.w.detach().to_vector<float>());
    if (i == 4) generator.next(5);  // somebody else draws between two steps
  }
  EXPECT_EQ(generator.offset(), 10u + 5u) << "one place of the stream a step";
  trace.calls = model.calls;
  trace.graphs = step.graphs();
  return trace;
}

TEST(CapturedStep, OnTheCpuItIsACall) {
  const Trace trace = train(kCpu, {});
  EXPECT_EQ(trace.calls, 10);
  EXPECT_EQ(trace.graphs, 0);
  EXPECT_NE(trace.losses[0], trace.losses[2]);
}

TEST(CapturedStep, RepeatsWhatCallsWouldGiveBitForBit) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
  const Trace called = train(cuda_device(), {.capture = false}), captured = train(cuda_device(), {});
  EXPECT_EQ(called.calls, 10);
  EXPECT_EQ(called.graphs, 0);
  EXPECT_EQ(captured.calls, 4) << "each kind of step is called, recorded, and repeated thereafter";
  EXPECT_EQ(captured.graphs, 2);
  EXPECT_EQ(captured.losses, called.losses);
  EXPECT_EQ(captured.weights, called.weights);
}

TEST(CapturedStep, FurtherBucketsAreCalled) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
  const Trace called = train(cuda_device(), {.capture = false});
  const Trace one = train(cuda_device(), {.most_buckets = 1});
  EXPECT_EQ(one.calls, 2 + 5);
  EXPECT_EQ(one.graphs, 1);
  EXPECT_EQ(one.weights, called.weights);
}

TEST(CapturedStep, ConstantsAndSeedsTellStepsApart) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
  Generator generator(7);
  const GeneratorScope scope(generator);
  int calls = 0;
  CapturedStep step(cuda_device(), [&](const StepInputs& in) {
    ++calls;
    return PooledVector<Tensor>{in.tensors[0] * static_cast<double>(in.constants[0])};
  });
  const auto result = [&](double value, int64_t constant) {
    return step({{full({1}, value)}, {constant}}).get()[0].item<float>();
  };
  for (const double value : {1.0, 2.0, 3.0}) {
    EXPECT_EQ(result(value, 2), 2 * value);
    EXPECT_EQ(result(value, 5), 5 * value);
  }
  EXPECT_EQ(calls, 4);
  generator.reset(8);
  result(1, 2);
  EXPECT_EQ(calls, 5);
}

TEST(CapturedStep, OutputsCanBeReadLater) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
  CapturedStep step(cuda_device(),
                    [](const StepInputs& in) { return PooledVector<Tensor>{in.tensors[0] * 2.0}; });
  std::vector<StepOutputs> outputs;
  for (int i = 0; i < 6; ++i) outputs.push_back(step({{full({1}, i)}, {}}));
  for (int i = 0; i < 6; ++i) EXPECT_EQ(outputs[static_cast<size_t>(i)].get()[0].item<float>(), 2 * i);
}

TEST(CapturedStep, WhatCannotBeCapturedIsAStateErrorAndChangesNothing) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
  Generator generator(7), other(8);
  const GeneratorScope scope(generator);
  const auto refused = [&](const std::function<Tensor(const Tensor&)>& function, const char* message) {
    CapturedStep step(cuda_device(),
                      [&](const StepInputs& in) { return PooledVector<Tensor>{function(in.tensors[0])}; });
    const StepInputs in{{full({8}, 1.0)}, {}};
    step(in).get();
    const uint64_t offset = generator.offset();
    expect_error<StateError>([&] { step(in); }, {message});
    EXPECT_EQ(generator.offset(), offset);
    EXPECT_EQ(step.graphs(), 0);
    EXPECT_FALSE(is_capturing(cuda_device()));
    EXPECT_EQ(full({1}, 3.0, {.device = cuda_device()}).item<float>(), 3) << "the device works";
  };
  refused([](const Tensor& x) { return x * sum(x).item<double>(); }, "copy_to_host: the host would wait");
  refused([](const Tensor& x) { return x + tensor<float>({1}).to(x.device()); },
          "copy_to_device: the host would wait");
  refused([&](const Tensor& x) { return dropout(dropout(x, {.p = 0.5}), {.p = 0.5, .generator = &other}); },
          "a captured step draws from one generator");
}

TEST(CapturedStep, WithoutMemoryItCanBeTriedAgain) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
  bool fails = true;
  CapturedStep step(cuda_device(), [&](const StepInputs& in) {
    if (fails) throw OutOfMemory("no more");
    return PooledVector<Tensor>{in.tensors[0] * 2.0};
  });
  const StepInputs in{{full({1}, 4.0)}, {}};
  EXPECT_THROW(step(in), OutOfMemory);
  fails = false;
  EXPECT_EQ(step(in).get()[0].item<float>(), 8) << "the first call once more";
  EXPECT_EQ(step.graphs(), 0);
  fails = true;
  EXPECT_THROW(step(in), OutOfMemory) << "in the capture";
  fails = false;
  EXPECT_EQ(step(in).get()[0].item<float>(), 8);
  EXPECT_EQ(step.graphs(), 1);
}

TEST(CapturedStep, ImpossibleUses) {
  const auto function = [](const StepInputs&) { return PooledVector<Tensor>{}; };
  expect_error<ConfigError>([&] { CapturedStep step(kCpu, function, {.most_buckets = -1}); },
                            {"most_buckets is -1"});
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
  CapturedStep step(cuda_device(), function);
  expect_error<DeviceError>(
      [&] {
        step({{full({2}, 1, {.device = cuda_device()})}, {}});
      },
      {"an input of shape [2] is on cuda:0"});
}

}  // namespace
}  // namespace heed::test
