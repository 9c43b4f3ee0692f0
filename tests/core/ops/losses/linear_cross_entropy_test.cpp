#include <gtest/gtest.h>

#include <heed/core/ops.h>

#include "../fused_check.h"

namespace heed::test {
namespace {

constexpr int64_t kIgnore = -100;

Tensor make_targets(const Shape& shape, int64_t classes, int64_t ignored) {
  const Tensor targets = empty(shape, {.dtype = DType::i64});
  for (int64_t i = 0; i < targets.numel(); ++i)
    targets.data<int64_t>()[i] = ignored > 0 && i % ignored == ignored - 1 ? kIgnore : i * 7 % classes;
  return targets;
}

// Against the two operations that it stands for.
void check(const Shape& rows, int64_t in, int64_t classes, int64_t slice, const CrossEntropyOptions& options,
           int64_t ignored = 0) {
  Shape shape = rows;
  shape.append(in);
  const auto apart = [=](const Tensors& x) {
    return Tensors{cross_entropy(linear(x[0], x[1]), x[2], options)};
  };
  check_fused(
      {.name = concat("linear_cross_entropy ", shape, " classes ", classes, " slice ", slice, " ignored ",
                      ignored),
       .inputs = {normal(shape, 1), normal({classes, in}, 2) * 0.5, make_targets(rows, classes, ignored)},
       .function =
           [=](const Tensors& x) { return Tensors{linear_cross_entropy(x[0], x[1], x[2], options, slice)}; },
       .reference = apart,
       .plain = apart});
}

TEST(LinearCrossEntropy, ClassesThatFillNoVector) {
  for (const int64_t classes : {1, 2, 7, 8, 33, 257}) check({5}, 6, classes, 0, {});
}

TEST(LinearCrossEntropy, Slices) {
  for (const int64_t slice : {1, 3, 4, 7, 100}) check({7}, 5, 19, slice, {.label_smoothing = 0.1}, 3);
}

TEST(LinearCrossEntropy, RanksSumsAndSmoothing) {
  check({}, 3, 5, 0, {});
  check({2, 3}, 4, 9, 4, {.reduction = Reduction::sum}, 4);
  check({2, 3}, 4, 9, 4, {.label_smoothing = 0.3}, 2);
}

// Rows that no group of threads keeps in registers, with a last vector that is not full.
TEST(LinearCrossEntropy, ManyClasses) {
  for (const Device device : devices())
    for (const int64_t classes : {1025, 8201, 20001}) {
      const Tensor values = normal({3, 4}, 1), matrix = normal({classes, 4}, 2),
                   targets = make_targets({3}, classes, 3);
      const CrossEntropyOptions options{.label_smoothing = 0.1};
      const Tensor exact = values.to(DType::f32).to(DType::f64).set_requires_grad(),
                   exact_weight = matrix.to(DType::f32).to(DType::f64).set_requires_grad();
      const Tensor x = values.to(DType::f32).to(device).detach().set_requires_grad(),
                   weight = matrix.to(DType::f32).to(device).detach().set_requires_grad();
      const Tensor want = cross_entropy(linear(exact, exact_weight), targets, options);
      const Tensor got = linear_cross_entropy(x, weight, targets.to(device), options, 2);
      EXPECT_NEAR(got.item<double>(), want.item<double>(), 4e-6 * want.item<double>()) << classes;
      want.backward();
      got.backward();
      EXPECT_LE(max_difference(x.grad().to(kCpu).to(DType::f64), exact.grad()), 4e-6) << classes;
      EXPECT_LE(max_difference(weight.grad().to(kCpu).to(DType::f64), exact_weight.grad()), 4e-6) << classes;
    }
}

// Gradients are made by the forward, and scaled and added up by the backward.
TEST(LinearCrossEntropy, GradientsAddUp) {
  for (const Device device : devices()) {
    const Tensor x = normal({6, 4}, 1).to(DType::f32).to(device).detach().set_requires_grad(),
                 weight = normal({11, 4}, 2).to(DType::f32).to(device).detach().set_requires_grad();
    const Tensor targets = make_targets({6}, 11, 0).to(device);
    (linear_cross_entropy(x, weight, targets) * 3.0).backward();
    const Tensor once = x.grad().clone(), once_weight = weight.grad().clone();
    const Tensor loss = linear_cross_entropy(x, weight, targets);
    loss.backward({}, {.retain_graph = true});
    loss.backward();
    EXPECT_LE(max_difference(x.grad(), once * (5.0 / 3)), 1e-6) << device;
    EXPECT_LE(max_difference(weight.grad(), once_weight * (5.0 / 3)), 1e-6) << device;
  }
}

// Where only one of the two is trained, and where nothing is.
TEST(LinearCrossEntropy, OnlyWantedGradients) {
  const Tensor x = normal({6, 4}, 1).to(DType::f32), weight = normal({11, 4}, 2).to(DType::f32),
               targets = make_targets({6}, 11, 0);
  const double plain = linear_cross_entropy(x, weight, targets).item<double>();
  const Tensor trained = x.detach().set_requires_grad();
  const Tensor loss = linear_cross_entropy(trained, weight, targets);
  EXPECT_EQ(loss.item<double>(), plain);
  loss.backward();
  EXPECT_FALSE(weight.grad().defined());
  EXPECT_TRUE(trained.grad().defined());
}

TEST(LinearCrossEntropy, NothingToFuseOrToCount) {
  const Tensor x = normal({3, 4}, 1).to(DType::f32), weight = normal({5, 4}, 2).to(DType::f32),
               targets = make_targets({3}, 5, 0);
  const Tensor each = linear_cross_entropy(x, weight, targets, {.reduction = Reduction::none});
  EXPECT_EQ(each.shape(), Shape({3}));
  const CrossEntropyOptions weighted{.weight = ones({5})};
  EXPECT_NEAR(linear_cross_entropy(x, weight, targets, weighted).item<double>(),
              cross_entropy(linear(x, weight), targets, weighted).item<double>(), 1e-6);
  EXPECT_EQ(linear_cross_entropy(x, weight, full({3}, kIgnore, {.dtype = DType::i64})).item<double>(), 0);
  EXPECT_THROW(static_cast<void>(linear_cross_entropy(x, weight, full({3}, kIgnore, {.dtype = DType::i64}),
                                                      {.require_target = true})),
               DataError);
}

TEST(LinearCrossEntropy, BadInputIsRefused) {
  const Tensor x = zeros({3, 4}), weight = zeros({5, 4}), targets = zeros({3}, {.dtype = DType::i64});
  const auto run = [](const Tensor& a, const Tensor& b, const Tensor& c,
                      const CrossEntropyOptions& options = {}, int64_t slice = 0) {
    static_cast<void>(linear_cross_entropy(a, b, c, options, slice));
  };
  EXPECT_THROW(run(x, zeros({5, 3}), targets), ShapeError);
  EXPECT_THROW(run(x, zeros({4}), targets), ShapeError);
  EXPECT_THROW(run(x, zeros({0, 4}), targets), ShapeError);
  EXPECT_THROW(run(x, weight, zeros({2}, {.dtype = DType::i64})), ShapeError);
  EXPECT_THROW(run(x, weight, zeros({3})), DTypeError);
  EXPECT_THROW(run(x, zeros({5, 4}, {.dtype = DType::f64}), targets), DTypeError);
  EXPECT_THROW(run(x, weight, full({3}, 5, {.dtype = DType::i64})), IndexError);
  EXPECT_THROW(run(x, weight, targets, {.label_smoothing = 1}), ConfigError);
  EXPECT_THROW(run(x, weight, targets, {}, -1), ConfigError);
}

}  // namespace
}  // namespace heed::test
