#include <cmath>

#include <gtest/gtest.h>

#include <heed/core/base/memory/allocator.h>
#include <heed/core/ops.h>
#include <heed/core/parameters.h>
#include <heed/core/storage.h>

#include "../fused_check.h"

namespace heed::test {
namespace {

constexpr uint64_t kSeed = 9;

struct Case {
  Shape shape;
  int64_t out = 1;
  bool bias = true;
  Activation activation = Activation::none;
  double dropout = 0;
  int64_t first = 0, stacked = 0;  // outputs are first … first + out - 1 of so many; 0: just they
};

int64_t stacked(const Case& c) { return c.stacked == 0 ? c.out : c.stacked; }

Tensor rows_of(const Tensor& stack, const Case& c) {
  if (!stack.defined() || c.stacked == 0) return stack;
  return stack.slice(0, c.first, c.first + c.out);
}

Tensor activated(const Tensor& x, Activation which) {
  const NoFusedKernels no_fused_kernels;
  return activation(x, which);
}

Tensor reference(const Tensor& x, const Tensor& weight, const Tensor& bias, const Case& c) {
  const int64_t in = x.size(-1);
  const Tensor input = x.contiguous(), matrix = weight.contiguous();
  Shape shape = x.shape();
  shape[x.rank() - 1] = c.out;
  const Tensor y = empty(shape, x.options());
  for (int64_t r = 0; r < y.numel() / c.out; ++r)
    for (int64_t o = 0; o < c.out; ++o) {
      double sum = bias.defined() ? bias.contiguous().data<double>()[c.first + o] : 0;
      for (int64_t i = 0; i < in; ++i)
        sum += input.data<double>()[r * in + i] * matrix.data<double>()[(c.first + o) * in + i];
      y.data<double>()[r * c.out + o] = sum;
    }
  return activated(y, c.activation) * dropout_factors(shape, c.dropout, kSeed);
}

void check(const Case& c) {
  const int64_t in = c.shape[c.shape.rank() - 1];
  check_composed(
      {.name = concat("linear ", c.shape, " to ", c.out, c.bias ? " bias" : "", " activation ",
                      static_cast<int>(c.activation), " dropout ", c.dropout, " first ", c.first, " of ",
                      stacked(c)),
       .inputs = {normal(c.shape, 1), normal({stacked(c), in}, 2),
                  c.bias ? normal({stacked(c)}, 3) : Tensor()},
       .function =
           [=](const Tensors& in) {
             Generator generator(kSeed);
             return Tensors{
                 linear(in[0], rows_of(in[1], c), rows_of(in[2], c),
                        {.activation = c.activation, .dropout = c.dropout, .generator = &generator})};
           },
       .reference = [=](const Tensors& in) { return Tensors{reference(in[0], in[1], in[2], c)}; }});
}

TEST(Linear, SizesThatFillNoTile) {
  check({.shape = {1, 1}, .out = 1});
  check({.shape = {3, 5}, .out = 7});
  check({.shape = {33, 31}, .out = 2});
  check({.shape = {2, 129}, .out = 33});
  check({.shape = {17, 64}, .out = 65, .bias = false});
}

TEST(Linear, AnyLeadingAxes) {
  check({.shape = {5}, .out = 3});
  check({.shape = {2, 3, 4}, .out = 5});
  check({.shape = {2, 1, 3, 4}, .out = 5, .activation = Activation::gelu, .dropout = 0.5});
  check({.shape = {0, 4}, .out = 3});
  check({.shape = {2, 0, 4}, .out = 3, .activation = Activation::relu, .dropout = 0.5});
}

TEST(Linear, OfNoColumnsIsTheBias) {
  for (const bool bias : {false, true})
    for (const Activation which : {Activation::none, Activation::gelu})
      check({.shape = {2, 0}, .out = 3, .bias = bias, .activation = which});
}

TEST(Linear, EveryActivationWithAndWithoutBiasAndDropout) {
  for (Activation which : kActivations)
    for (bool bias : {false, true})
      for (double p : {0.0, 0.5}) check({{5, 6}, 9, bias, which, p});
}

TEST(Linear, SomeOutputsOfAStackedWeight) {
  for (bool bias : {false, true})
    for (int64_t first : {0, 5, 8, 9})  // a bias on and off every boundary of a vector
      for (const Activation which : {Activation::none, Activation::silu})
        check({{7, 6}, 4, bias, which, 0, first, 13});
  check({{2, 3, 40}, 70, true, Activation::gelu, 0.5, 64, 150});
}

TEST(Linear, SavesOnlyWhatTheGradientsNeed) {
  const Tensor x = normal({2, 3}, 1), weight = normal({4, 3}, 2).set_requires_grad();
  const Tensor y = linear(x, weight);
  weight.detach().fill_(0);  // the gradient of x is not wanted, so that of y needs no weight
  y.backward(ones({2, 4}, x.options()));
  EXPECT_LE(max_difference(weight.grad(), sum(x, {.axes = {0}, .keep = true}).expand({4, 3})), 1e-14);
}

TEST(Linear, ChangedInputsAreNoticed) {
  const Tensor x = normal({2, 3}, 1).set_requires_grad(), weight = normal({4, 3}, 2).set_requires_grad();
  expect_change_is_noticed(linear(x, weight), weight);
  expect_change_is_noticed(linear(x, weight), x);
}

TEST(Linear, TheSameMatrixTwice) {
  const Tensor w = normal({4, 4}, 1).set_requires_grad(), a = w.detach().clone().set_requires_grad(),
               b = w.detach().clone().set_requires_grad(), seed = normal({4, 4}, 2);
  linear(w, w).backward(seed);
  linear(a, b).backward(seed);
  EXPECT_LE(max_difference(w.grad(), a.grad() + b.grad()), 1e-13);
}

TEST(Linear, AddsToTheGradientsOfParameters) {
  for (DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    const Tensor weight = normal({3, 5}, 1).to(dtype).set_requires_grad(),
                 bias = normal({3}, 2).to(dtype).set_requires_grad(), x = normal({7, 5}, 3).to(dtype);
    const Parameters parameters({{"weight", {}, weight}, {"bias", {}, bias}});
    const Tensor seed = normal({7, 3}, 4).to(dtype);
    for (int step = 0; step < 3; ++step) linear(x, parameters[0].tensor, parameters[1].tensor).backward(seed);
    const Tensor exact = matmul(seed.to(DType::f64).transpose(0, 1), x.to(DType::f64)) * 3.0;
    const Tensor got = parameters.gradient(0);
    EXPECT_EQ(got.dtype(), dtype == DType::f64 ? DType::f64 : DType::f32);
    EXPECT_LE(max_difference(got.to(DType::f64), exact), 32 * epsilon(got.dtype()) * max_abs(exact));
    const Tensor exact_bias = sum(seed.to(DType::f64), {.axes = {0}}) * 3.0;
    EXPECT_LE(max_difference(parameters.gradient(1).to(DType::f64), exact_bias),
              32 * epsilon(got.dtype()) * max_abs(exact_bias));
  }
}

// The backward of relu may write over the gradient that it got, unless somebody else has it.
TEST(Linear, HooksAndRetainedGradientsKeepWhatTheyGot) {
  for (const Device device : devices()) {
    const auto leaf = [&](const Shape& shape, uint64_t seed) {
      return normal(shape, seed).to(DType::f32).to(device).set_requires_grad();
    };
    const Tensor x = leaf({6, 5}, 1), inner = leaf({8, 5}, 2), outer = leaf({3, 8}, 3);
    const Tensor expected = matmul(ones({6, 3}), outer.detach().to(kCpu));
    for (const bool hook : {false, true}) {
      const Tensor y = linear(x, inner, {}, {.activation = Activation::relu});
      Tensor seen;
      if (hook) {
        y.register_hook([&](const Tensor& g) {
          seen = g;
          return Tensor();
        });
      } else {
        y.retain_grad();
      }
      sum(linear(y, outer)).backward();
      if (!hook) seen = y.grad();
      EXPECT_LT(max_difference(seen.to(kCpu), expected), 1e-5) << device << ", hook " << hook;
      EXPECT_GT(max_abs(expected), 0.1);
    }
  }
}

TEST(Linear, WhatAnActivationKeptIsGoneBeforeTheProducts) {
  const int64_t rows = 256, in = 512, out = 1024;
  for (const Device device : devices(DType::f32)) {
    const auto peak = [&](bool retain) {
      const auto leaf = [&](const Shape& shape, uint64_t seed) {
        return normal(shape, seed).to(DType::f32).to(device).set_requires_grad();
      };
      const Tensor x = leaf({rows, in}, 1), weight = leaf({out, in}, 2);
      const Tensor loss = sum(linear(x, weight, {}, {.activation = Activation::relu}));
      const int64_t before = allocator(device).stats().in_use;
      allocator(device).reset_peak();
      loss.backward({}, {.retain_graph = retain});
      return allocator(device).stats().peak - before;
    };
    const int64_t thread_blocks = int64_t{1} << 16;  // which come and go
    EXPECT_GE(peak(true) - peak(false), rows * out * 4 - thread_blocks) << device;
  }
}

// The gradients of a stacked weight's parts meet in one, which is as exact as that of the whole.
TEST(Linear, PartsOfAWeightGiveTheGradientOfTheWhole) {
  for (DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    const auto parameters_of = [&] {
      return Parameters({{"weight", {}, normal({6, 5}, 1).to(dtype).set_requires_grad()},
                         {"bias", {}, normal({6}, 2).to(dtype).set_requires_grad()}});
    };
    const Parameters whole = parameters_of(), parts = parameters_of();
    const Tensor x = normal({7, 5}, 3).to(dtype), seed = normal({7, 6}, 4).to(dtype);
    for (int step = 0; step < 2; ++step) {
      linear(x, whole[0].tensor, whole[1].tensor).backward(seed);
      const auto part = [&](int64_t i, int64_t begin, int64_t end) {
        return parts[i].tensor.slice(0, begin, end);
      };
      linear(x, part(0, 2, 6), part(1, 2, 6)).backward(seed.slice(1, 2, 6));
      linear(x, part(0, 0, 2), part(1, 0, 2)).backward(seed.slice(1, 0, 2));
      for (int64_t i : {0, 1}) {
        const double tolerance = 8 * epsilon(whole.gradient(i).dtype());
        EXPECT_LE(max_difference(parts.gradient(i), whole.gradient(i)),
                  tolerance * max_abs(whole.gradient(i)));
      }
    }
  }
}

TEST(Linear, Errors) {
  const Tensor x = zeros({2, 4}), weight = zeros({3, 4});
  Generator generator(1);
  expect_error<ShapeError>(
      [&] {
        linear(x, zeros({3, 5}));
      },
      "linear: weight is [3, 5], expected [out, 4] for an input of [2, 4]");
  EXPECT_THROW(linear(x, zeros({4})), ShapeError);
  EXPECT_THROW(linear(zeros({}), weight), ShapeError);
  expect_error<ShapeError>([&] { linear(x, weight, zeros({4})); }, "linear: bias is [4], expected [3]");
  EXPECT_THROW(linear(x, weight.to(DType::bf16)), DTypeError);
  EXPECT_THROW(linear(x, weight, zeros({3}, {.dtype = DType::f64})), DTypeError);
  EXPECT_THROW(linear(x.to(DType::i64), weight.to(DType::i64)), DTypeError);
  expect_error<ConfigError>([&] { linear(x, weight, {}, {.dropout = NAN, .generator = &generator}); },
                            "linear: the dropout rate is nan");
  EXPECT_THROW(linear(x, weight, {}, {.dropout = 1, .generator = &generator}), ConfigError);
  EXPECT_EQ(generator.offset(), 0u);
  EXPECT_EQ(linear(x, weight.slice(0, 3, 3)).shape(), (Shape{2, 0}));
}

double difference(const Tensor& a, const Tensor& b);

// Of bf16 it is that of the same numbers in f32, but for the order of sums, and its gradients those of a
// rounded product.
TEST(Linear, AWideProductIsNotRounded) {
  const Tensor x = normal({5, 70}, 1).to(DType::bf16).detach().set_requires_grad(),
               weight = normal({33, 70}, 2).to(DType::bf16).detach().set_requires_grad();
  const Tensor y = linear(x, weight, {}, {.wide = true});
  EXPECT_EQ(y.dtype(), DType::f32);
  EXPECT_LE(difference(y.detach(), linear(x.detach().to(DType::f32), weight.detach().to(DType::f32))), 1e-4);
  const Tensor g = normal({5, 33}, 3).to(DType::bf16);
  y.backward(g.to(DType::f32));
  const Tensor gx = x.grad(), gweight = weight.grad();
  x.zero_grad();
  weight.zero_grad();
  linear(x, weight).backward(g);
  EXPECT_TRUE(array_equal(gx, x.grad()));
  EXPECT_TRUE(array_equal(gweight, weight.grad()));
  const Tensor f32 = x.detach().to(DType::f32), matrix = weight.detach().to(DType::f32);
  EXPECT_TRUE(array_equal(linear(f32, matrix, {}, {.wide = true}), linear(f32, matrix)));
  EXPECT_THROW(linear(x, weight, zeros({33}, {.dtype = DType::bf16}), {.wide = true}), ConfigError);
  EXPECT_THROW(linear(x, weight, {}, {.activation = Activation::relu, .wide = true}), ConfigError);
}

double difference(const Tensor& a, const Tensor& b) { return max(abs(a - b)).item<double>(); }

// Under NoGrad the CPU keeps a packed copy of a weight with its memory, for products of few rows.
class LinearPackedCopy : public testing::Test {
 protected:
  const NoGrad no_grad;
};

// The weight in one piece, a part of another, and one with gaps.
TEST_F(LinearPackedCopy, ChangesNothingButTheLastBits) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    const Tensor whole = normal({150, 40}, 1).to(dtype).set_requires_grad(),
                 wide = normal({50, 80}, 2).to(dtype), bias = normal({50}, 3).to(dtype);
    for (const Tensor& weight : {whole.slice(0, 0, 50), whole.slice(0, 100, 150), wide.slice(1, 20, 60)})
      for (const int64_t rows : {1, 5, 40}) {
        const Tensor x = normal({rows, 40}, 4).to(dtype), first = linear(x, weight, bias),
                     again = linear(x, weight, bias), plain = matmul(x, weight.transpose(0, 1)) + bias;
        EXPECT_EQ(difference(first, again), 0) << "what was kept changed the result";
        EXPECT_LE(difference(first, plain), dtype == DType::f64 ? 1e-12 : dtype == DType::f32 ? 1e-4 : 0.2);
      }
  }
}

