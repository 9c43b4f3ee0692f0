#include <gtest/gtest.h>

#include <heed/core/base/threads/parallel_for.h>
#include <heed/core/convolution.h>
#include <heed/core/ops.h>

#include "../fused_check.h"

namespace heed::test {
namespace {

struct Case {
  Shape x, weight;
  Convolution2dOptions options = {};
  bool bias = true;
};

// The definition, in plain loops.
Tensor reference(const Tensors& in, const Case& c) {
  const Tensor x = in[0].contiguous(), w = in[1].contiguous();
  const Size2d s = c.options.stride, p = c.options.padding, d = c.options.dilation;
  const int64_t height = (x.size(2) + 2 * p.height - (w.size(2) - 1) * d.height - 1) / s.height + 1;
  const int64_t width = (x.size(3) + 2 * p.width - (w.size(3) - 1) * d.width - 1) / s.width + 1;
  const Tensor y = zeros({x.size(0), w.size(0), height, width}, x.options());
  double* out = y.data<double>();
  for (int64_t n = 0; n < x.size(0); ++n)
    for (int64_t o = 0; o < w.size(0); ++o)
      for (int64_t i = 0; i < height; ++i)
        for (int64_t j = 0; j < width; ++j, ++out) {
          *out = in[2].defined() ? in[2].contiguous().data<double>()[o] : 0;
          for (int64_t k = 0; k < w.size(1); ++k)
            for (int64_t a = 0; a < w.size(2); ++a)
              for (int64_t b = 0; b < w.size(3); ++b) {
                const int64_t row = i * s.height - p.height + a * d.height,
                              col = j * s.width - p.width + b * d.width;
                if (row < 0 || row >= x.size(2) || col < 0 || col >= x.size(3)) continue;
                const int64_t channel = o / (w.size(0) / c.options.groups) * w.size(1) + k;
                *out += w.data<double>()[((o * w.size(1) + k) * w.size(2) + a) * w.size(3) + b] *
                        x.data<double>()[((n * x.size(1) + channel) * x.size(2) + row) * x.size(3) + col];
              }
        }
  return y;
}

// Products of shifted images and the weight at each tap.
Tensors composed(const Tensors& in, const Case& c) {
  const Size2d s = c.options.stride, p = c.options.padding, d = c.options.dilation;
  const Tensor x = pad(in[0], {p.width, p.width, p.height, p.height}), &w = in[1];
  const int64_t height = (x.size(2) - (w.size(2) - 1) * d.height - 1) / s.height + 1,
                width = (x.size(3) - (w.size(3) - 1) * d.width - 1) / s.width + 1, groups = c.options.groups;
  Tensor y;
  for (int64_t a = 0; a < w.size(2); ++a)
    for (int64_t b = 0; b < w.size(3); ++b) {
      const Tensor image = x.slice(2, a * d.height, a * d.height + (height - 1) * s.height + 1, s.height)
                               .slice(3, b * d.width, b * d.width + (width - 1) * s.width + 1, s.width)
                               .reshape({x.size(0), groups, x.size(1) / groups, height * width});
      const Tensor weight = w.select(3, b).select(2, a).reshape({groups, w.size(0) / groups, w.size(1)});
      const Tensor part = matmul(weight, image).reshape({x.size(0), w.size(0), height, width});
      y = y.defined() ? y + part : part;
    }
  return {in[2].defined() ? y + in[2].reshape({w.size(0), 1, 1}) : y};
}

void check(const Case& c) {
  check_fused({.name = concat("conv2d ", c.x, " by ", c.weight, " groups ", c.options.groups),
               .inputs = {normal(c.x, 1), normal(c.weight, 2), c.bias ? normal({c.weight[0]}, 3) : Tensor()},
               .function = [=](const Tensors& in) { return Tensors{conv2d(in[0], in[1], in[2], c.options)}; },
               .reference = [=](const Tensors& in) { return Tensors{reference(in, c)}; },
               .plain = [=](const Tensors& in) { return composed(in, c); },
               .magnitude = 4});
}

TEST(Conv2d, KernelsOfAnySize) {
  check({.x = {2, 3, 5, 4}, .weight = {4, 3, 3, 3}});
  check({.x = {1, 2, 4, 5}, .weight = {3, 2, 1, 1}, .bias = false});
  check({.x = {1, 2, 6, 5}, .weight = {2, 2, 2, 4}});
}

TEST(Conv2d, StridePaddingAndDilation) {
  check({.x = {2, 2, 6, 7}, .weight = {3, 2, 3, 3}, .options = {.stride = 2, .padding = 1}});
  check({.x = {1, 2, 7, 6}, .weight = {2, 2, 3, 2}, .options = {.padding = {2, 1}, .dilation = {1, 2}}});
  check({.x = {1, 1, 9, 8}, .weight = {2, 1, 2, 3}, .options = {.stride = {3, 2}, .padding = {0, 3}}});
}

// Pixels that no tap reaches have no gradient.
TEST(Conv2d, StrideBeyondTheKernel) {
  check({.x = {2, 2, 5, 5}, .weight = {2, 2, 1, 1}, .options = {.stride = 2}, .bias = false});
  check({.x = {1, 1, 7, 7}, .weight = {1, 1, 2, 2}, .options = {.stride = 4}});
}

TEST(Conv2d, GroupsAndDepthwise) {
  check({.x = {2, 4, 5, 5}, .weight = {6, 2, 3, 3}, .options = {.padding = 1, .groups = 2}});
  check({.x = {1, 3, 6, 4}, .weight = {6, 1, 3, 3}, .options = {.stride = 2, .padding = 1, .groups = 3}});
  check({.x = {2, 2, 19, 17}, .weight = {2, 1, 2, 2}, .options = {.stride = 7, .groups = 2}});
}

TEST(Conv2d, PaddingBeyondTheKernel) {
  check({.x = {1, 1, 3, 3}, .weight = {1, 1, 2, 2}, .options = {.padding = 3}});
}

TEST(Conv2d, Empty) {
  check({.x = {0, 2, 4, 4}, .weight = {3, 2, 3, 3}});
  check({.x = {2, 2, 4, 4}, .weight = {0, 2, 3, 3}});
}

// One to four outputs of a group have no product, and as few channels none in the gradient of x.
TEST(Conv2d, FewOutputs) {
  for (int64_t outputs : {1, 2, 3, 4, 5})
    for (int64_t stride : {1, 2, 3})
      check({.x = {2, 2, 6, 19},
             .weight = {outputs, 2, 3, 2},
             .options = {.stride = {1, stride}, .padding = {1, 0}}});
}

// Against shifted images at sizes that the definition is too slow for, in f64 and f32.
void check_whole(const Case& c) {
  const Tensors in{normal(c.x, 1).set_requires_grad(), normal(c.weight, 2).set_requires_grad(),
                   normal({c.weight[0]}, 3).set_requires_grad()};
  const Tensor y = conv2d(in[0], in[1], in[2], c.options), plain = composed(in, c)[0];
  EXPECT_LE(max_difference(y, plain), 1e-12 * max_abs(plain));
  const Tensor g = normal(y.shape(), 4);
  y.backward(g);
  Tensors got;
  for (const Tensor& x : in) got.push_back(x.grad()), x.zero_grad();
  plain.backward(g);
  for (size_t i = 0; i < in.size(); ++i)
    EXPECT_LE(max_difference(got[i], in[i].grad()), 1e-12 * max_abs(got[i])) << c.x << " input " << i;
  Tensors narrow;
  for (const Tensor& x : in) narrow.push_back(x.detach().to(DType::f32).set_requires_grad());
  const Tensor rounded = conv2d(narrow[0], narrow[1], narrow[2], c.options);
  EXPECT_LE(max_difference(rounded.to(DType::f64), plain), 1e-5 * max_abs(plain)) << c.x;
  rounded.backward(g.to(DType::f32));
  for (size_t i = 0; i < in.size(); ++i)
    EXPECT_LE(max_difference(narrow[i].grad().to(DType::f64), in[i].grad()), 1e-5 * max_abs(got[i]))
        << c.x << " input " << i << " in f32";
}

// Sizes at which the work is cut: several slices, channel blocks, row blocks of the product, parts of the
// outputs and of the batch, and several images at a time.
TEST(Conv2d, WhatIsCutIntoTasksIsWhole) {
  const Convolution2dOptions dilated{.padding = {2, 1}, .dilation = {2, 1}};
  check_whole({.x = {3, 40, 24, 33}, .weight = {100, 40, 3, 3}, .options = dilated});
  check_whole({.x = {9, 1, 28, 28}, .weight = {8, 1, 5, 5}, .options = {.stride = 2}});
  check_whole({.x = {11, 4, 7, 6}, .weight = {6, 2, 3, 3}, .options = {.stride = 2, .groups = 2}});
  check_whole({.x = {13, 3, 8, 8}, .weight = {3, 1, 3, 3}, .options = {.padding = 1, .groups = 3}});
  check_whole({.x = {1, 64, 7, 7}, .weight = {17, 64, 3, 3}, .options = dilated});
  check_whole({.x = {9, 50, 7, 7}, .weight = {256, 50, 3, 3}, .options = dilated});
  check_whole({.x = {5, 30, 14, 14}, .weight = {40, 30, 3, 3}, .options = dilated});
  check_whole({.x = {2, 3, 60, 45}, .weight = {20, 3, 7, 7}, .options = {.stride = 2, .padding = 3}});
}

// The CPU has Winograd's transforms for these: tiles of several images, of some rows, and of a part of a row;
// channels and outputs in several blocks, groups, and padding that no position needs.
TEST(Conv2d, WinogradTransformsAreTheSameConvolution) {
  check_whole({.x = {3, 40, 24, 33}, .weight = {100, 40, 3, 3}, .options = {.padding = 1}});
  check_whole({.x = {9, 50, 7, 7}, .weight = {256, 50, 3, 3}, .options = {.padding = 1}});
  check_whole({.x = {1, 32, 8, 150}, .weight = {40, 32, 3, 3}});
  check_whole({.x = {3, 66, 13, 10}, .weight = {70, 33, 3, 3}, .options = {.padding = {2, 0}, .groups = 2}});
  check_whole({.x = {5, 150, 8, 8}, .weight = {64, 150, 3, 3}, .options = {.padding = {1, 3}}});
}

// Work is cut by shape alone.
TEST(Conv2d, AnyNumberOfThreadsGivesTheSameBits) {
  const auto run = [](int threads, const Case& c) {
    set_thread_count(threads);
    const Tensor x = normal(c.x, 1).to(DType::f32).set_requires_grad(),
                 w = normal(c.weight, 2).to(DType::f32).set_requires_grad();
    const Tensor y = conv2d(x, w, {}, c.options);
    sum(y * y).backward();
    set_thread_count(1);
    return Tensors{y.detach(), x.grad(), w.grad()};
  };
  const std::vector<Case> cases{
      {.x = {5, 4, 30, 30}, .weight = {12, 4, 3, 3}, .options = {.stride = 2, .padding = 1}},
      {.x = {5, 4, 30, 30}, .weight = {12, 1, 3, 3}, .options = {.stride = 2, .padding = 1, .groups = 4}},
      {.x = {9, 50, 7, 7}, .weight = {256, 50, 3, 2}, .options = {.padding = 1}},
      {.x = {9, 50, 7, 7}, .weight = {256, 50, 3, 3}, .options = {.padding = 1}},
      {.x = {1, 40, 31, 31}, .weight = {33, 40, 3, 3}, .options = {.padding = 1}}};
  for (const Case& c : cases) {
    const Tensors one = run(1, c);
    for (const int threads : {2, 3, 4}) {
      const Tensors several = run(threads, c);
      for (size_t i = 0; i < one.size(); ++i)
        EXPECT_TRUE(array_equal(one[i], several[i])) << c.x << ", " << i << ", " << threads << " threads";
    }
  }
}

TEST(Conv1d, IsTheSameAlongOneAxis) {
  const auto one = [](const Tensors& in) {
    return Tensors{conv1d(in[0], in[1], in[2], {.stride = 2, .padding = 2, .dilation = 2, .groups = 2})};
  };
  const Case c{.x = {2, 4, 1, 9},
               .weight = {2, 2, 1, 3},
               .options = {.stride = {1, 2}, .padding = {0, 2}, .dilation = {1, 2}, .groups = 2}};
  const auto two = [c](const Tensors& in) {
    return Tensors{composed({in[0].unsqueeze(2), in[1].unsqueeze(2), in[2]}, c)[0].squeeze(2)};
  };
  check_fused({.name = "conv1d",
               .inputs = {normal({2, 4, 9}, 1), normal({2, 2, 3}, 2), normal({2}, 3)},
               .function = one,
               .reference = two,
               .plain = two,
               .magnitude = 4});
}

TEST(Conv2d, Errors) {
  const Tensor x = zeros({1, 2, 4, 4}), w = zeros({3, 2, 3, 3});
  expect_error<ShapeError>(
      [&] {
        (void)conv2d(zeros({2, 4, 4}), w);
      },
      "conv2d: x is [2, 4, 4], expected [batch");
  expect_error<ShapeError>(
      [&] {
        (void)conv2d(zeros({1, 0, 4, 4}), zeros({3, 0, 3, 3}));
      },
      "conv2d: x [1, 0, 4, 4] has no channels");
  expect_error<ShapeError>([&] { (void)conv2d(x, zeros({3, 1, 3, 3})); }, "conv2d: weight is [3, 1, 3, 3]");
  expect_error<ShapeError>([&] { (void)conv2d(x, zeros({3, 1, 3, 3}), {}, {.groups = 2}); }, "divide both");
  expect_error<ShapeError>([&] { (void)conv2d(x, w, zeros({2})); }, "conv2d: bias is [2], expected [3]");
  expect_error<ShapeError>(
      [&] {
        (void)conv2d(x, w, {}, {.dilation = {2, 1}});
      },
      "a window of 5 does not fit into 4 elements");
  expect_error<ConfigError>([&] { (void)conv2d(x, w, {}, {.stride = 0}); }, "conv2d: stride is 0");
  expect_error<ConfigError>([&] { (void)conv2d(x, w, {}, {.padding = -1}); }, "conv2d: padding is -1");
  expect_error<ConfigError>([&] { (void)conv2d(x, w, {}, {.dilation = 0}); }, "conv2d: dilation is 0");
  expect_error<ConfigError>([&] { (void)conv2d(x, w, {}, {.groups = 0}); }, "conv2d: groups is 0");
  expect_error<ConfigError>([&] { (void)conv2d(x, zeros({3, 2, 0, 3})); }, "the kernel's size is 0");
  expect_error<DTypeError>([&] { (void)conv2d(x, w.to(DType::f64)); }, "f64");
  expect_error<ShapeError>([&] { (void)conv1d(x, w); }, "conv1d: x is");
}

}  // namespace
}  // namespace heed::test
