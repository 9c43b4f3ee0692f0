#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include <heed/core/ops.h>

#include "../fused_check.h"

namespace heed::test {
namespace {

constexpr int64_t kIgnore = -100;

// Targets that repeat through the classes, every `ignored`-th left out (0: none).
Tensor make_targets(const Shape& shape, int64_t classes, int64_t ignored) {
  const Tensor targets = empty(shape, {.dtype = DType::i64});
  for (int64_t i = 0; i < targets.numel(); ++i)
    targets.data<int64_t>()[i] = ignored > 0 && i % ignored == ignored - 1 ? kIgnore : i * 7 % classes;
  return targets;
}

Tensor reference(const Tensor& logits, const Tensor& targets, const CrossEntropyOptions& options) {
  const Tensor in = logits.contiguous(), ids = targets.contiguous();
  const int64_t classes = in.size(-1);
  double loss = 0, counted = 0;
  for (int64_t r = 0; r < ids.numel(); ++r) {
    const int64_t target = ids.data<int64_t>()[r];
    if (target == options.ignore) continue;
    const double* x = in.data<double>() + r * classes;
    double largest = x[0], sum = 0, all = 0;
    for (int64_t c = 0; c < classes; ++c) largest = std::max(largest, x[c]);
    for (int64_t c = 0; c < classes; ++c) sum += std::exp(x[c] - largest);
    const double normaliser = largest + std::log(sum), s = options.label_smoothing;
    for (int64_t c = 0; c < classes; ++c) all += x[c] - normaliser;
    loss -= (1 - s) * (x[target] - normaliser) + s / static_cast<double>(classes) * all;
    ++counted;
  }
  return scalar(options.reduction == Reduction::mean && counted > 0 ? loss / counted : loss,
                {.dtype = DType::f64});
}

// -Σ q log p with q the smoothed one-hot rows, zero where ignored.
Tensor composed(const Tensor& logits, const Tensor& targets, const CrossEntropyOptions& options) {
  const int64_t classes = logits.size(-1), rows = targets.numel();
  const Tensor q = zeros({rows, classes}, {.dtype = DType::f64}), ids = targets.contiguous();
  int64_t counted = 0;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t target = ids.data<int64_t>()[r];
    if (target == options.ignore) continue;
    ++counted;
    double* row = q.data<double>() + r * classes;
    for (int64_t c = 0; c < classes; ++c)
      row[c] = options.label_smoothing / static_cast<double>(classes) +
               (c == target ? 1 - options.label_smoothing : 0);
  }
  const double divisor =
      options.reduction == Reduction::mean ? static_cast<double>(std::max<int64_t>(counted, 1)) : 1;
  const Tensor flat = logits.reshape({rows, classes}), total = logsumexp(flat, {.axes = {-1}, .keep = true});
  return sum((flat - total) * q.to(logits.dtype())) * (-1 / divisor);
}

void check(const Shape& shape, int64_t ignored, double smoothing, bool mean) {
  Shape rows = shape;
  rows.erase(shape.rank() - 1);
  const Tensor targets = make_targets(rows, shape[shape.rank() - 1], ignored);
  const CrossEntropyOptions options{.label_smoothing = smoothing,
                                    .reduction = mean ? Reduction::mean : Reduction::sum};
  check_fused({.name = concat("cross_entropy ", shape, " ignored ", ignored, " smoothing ", smoothing,
                              mean ? " mean" : " sum"),
               .inputs = {normal(shape, 1) * 2.0, targets},
               .function = [=](const Tensors& in) { return Tensors{cross_entropy(in[0], in[1], options)}; },
               .reference = [=](const Tensors& in) { return Tensors{reference(in[0], in[1], options)}; },
               .plain = [=](const Tensors& in) { return Tensors{composed(in[0], in[1], options)}; }});
}

TEST(CrossEntropy, SizesThatFillNoVector) {
  for (int64_t classes : {1, 2, 7, 8, 33, 256, 257}) check({5, classes}, 0, 0, true);
  check({70, 11}, 3, 0.1, true);
}

TEST(CrossEntropy, IgnoredTargetsSmoothingAndSums) {
  for (int64_t ignored : {0, 2})
    for (double smoothing : {0.0, 0.1, 0.9})
      for (bool mean : {false, true})
        for (int64_t classes : {9, 16}) check({5, classes}, ignored, smoothing, mean);
}

// From short rows to those that no group of threads keeps in registers, and logits whose softmax
// underflows: against f64 on the CPU.
TEST(CrossEntropy, LongRowsAndFarLogits) {
  for (const Device device : devices())
    for (const int64_t classes : {33, 1025, 1032, 4099, 8201, 8208})
      for (const double size : {2.0, 1e4}) {
        const Tensor values = normal({3, classes}, 1) * size, targets = make_targets({3}, classes, 3);
        const CrossEntropyOptions options{.label_smoothing = 0.1};
        const Tensor exact = values.to(DType::f32).to(DType::f64).set_requires_grad();
        const Tensor x = values.to(DType::f32).to(device).detach().set_requires_grad();
        const Tensor want = cross_entropy(exact, targets, options);
        const Tensor got = cross_entropy(x, targets.to(device), options);
        EXPECT_NEAR(got.item<double>(), want.item<double>(), 2e-6 * want.item<double>()) << x.shape();
        want.backward();
        got.backward();
        EXPECT_LE(max_difference(x.grad().to(kCpu).to(DType::f64), exact.grad()), 2e-6) << x.shape();
      }
}

TEST(CrossEntropy, Ranks) {
  check({6}, 0, 0.1, true);
  check({2, 3, 5}, 4, 0.1, true);
}

TEST(CrossEntropy, NothingThatCountsGivesZero) {
  for (const Shape& shape : {Shape{3, 5}, Shape{0, 5}}) {
    const Tensor logits = full(shape, NAN).set_requires_grad();
    const Tensor loss = cross_entropy(logits, full({shape[0]}, kIgnore, {.dtype = DType::i64}));
    EXPECT_EQ(loss.item<double>(), 0);
    loss.backward();
    for (float g : logits.grad().to_vector<float>()) EXPECT_EQ(g, 0);
  }
}

TEST(CrossEntropy, IgnoredRowsMayHoldAnything) {
  const Tensor logits = normal({2, 3}, 1), targets = tensor<int64_t>({2, kIgnore});
  const Tensor poisoned = logits.clone();
  poisoned.select(0, 1).fill_(NAN);
  poisoned.set_requires_grad();
  const Tensor loss = cross_entropy(poisoned, targets);
  EXPECT_EQ(loss.item<double>(), cross_entropy(logits, targets).item<double>());
  loss.backward();
  EXPECT_TRUE(all_finite(poisoned.grad()));
  EXPECT_EQ(max_abs(poisoned.grad().select(0, 1)), 0);
}

// The backward that starts from 1 skips a pass: it must add up, and repeat, as every other.
TEST(CrossEntropy, BackwardFromOneAccumulatesAndRepeats) {
  const Tensor targets = make_targets({4}, 5, 0), x = normal({4, 5}, 1), once = x.clone().set_requires_grad();
  cross_entropy(once, targets).backward();
  const Tensor leaf = x.clone().set_requires_grad();
  const Tensor loss = cross_entropy(leaf, targets);
  loss.backward({}, {.retain_graph = true});
  loss.backward({}, {.retain_graph = true});
  loss.backward(full({}, 0.5, x.options()));
  EXPECT_LE(max_difference(leaf.grad(), once.grad() * 2.5), 1e-15);
  const Tensor shared = x.clone().set_requires_grad();
  const Tensor scaled = shared * 1.0;
  (cross_entropy(scaled, targets) + cross_entropy(scaled, targets)).backward();
  EXPECT_LE(max_difference(shared.grad(), once.grad() * 2.0), 1e-15);
}

// The forward has made it: the backward hands it on, scaled in place where that is needed.
TEST(CrossEntropy, TheBackwardTakesNoMemoryForAGradient) {
  const Shape shape{50, 1000};
  const Tensor targets = make_targets({50}, 1000, 0), x = normal(shape, 1).to(DType::f32);
  for (const Device device : devices())
    for (const double scale : {1.0, 3.0}) {
      const Tensor leaf = x.to(device).clone().set_requires_grad();
      const Tensor loss = cross_entropy(leaf * 1.0, targets.to(device)) * scale;
      MemoryStats before = allocator(device).stats();
      allocator(device).reset_peak();
      loss.backward();
      const int64_t most = allocator(device).stats().peak - before.in_use, gradient = leaf.numel() * 4;
      EXPECT_LT(most, (device.is_cpu() && scale != 1 ? 5 : 3) * gradient / 2) << device << " " << scale;
      const Tensor same = x.clone().set_requires_grad();
      cross_entropy(same, targets).backward();
      EXPECT_LE(max_difference(leaf.grad().to(kCpu), same.grad() * scale), 1e-6);
    }
}

TEST(CrossEntropy, LossOfBf16LogitsIsF32) {
  EXPECT_EQ(cross_entropy(zeros({2, 3}, {.dtype = DType::bf16}), tensor<int64_t>({0, 1})).dtype(),
            DType::f32);
}

TEST(CrossEntropy, Errors) {
  const Tensor logits = zeros({2, 3}), targets = tensor<int64_t>({0, 1});
  expect_error<ShapeError>(
      [&] {
        cross_entropy(logits, tensor<int64_t>({0, 1, 2}));
      },
      "cross_entropy: targets are [3], expected [2] for an input of [2, 3]");
  expect_error<DTypeError>([&] { cross_entropy(logits, zeros({2})); }, "class ids must be i64");
  expect_error<IndexError>([&] { cross_entropy(logits, tensor<int64_t>({0, 3})); }, "3");
  expect_error<IndexError>([&] { cross_entropy(logits, tensor<int64_t>({-1, 0})); }, "-1");
  EXPECT_THROW(cross_entropy(zeros({}), zeros({}, {.dtype = DType::i64})), ShapeError);
  EXPECT_THROW(cross_entropy(zeros({2, 0}), targets), ShapeError);
  EXPECT_THROW(cross_entropy(logits.to(DType::i64), targets), DTypeError);
  for (double smoothing : {-0.1, 1.0, static_cast<double>(NAN)})
    expect_error<ConfigError>([&] { cross_entropy(logits, targets, {.label_smoothing = smoothing}); },
                              "cross_entropy: label_smoothing is ");
}

}  // namespace
}  // namespace heed::test