TEST_F(LinearPackedCopy, EveryNotedWriteIsSeen) {
  const Tensor weight = normal({7, 6}, 1).to(DType::f32).set_requires_grad();
  const Parameters parameters({{"weight", {}, weight}});
  const Tensor x = normal({3, 6}, 2).to(DType::f32);
  const auto expect_fresh = [&](const char* after) {
    EXPECT_LE(difference(linear(x, weight), matmul(x, weight.transpose(0, 1))), 1e-5) << after;
  };
  expect_fresh("nothing");
  weight.mul_(2);
  expect_fresh("mul_");
  weight.slice(0, 2, 4).fill_(0.5);
  expect_fresh("a write through a view");
  weight.data<float>()[3] = 9;
  weight.bump_version();
  expect_fresh("a write through data()");
  parameters.to(DType::f64);
  parameters.to(DType::f32);
  expect_fresh("conversions");
}

TEST_F(LinearPackedCopy, GoesWithTheNextWriteAndWithTheWeight) {
  const Tensor x = zeros({2, 64});
  const int64_t before = cpu_allocator().stats().in_use;
  {
    const Tensor weight = zeros({64, 64}).set_requires_grad();
    const int64_t without = cpu_allocator().stats().in_use;
    linear(x, weight);
    const int64_t with = cpu_allocator().stats().in_use;
    EXPECT_GE(with, without + 64 * 64 * 4);
    linear(x, weight);
    EXPECT_EQ(cpu_allocator().stats().in_use, with);
    weight.fill_(1);
    EXPECT_EQ(cpu_allocator().stats().in_use, without);
    linear(x, weight);
  }
  EXPECT_EQ(cpu_allocator().stats().in_use, before);
}

