#include <cmath>
#include <pthread.h>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include <heed/core/autograd/autograd.h>
#include <heed/core/ops.h>

#include "each_device.h"

namespace heed {
namespace {

// Writes a gradient, or adds it to what is there.
void give(const GradSlot& to, const Tensor& gradient) {
  if (to.accumulate)
    to.tensor.add_(gradient);
  else
    to.tensor.copy_(gradient);
}

// A recorded operation made only of what a consumer has: y = factor * x.
Tensor scaled(const Tensor& x, double factor) {
  return record("scaled", {x}, x.detach() * factor,
                [factor](const GradIn& gy, GradOut& gx) { give(gx.into(0), gy[0] * factor); });
}

// y = factor * x, which makes its gradient on the way and hands it on as it is.
Tensor scaled_ahead(const Tensor& x, double factor) {
  const Tensor gradient = full(x.shape(), factor, x.options());
  return record("scaled_ahead", {x}, x.detach() * factor,
                [g = save(gradient)](const GradIn&, GradOut& gx) { gx.add(0, *g); });
}

// What x.grad() is after an operation handed on what `gradient` returns.
template <class F>
Tensor grad_after(const Tensor& x, F gradient) {
  const Tensor y = x.detach().clone();
  record("handed_on", {x}, y, [gradient](const GradIn&, GradOut& gx) { gx.add(0, gradient()); });
  y.backward(ones(x.shape(), x.options()));
  return x.grad();
}

// y = a * b, keeping both.
Tensor product(const Tensor& a, const Tensor& b) {
  return record("product", {a, b}, a.detach() * b.detach(),
                [a = save(a), b = save(b)](const GradIn& gy, GradOut& gx) {
                  const Tensor factors[] = {*b, *a};
                  for (int input = 0; input < 2; ++input)
                    if (gx.wants(input)) give(gx.into(input), gy[0] * factors[input]);
                });
}

float value(const Tensor& x) { return x.item<float>(); }

template <class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class AutogradOn : public test::EachDevice {
 protected:
  static Tensor full(const Shape& shape, double value, DType dtype = DType::f32) {
    return heed::full(shape, value, {dtype, device()});
  }
  static Tensor zeros(const Shape& shape) { return full(shape, 0); }
  static Tensor ones(const Shape& shape) { return full(shape, 1); }
  static Tensor leaf(double value) { return full({1}, value).set_requires_grad(); }
};
HEED_ON_EACH_DEVICE(AutogradOn);

TEST_P(AutogradOn, AChainAndAFork) {
  const Tensor x = leaf(3);
  const Tensor a = scaled(x, 2), b = product(a, x);  // b = 2 x²
  b.backward();
  EXPECT_FLOAT_EQ(value(x.grad()), 12);
}

TEST_P(AutogradOn, TheSameTensorTwiceInOneOperation) {
  const Tensor x = leaf(5);
  product(x, x).backward();
  EXPECT_FLOAT_EQ(value(x.grad()), 10);
  const Tensor y = leaf(2);
  const Tensor z = scaled(y, 3);
  product(z, z).backward();
  EXPECT_FLOAT_EQ(value(y.grad()), 36);
}

TEST_P(AutogradOn, BackwardAccumulatesUntilZeroed) {
  const Tensor x = leaf(1);
  scaled(x, 2).backward();
  scaled(x, 3).backward();
  EXPECT_FLOAT_EQ(value(x.grad()), 5);
  x.zero_grad();
  EXPECT_FALSE(x.grad().defined());
  scaled(x, 7).backward();
  EXPECT_FLOAT_EQ(value(x.grad()), 7);
}

TEST_P(AutogradOn, RetainGraphRunsAgainAndWithoutItSaysSo) {
  const Tensor x = leaf(2);
  const Tensor y = product(x, x);
  y.backward({}, {.retain_graph = true});
  y.backward();
  EXPECT_FLOAT_EQ(value(x.grad()), 8);
  EXPECT_TRUE(contains(message_of([&] { y.backward(); }), "backward through product a second time"));
  EXPECT_FLOAT_EQ(value(x.grad()), 8);
}

TEST_P(AutogradOn, ChangedSavedTensorIsAnErrorNeverAWrongGradient) {
  const Tensor x = leaf(2), w = full({1}, 3);
  const Tensor y = product(x, w);
  w.fill_(100);
  const std::string message = message_of([&] { y.backward(); });
  EXPECT_TRUE(contains(message, "was changed in place: it is at version 2, expected 1")) << message;
}

TEST_P(AutogradOn, NoGradAndDetachRecordNothing) {
  const Tensor x = leaf(2);
  {
    NoGrad no_grad;
    EXPECT_FALSE(scaled(x, 2).requires_grad());
  }
  EXPECT_TRUE(scaled(x, 2).requires_grad());
  EXPECT_FALSE(scaled(x.detach(), 2).requires_grad());
  EXPECT_EQ(x.detach().storage(), x.storage());
}

TEST_P(AutogradOn, ErrorsOfBackward) {
  const Tensor x = zeros({3}).set_requires_grad();
  EXPECT_TRUE(contains(message_of([&] { zeros({1}).backward(); }), "this tensor has no graph"));
  EXPECT_TRUE(
      contains(message_of([&] { scaled(x, 1).backward(); }), "a tensor of shape [3] needs a gradient"));
  EXPECT_THROW(scaled(x, 1).backward(ones({2})), AutogradError);
  EXPECT_THROW(scaled(x, 1).backward(full({3}, 1, DType::bf16)), AutogradError);
  EXPECT_THROW(full({2}, 0, DType::i64).set_requires_grad(), AutogradError);
  EXPECT_THROW(scaled(x, 1).set_requires_grad(false), AutogradError);
  EXPECT_TRUE(contains(message_of([&] { not_differentiable("argmax", {x}); }), "argmax: has no gradient"));
}

// An operation of two inputs, of which the first requires a gradient, and what its backward does.
template <class F>
std::string message_of_backward(const Tensor& a, F backward) {
  const Tensor b = a.detach().clone(), y = a.detach().clone();
  record("mine", {a, b}, y, backward);
  return message_of([&] { y.backward(full(y.shape(), 1, y.options())); });
}

TEST_P(AutogradOn, MistakesOfABackwardNameItsOperation) {
  const Tensor x = zeros({3}).set_requires_grad();
  const auto expect = [&](auto backward, const std::string& text) {
    EXPECT_TRUE(contains(message_of_backward(x, backward), "mine: " + text))
        << message_of_backward(x, backward);
  };
  using In = const GradIn&;
  using Out = GradOut&;
  expect([](In, Out gx) { gx.add(0, zeros({2})); },
         "a gradient of shape [2] for input 0 of shape [3]; sum_to() undoes a broadcast");
  expect([](In, Out gx) { gx.add(0, Tensor()); }, "the gradient for input 0 is undefined");
  expect([](In gy, Out gx) { gx.add(1, gy[0]); },
         "its backward gives a gradient to input 1, which needs none; ask gx.wants(1) first");
  expect([](In, Out gx) { gx.into(1); }, "its backward gives a gradient to input 1");
  expect([](In, Out gx) { gx.into_accumulator(1); }, "its backward gives a gradient to input 1");
  for (const int i : {2, -1, 1000}) {
    const std::string input = concat("its backward names input ", i, ", but there are 2, counted from 0");
    expect([i](In, Out gx) { gx.wants(i); }, input);
    expect([i](In gy, Out gx) { gx.add(i, gy[0]); }, input);
    expect([i](In, Out gx) { gx.into(i); }, input);
    expect([i](In, Out gx) { gx.into_accumulator(i); }, input);
  }
  expect([](In gy, Out gx) { gx.add(0, gy[1]); }, "its backward names output 1, but there are 1");
  expect([](In gy, Out) { static_cast<void>(gy.owned(-1)); }, "its backward names output -1");
  EXPECT_FALSE(x.grad().defined());
  scaled(x, 2).backward(ones({3}));  // the leaf is as it was
  EXPECT_EQ(x.grad().to_vector<float>(), std::vector<float>(3, 2));
}

TEST_P(AutogradOn, OnlyNewFloatingTensorsAreRecorded) {
  const Tensor x = zeros({3}).set_requires_grad();
  const auto nothing = [](const GradIn&, GradOut&) {};
  const auto expect = [&](TensorList outputs, const std::string& text) {
    const std::string message = message_of([&] { record("mine", {x}, outputs, nothing); });
    EXPECT_TRUE(contains(message, "mine: " + text)) << message;
  };
  const Tensor y = scaled(x, 2), fresh = zeros({3});
  expect(y, "output 0 is the result of scaled already; record a new tensor, or its detach()");
  expect(x, "output 0 is a leaf that requires a gradient");
  expect({fresh, y}, "output 1 is the result of scaled already");
  expect({fresh, fresh}, "outputs 0 and 1 are one tensor");
  expect({fresh, Tensor()}, "output 1 is undefined");
  expect(full({3}, 0, DType::i64), "output 0 is i64; only floating-point tensors have gradients");
  EXPECT_FALSE(fresh.requires_grad()) << "nothing has changed";
  record("mine", {x}, fresh, nothing);
  EXPECT_TRUE(fresh.requires_grad());
  expect(fresh, "output 0 is the result of mine already");
}

TEST(Autograd, AGradientOnAnotherDeviceIsAnError) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
  const Tensor x = zeros({3}).set_requires_grad();
  const std::string message =
      message_of_backward(x, [](const GradIn& gy, GradOut& gx) { gx.add(0, gy[0].to(cuda_device())); });
  EXPECT_TRUE(contains(message, "mine: a gradient on cuda:0 for input 0 on cpu")) << message;
}

TEST_P(AutogradOn, HooksSeeAndReplaceGradients) {
  const Tensor x = leaf(1);
  const Tensor middle = scaled(x, 2);
  float seen = 0;
  middle.register_hook([&](const Tensor& g) {
    seen = value(g);
    return full({1}, 10);
  });
  const int id = x.register_hook([](const Tensor& g) { return g * 2.0; });
  scaled(middle, 3).backward();
  EXPECT_FLOAT_EQ(seen, 3);
  EXPECT_FLOAT_EQ(value(x.grad()), 40);
  x.remove_hook(id);
  x.zero_grad();
  scaled(x, 3).backward();
  EXPECT_FLOAT_EQ(value(x.grad()), 3);
}

TEST_P(AutogradOn, LeafHookGetsTheSumOfABackwardOnce) {
  const Tensor x = leaf(2);
  int calls = 0;
  x.register_hook([&](const Tensor& g) {
    ++calls;
    EXPECT_FLOAT_EQ(value(g), 4);
    return Tensor();
  });
  product(x, x).backward();
  EXPECT_EQ(calls, 1);
  EXPECT_FLOAT_EQ(value(x.grad()), 4);
}

TEST_P(AutogradOn, ALeafTakesOverAGradientThatNothingElseHolds) {
  const Tensor x = zeros({3}).set_requires_grad();
  const std::byte* memory = nullptr;
  grad_after(x, [&memory] {
    const Tensor fresh = full({3}, 5);
    memory = fresh.storage()->data();
    return fresh;
  });
  EXPECT_EQ(x.grad().storage()->data(), memory);
  EXPECT_EQ(x.grad().to_vector<float>(), std::vector<float>(3, 5));
  grad_after(x, [] { return full({3}, 2); });  // adds to it
  EXPECT_EQ(x.grad().storage()->data(), memory);
  EXPECT_EQ(x.grad().to_vector<float>(), std::vector<float>(3, 7));
}

TEST_P(AutogradOn, ALeafSharesNoGradientThatSomethingElseHolds) {
  const std::vector<float> twos(4, 2);
  const auto x = [] { return zeros({2, 2}).set_requires_grad(); };
  const Tensor held = full({2, 2}, 2);
  grad_after(x(), [&held] { return held; }).fill_(9);
  grad_after(x(), [&held] { return held.detach(); }).fill_(9);
  EXPECT_EQ(held.to_vector<float>(), twos);

  const Tensor root = x();
  root.backward(held);
  root.grad().fill_(9);
  EXPECT_EQ(held.to_vector<float>(), twos);

  const Tensor hooked = x();
  Tensor seen;
  hooked.register_hook([&seen](const Tensor& g) {
    seen = g;
    return Tensor();
  });
  grad_after(hooked, [] { return full({2, 2}, 2); }).fill_(9);
  EXPECT_EQ(seen.to_vector<float>(), twos);
}

TEST_P(AutogradOn, TheGradientOfALeafIsAPlainTensorOfItsOwn) {
  const auto check = [](const auto& gradient) {
    const Tensor grad = grad_after(zeros({2, 2}).set_requires_grad(), gradient);
    EXPECT_EQ(grad.to_vector<float>(), std::vector<float>(4, 2));
    EXPECT_TRUE(grad.is_contiguous());
    EXPECT_FALSE(grad.requires_grad());
    EXPECT_EQ(grad.storage()->bytes(), 16);
  };
  check([] { return full({1}, 2).expand({2, 2}); });
  check([] { return full({2, 2}, 2).transpose(0, 1); });
  check([] { return full({8, 2}, 2).slice(0, 2, 4); });
  check([] { return full({2, 2}, 2).set_requires_grad(); });
  check([] { return full({2, 2}, 2, DType::bf16); });
  const Tensor empty_leaf =
      zeros({0, 3}).set_requires_grad();  // expanded, yet contiguous: it has no elements
  const Tensor grad = grad_after(empty_leaf, [] { return zeros({0, 1}).expand({0, 3}); });
  EXPECT_EQ(grad.strides(), empty_leaf.strides());
}

TEST_P(AutogradOn, LeavesThatGetTheSameGradientShareNoMemory) {
  const Tensor a = leaf(1), b = leaf(2);
  const Tensor y = zeros({1});
  record("sum", {a, b}, y, [](const GradIn& gy, GradOut& gx) {
    for (int input = 0; input < 2; ++input) gx.add(input, gy[0]);
  });
  scaled(y, 3).backward();
  a.grad().fill_(9);
  EXPECT_FLOAT_EQ(value(a.grad()), 9);
  EXPECT_FLOAT_EQ(value(b.grad()), 3);
}

TEST_P(AutogradOn, ARetainedGradientIsNotTakenOver) {
  const Tensor x = leaf(1);
  const Tensor y = scaled_ahead(x, 3);
  y.backward({}, {.retain_graph = true});
  EXPECT_FLOAT_EQ(value(x.grad()), 3);
  x.grad().mul_(2);
  y.backward();  // what it saved is unchanged
  EXPECT_FLOAT_EQ(value(x.grad()), 9);
}

TEST_P(AutogradOn, ALeafAddsUpAllItGetsInOneBackward) {
  const Tensor x = leaf(2);
  const auto both = [](const Tensor& a, const Tensor& b) {
    return product(a, b.detach()) + product(b, a.detach());
  };
  both(scaled_ahead(x, 3), scaled_ahead(x, 5)).backward();  // handed on twice
  EXPECT_FLOAT_EQ(value(x.grad()), 8);
  x.zero_grad();
  const Tensor written = scaled(x, 3);
  both(written, scaled_ahead(x, 5)).backward();  // handed on, then written
  EXPECT_FLOAT_EQ(value(x.grad()), 35);
  x.zero_grad();
  const Tensor ahead = scaled_ahead(x, 5);
  both(ahead, scaled(x, 3)).backward();  // written, then handed on
  EXPECT_FLOAT_EQ(value(x.grad()), 35);
  x.zero_grad();
  const Tensor twice = zeros({1});
  record("twice", {x, x}, twice, [](const GradIn&, GradOut& gx) {
    const Tensor fresh = full({1}, 4);
    gx.add(0, fresh);
    gx.add(1, fresh);
  });
  twice.backward();
  EXPECT_FLOAT_EQ(value(x.grad()), 8);
}

TEST_P(AutogradOn, RetainGradKeepsAnInnerGradient) {
  const Tensor x = leaf(1);
  const Tensor middle = scaled(x, 2);
  middle.retain_grad();
  scaled(middle, 3).backward();
  EXPECT_FLOAT_EQ(value(middle.grad()), 3);
}

TEST_P(AutogradOn, AnomalyNamesTheFirstOperation) {
  const Tensor x = leaf(1);
  const Tensor y = scaled(scaled(x, NAN), 2);
  {
    const DetectAnomaly detect;
    const std::string message = message_of([&] { y.backward({}, {.retain_graph = true}); });
    EXPECT_TRUE(contains(message, "the gradient that scaled computed for its input of shape [1]")) << message;
  }
  y.backward();  // without it NaN goes through
  EXPECT_TRUE(std::isnan(value(x.grad())));
}

TEST_P(AutogradOn, AnExceptionLeavesTheGraphUsable) {
  const Tensor x = leaf(1);
  const Tensor inner = scaled(x, 1);
  bool fail = true;
  const Tensor y = zeros({1});
  record("fails_once", {inner}, y, [&fail](const GradIn& gy, GradOut& gx) {
    gx.add(0, gy[0]);
    if (fail) throw DataError("not now");
  });
  const Tensor z = scaled(y, 2);
  EXPECT_THROW(z.backward({}, {.retain_graph = true}), DataError);
  fail = false;
  z.backward();
  EXPECT_FLOAT_EQ(value(x.grad()), 2);
}

void* deep_chain(void* result) {
  const Tensor x = ones({1}).set_requires_grad();
  {
    Tensor y = x;
    for (int i = 0; i < 1'000'000; ++i) y = scaled(y, 1);
    y.backward();
  }
  *static_cast<float*>(result) = value(x.grad());
  return nullptr;
}

TEST(Autograd, AMillionOperationsOnASmallStack) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 256 * 1024);
  pthread_t thread;
  float gradient = 0;
  ASSERT_EQ(pthread_create(&thread, &attributes, deep_chain, &gradient), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  EXPECT_FLOAT_EQ(gradient, 1);
}

TEST_P(AutogradOn, NothingStaysBehind) {
  const int64_t before = allocator(device()).stats().in_use;
  {
    const Tensor x = leaf(1), w = leaf(2);
    for (int i = 0; i < 10; ++i) product(scaled(x, 2), w).backward();
    const Tensor unused = product(x, w);  // a graph that never runs
  }
  EXPECT_EQ(allocator(device()).stats().in_use, before);
}

TEST_P(AutogradOn, DistinctGraphsOnDistinctThreads) {
  std::vector<std::thread> threads;
  std::vector<float> gradients(4);
  for (size_t t = 0; t < gradients.size(); ++t)
    threads.emplace_back([&gradients, t] {
      const Tensor x = leaf(static_cast<double>(t));
      for (int i = 0; i < 100; ++i) product(x, scaled(x, 2)).backward();
      gradients[t] = value(x.grad());
    });
  for (std::thread& thread : threads) thread.join();
  for (size_t t = 0; t < gradients.size(); ++t) EXPECT_FLOAT_EQ(gradients[t], 400.0f * static_cast<float>(t));
}

}  // namespace
}  // namespace heed
