// Operations on rows of a leaf write the gradient where it belongs in the leaf's own.
#include <cmath>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include <heed/core/autograd/autograd.h>
#include <heed/core/ops.h>
#include <heed/core/storage.h>

#include "each_device.h"
#include "expect_error.h"

namespace heed {
namespace {

void give(const GradSlot& to, const Tensor& gradient) {
  if (to.accumulate)
    to.tensor.add_(gradient);
  else
    to.tensor.copy_(gradient);
}

// y = sum of factor_i * x_i, which asks for all slots before it writes to any. `slots` are those it got.
Tensor weighted_sum(const std::vector<std::pair<double, Tensor>>& terms,
                    std::vector<Tensor>* slots = nullptr) {
  std::vector<Tensor> inputs;
  std::vector<double> factors;
  Tensor y = zeros(terms[0].second.shape(), terms[0].second.options());
  for (const auto& [factor, x] : terms) {
    y = y + x.detach() * factor;
    inputs.push_back(x);
    factors.push_back(factor);
  }
  return record("weighted_sum", inputs, y, [factors, slots](const GradIn& gy, GradOut& gx) {
    std::vector<GradSlot> to;
    for (size_t i = 0; i < factors.size(); ++i) to.push_back(gx.into(static_cast<int>(i)));
    for (size_t i = factors.size(); i-- > 0;) give(to[i], gy[0] * factors[i]);
    if (slots)
      for (const GradSlot& slot : to) slots->push_back(slot.tensor);
  });
}

Tensor leaf(Device device, int64_t rows = 4) {
  return arange(0, static_cast<double>(2 * rows), 1, {.device = device})
      .reshape({rows, 2})
      .detach()
      .clone()
      .set_requires_grad();
}

void backward(const Tensor& y) { sum(y).backward(); }

// The gradient of each row of x, if all its elements have the same.
std::vector<float> rows_of(const Tensor& gradient) {
  const Tensor g = gradient.to(kCpu).contiguous();
  std::vector<float> rows;
  for (int64_t i = 0; i < g.size(0); ++i) {
    EXPECT_EQ(g.data<float>()[2 * i], g.data<float>()[2 * i + 1]);
    rows.push_back(g.data<float>()[2 * i]);
  }
  return rows;
}
using Rows = std::vector<float>;

class GradientParts : public test::EachDevice {};
HEED_ON_EACH_DEVICE(GradientParts);

TEST_P(GradientParts, AreMemoryOfTheLeafsGradient) {
  const Tensor x = leaf(device());
  std::vector<Tensor> slots;
  backward(weighted_sum({{2, x.slice(0, 1, 3)}}, &slots));
  EXPECT_EQ(rows_of(x.grad()), (Rows{0, 2, 2, 0}));
  ASSERT_EQ(slots.size(), 1u);
  EXPECT_EQ(slots[0].storage().get(), x.grad().storage().get());

  backward(weighted_sum({{3, x.slice(0, 2, 4)}}, &slots));
  EXPECT_EQ(rows_of(x.grad()), (Rows{0, 2, 5, 3}));
  EXPECT_EQ(slots[1].storage().get(), x.grad().storage().get());
}

TEST_P(GradientParts, ARowOfARow) {
  const Tensor x = leaf(device());
  std::vector<Tensor> slots;
  backward(weighted_sum({{2, x.slice(0, 1, 4).slice(0, 1, 2)}}, &slots));
  EXPECT_EQ(rows_of(x.grad()), (Rows{0, 0, 2, 0}));
  EXPECT_EQ(slots[0].storage().get(), x.grad().storage().get());
}

TEST_P(GradientParts, OfAllAndOfNoRows) {
  const Tensor x = leaf(device());
  backward(weighted_sum({{2, x.slice(0, 0, 4)}}));
  EXPECT_EQ(rows_of(x.grad()), (Rows{2, 2, 2, 2}));
  const Tensor y = leaf(device());
  backward(weighted_sum({{2, y.slice(0, 2, 2)}}));
  EXPECT_EQ(rows_of(y.grad()), (Rows{0, 0, 0, 0}));
}

// Of one operation: apart, overlapping, the same twice, and beside the whole.
TEST_P(GradientParts, SeveralOfOneLeafAddUp) {
  const auto gradient = [&](const std::vector<std::pair<double, std::pair<int, int>>>& parts) {
    const Tensor x = leaf(device());
    std::vector<std::pair<double, Tensor>> terms;
    for (const auto& [factor, rows] : parts) terms.push_back({factor, x.slice(0, rows.first, rows.second)});
    backward(weighted_sum(terms));
    return rows_of(x.grad());
  };
  EXPECT_EQ(gradient({{2, {0, 2}}, {3, {2, 4}}}), (Rows{2, 2, 3, 3}));
  EXPECT_EQ(gradient({{2, {0, 2}}, {3, {1, 3}}}), (Rows{2, 5, 3, 0}));
  EXPECT_EQ(gradient({{2, {1, 3}}, {3, {1, 3}}, {4, {0, 2}}}), (Rows{4, 9, 5, 0}));
  const Tensor x = leaf(device(), 2);
  backward(weighted_sum({{2, x}, {3, x.slice(0, 0, 2)}}));
  EXPECT_EQ(rows_of(x.grad()), (Rows{5, 5}));
}

TEST_P(GradientParts, OfOneSliceInSeveralOperations) {
  const Tensor x = leaf(device()), part = x.slice(0, 1, 3);
  backward(part * 2.0 + weighted_sum({{3, part}}) + weighted_sum({{4, part}}));
  EXPECT_EQ(rows_of(x.grad()), (Rows{0, 9, 9, 0}));
}

TEST_P(GradientParts, OtherViewsAndComputedTensorsGetTheirs) {
  const Tensor x = leaf(device());
  backward(weighted_sum({{2, x.slice(0, 0, 4, 2)}}));
  EXPECT_EQ(rows_of(x.grad()), (Rows{2, 0, 2, 0}));
  backward(weighted_sum({{3, (x * 2.0).slice(0, 1, 2)}}));
  EXPECT_EQ(rows_of(x.grad()), (Rows{2, 6, 2, 0}));
  const Tensor narrow = leaf(device());
  backward(weighted_sum({{2, narrow.slice(1, 0, 1)}}));
  EXPECT_EQ(max(narrow.grad().slice(1, 1, 2)).item<float>(), 0);
  EXPECT_EQ(min(narrow.grad().slice(1, 0, 1)).item<float>(), 2);
}

TEST_P(GradientParts, HooksAndRetainedGradientsSeeTheirOwn) {
  for (const char* who : {"part", "leaf", "retained"}) {
    const Tensor x = leaf(device()), part = x.slice(0, 1, 3);
    Rows seen;
    const auto watch = [&](const Tensor& g) {
      seen = rows_of(g);
      return g * 10.0;
    };
    if (std::string(who) == "retained")
      part.retain_grad();
    else
      (std::string(who) == "part" ? part : x).register_hook(watch);
    backward(weighted_sum({{2, part}}));
    const bool hook = std::string(who) != "retained";
    EXPECT_EQ(rows_of(x.grad()), hook ? (Rows{0, 20, 20, 0}) : (Rows{0, 2, 2, 0})) << who;
    if (hook)
      EXPECT_EQ(seen, std::string(who) == "part" ? (Rows{2, 2}) : (Rows{0, 2, 2, 0}));
    else
      EXPECT_EQ(rows_of(part.grad()), (Rows{2, 2}));
  }
}

TEST_P(GradientParts, AnAnomalyNamesTheOperation) {
  const DetectAnomaly detect;
  const Tensor x = leaf(device());
  test::expect_error<NumericError>(
      [&] {
        backward(weighted_sum({{HUGE_VAL, x.slice(0, 1, 3)}}));
      },
      {"weighted_sum"});
}

TEST_P(GradientParts, AgainThroughARetainedGraph) {
  const Tensor x = leaf(device()), y = sum(weighted_sum({{2, x.slice(0, 1, 3)}}));
  y.backward({}, {.retain_graph = true});
  y.backward();
  EXPECT_EQ(rows_of(x.grad()), (Rows{0, 4, 4, 0}));
  EXPECT_THROW(y.backward(), AutogradError);
}

}  // namespace
}  // namespace heed
