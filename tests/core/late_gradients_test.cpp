// Gradients of small weights, which a device may compute together when the backward comes to the leaves, and
// of their parts: they are what they are on the CPU, whoever looks at them and whenever.
#include <functional>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

#include <heed/core/autograd/autograd.h>
#include <heed/core/ops.h>
#include <heed/core/parameters.h>

#include "each_device.h"

namespace heed::test {
namespace {

class LateGradients : public EachDevice {};
HEED_ON_EACH_DEVICE(LateGradients);

// Leaves on the device, and what the same work makes of their gradients on the CPU in f64.
struct Leaves {
  Leaves(Device device, DType dtype)
      : x(make({12, 6}, 1, device, dtype)),
        first(make({10, 6}, 2, device, dtype)),
        first_bias(make({10}, 3, device, dtype)),
        second(make({6, 10}, 4, device, dtype)) {}

  static Tensor make(const Shape& shape, uint64_t seed, Device device, DType dtype) {
    return normal(shape, seed).to(DType::bf16).to(dtype).to(device).set_requires_grad();
  }
  std::vector<Tensor> all() const { return {x, first, first_bias, second}; }

  Tensor x, first, first_bias, second;
};

using Work = std::function<void(Leaves&)>;

void check(Device device, const Work& work) {
  Leaves exact(kCpu, DType::f64);
  work(exact);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Leaves leaves(device, dtype);
    work(leaves);
    for (size_t i = 0; i < leaves.all().size(); ++i) {
      const Tensor got = leaves.all()[i].grad(), expected = exact.all()[i].grad();
      ASSERT_EQ(got.defined(), expected.defined()) << "leaf " << i;
      if (!got.defined()) continue;
      EXPECT_LE(max_difference(got.to(kCpu).to(DType::f64), expected),
                16 * epsilon(dtype) * (max_abs(expected) + 1))
          << "leaf " << i << ", " << dtype;
    }
  }
}

Tensor two_layers(const Leaves& w) {
  return linear(linear(w.x, w.first, w.first_bias, {.activation = Activation::relu}), w.second);
}

TEST_P(LateGradients, OfSeveralLayers) {
  check(device(), [](Leaves& w) { sum(two_layers(w) * two_layers(w)).backward(); });
}

TEST_P(LateGradients, AreAddedToThoseThatAreThere) {
  check(device(), [](Leaves& w) {
    for (int i = 0; i < 3; ++i) sum(two_layers(w)).backward();
  });
}

// The second use adds to what the first has not been given yet, in this way and in others.
TEST_P(LateGradients, OfAWeightThatIsUsedTwice) {
  check(device(), [](Leaves& w) { sum(linear(two_layers(w), w.first, w.first_bias)).backward(); });
  check(device(), [](Leaves& w) { sum(two_layers(w) + sum(w.second * w.second)).backward(); });
  check(device(), [](Leaves& w) { (sum(w.second * w.second) + sum(two_layers(w))).backward(); });
  check(device(), [](Leaves& w) {
    sum(linear(w.x, w.first.slice(0, 0, 6)) * linear(w.x, w.first).slice(1, 2, 8)).backward();
  });
}

TEST_P(LateGradients, OfComputedWeights) {
  check(device(),
        [](Leaves& w) { sum(linear(linear(w.x, w.first * 2.0, w.first_bias), w.second)).backward(); });
  check(device(),
        [](Leaves& w) { sum(linear(linear(w.x, w.first, w.first_bias * 2.0), w.second)).backward(); });
}

TEST_P(LateGradients, OfPartsSideBySideAndApart) {
  const auto parts = [&](const std::vector<std::pair<int64_t, int64_t>>& ranges) {
    check(device(), [&](Leaves& w) {
      Tensor loss = sum(w.x);
      for (const auto& [begin, end] : ranges)
        loss = loss + sum(linear(w.x, w.first.slice(0, begin, end), w.first_bias.slice(0, begin, end)));
      for (int i = 0; i < 2; ++i) loss.backward({}, {.retain_graph = i == 0});
    });
  };
  parts({{0, 4}, {4, 10}});
  parts({{4, 10}, {0, 4}});
  parts({{2, 4}});
  parts({{0, 2}, {7, 9}});
  parts({{0, 5}, {3, 9}});
  parts({{3, 3}, {0, 3}});
}

TEST_P(LateGradients, HooksSeeThemWhole) {
  for (const bool of_weight : {true, false}) {
    check(device(), [&](Leaves& w) {
      (of_weight ? w.first : w.first_bias).register_hook([](const Tensor& g) { return g * 3.0; });
      sum(two_layers(w) * two_layers(w)).backward();
    });
  }
  check(device(), [](Leaves& w) {  // looks at another's while they are computed
    const Tensor first = w.first, second = w.second;
    Tensor seen;
    const Tensor y = linear(w.x, first, w.first_bias);
    y.register_hook([&](const Tensor&) {
      seen = second.grad().detach().clone();
      return Tensor();
    });
    sum(linear(y, second)).backward();
    EXPECT_EQ(max_difference(seen.to(kCpu).to(DType::f64), second.grad().to(kCpu).to(DType::f64)), 0);
  });
}

// Another backward within the backward adds to the same leaf.
TEST_P(LateGradients, OfABackwardWithinABackward) {
  check(device(), [](Leaves& w) {
    const Tensor y = linear(w.x, w.first, w.first_bias);
    y.register_hook([&](const Tensor&) {
      sum(linear(linear(w.x.detach(), w.first), w.second)).backward();
      return Tensor();
    });
    sum(linear(y, w.second)).backward();
  });
}

TEST_P(LateGradients, AnErrorLeavesThoseThatWereBegun) {
  Leaves w(device(), DType::f32);
  const Tensor y = linear(w.x, w.first, w.first_bias);
  y.register_hook([](const Tensor&) -> Tensor { throw std::runtime_error("of the hook"); });
  EXPECT_THROW(sum(linear(y, w.second)).backward(), std::runtime_error);
  sum(linear(linear(w.x, w.first, w.first_bias), w.second)).backward();
  const Tensor twice = w.second.grad().to(kCpu);
  w.second.zero_grad();
  sum(linear(linear(w.x, w.first, w.first_bias), w.second)).backward();
  EXPECT_LE(max_difference(twice, w.second.grad().to(kCpu) * 2.0), 1e-4);
}

}  // namespace
}  // namespace heed::test