TEST_F(LinearPackedCopy, IsNotMadeForManyRows) {
  const Tensor weight = zeros({64, 64}).set_requires_grad(), x = zeros({257, 64});
  const int64_t before = cpu_allocator().stats().in_use;
  linear(x, weight);
  EXPECT_EQ(cpu_allocator().stats().in_use, before);
}

TEST_F(LinearPackedCopy, IsMadeOfParametersAlone) {
  const Tensor weight = zeros({64, 64}), x = zeros({2, 64});
  const int64_t before = cpu_allocator().stats().in_use;
  linear(x, weight);
  EXPECT_EQ(cpu_allocator().stats().in_use, before);
  weight.set_requires_grad().set_requires_grad(false);  // frozen, it is still one
  linear(x, weight);
  EXPECT_GT(cpu_allocator().stats().in_use, before);
}

TEST(Linear, KeepsNoPackedCopyWhereGradientsAreOn) {
  for (const bool trained : {false, true}) {
    const Tensor weight = zeros({64, 64}).set_requires_grad(), x = zeros({2, 64});
    weight.set_requires_grad(trained);
    const int64_t before = cpu_allocator().stats().in_use;
    linear(x, weight);
    EXPECT_EQ(cpu_allocator().stats().in_use, before);
  }
}

}  // namespace
}  // namespace heed::test
