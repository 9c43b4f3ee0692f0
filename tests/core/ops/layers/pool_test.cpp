#include <cmath>

#include <gtest/gtest.h>

#include <heed/core/convolution.h>
#include <heed/core/ops.h>

#include "../fused_check.h"

namespace heed::test {
namespace {

// The shifted images under the window's elements, one behind the other: [taps, batch, channels, height,
// width].
Tensor windows(const Tensor& in, Size2d kernel, const Pool2dOptions& options, double padding) {
  const Size2d p = options.padding, d = options.dilation;
  const Size2d s{options.stride.height ? options.stride.height : kernel.height,
                 options.stride.width ? options.stride.width : kernel.width};
  const Tensor x = pad(in, {p.width, p.width, p.height, p.height}, padding);
  const int64_t height = (x.size(2) - (kernel.height - 1) * d.height - 1) / s.height + 1,
                width = (x.size(3) - (kernel.width - 1) * d.width - 1) / s.width + 1;
  std::vector<Tensor> taps;
  for (int64_t a = 0; a < kernel.height; ++a)
    for (int64_t b = 0; b < kernel.width; ++b)
      taps.push_back(x.slice(2, a * d.height, a * d.height + (height - 1) * s.height + 1, s.height)
                         .slice(3, b * d.width, b * d.width + (width - 1) * s.width + 1, s.width));
  return stack(taps, 0);
}

void check(const Shape& shape, Size2d kernel, const Pool2dOptions& options = {}) {
  const auto largest = [=](const Tensors& in) {
    return Tensors{max(windows(in[0], kernel, options, -1e30), {.axes = {0}})};
  };
  const auto average = [=](const Tensors& in) {
    return Tensors{mean(windows(in[0], kernel, options, 0), {.axes = {0}})};
  };
  check_fused({.name = concat("max_pool2d ", shape, " by ", kernel.height, " x ", kernel.width),
               .inputs = {normal(shape, 1)},
               .function = [=](const Tensors& in) { return Tensors{max_pool2d(in[0], kernel, options)}; },
               .reference = largest,
               .plain = largest});
  check_fused({.name = concat("avg_pool2d ", shape, " by ", kernel.height, " x ", kernel.width),
               .inputs = {normal(shape, 1)},
               .function = [=](const Tensors& in) { return Tensors{avg_pool2d(in[0], kernel, options)}; },
               .reference = average,
               .plain = average,
               .magnitude = 4});
}

TEST(Pool2d, KernelStridePaddingAndDilation) {
  check({2, 3, 6, 8}, 2);
  check({1, 2, 7, 7}, 3, {.stride = 2, .padding = 1});
  check({2, 1, 8, 5}, {3, 2}, {.stride = {1, 2}, .padding = {1, 0}, .dilation = {2, 1}});
  check({1, 1, 5, 5}, 2, {.stride = 3});  // elements under no window
}

TEST(Pool2d, Empty) { check({0, 2, 4, 4}, 2); }

TEST(Pool1d, IsTheSameAlongOneAxis) {
  const Tensor x = normal({2, 3, 11}, 1);
  const Pool1dOptions one{.stride = 2, .padding = 1, .dilation = 2};
  const Pool2dOptions two{.stride = {1, 2}, .padding = {0, 1}, .dilation = {1, 2}};
  EXPECT_EQ(max_difference(max_pool1d(x, 3, one), max_pool2d(x.unsqueeze(2), {1, 3}, two).squeeze(2)), 0);
  EXPECT_EQ(max_difference(avg_pool1d(x, 3, one), avg_pool2d(x.unsqueeze(2), {1, 3}, two).squeeze(2)), 0);
  EXPECT_EQ(max_pool1d(x, 3).shape(), (Shape{2, 3, 3}));
}

TEST(MaxPool2d, TheFirstOfEqualsHasTheGradientAndNanWins) {
  for (Device device : devices()) {
    const Tensor x = full({1, 1, 2, 4}, 3.0, {.device = device}).set_requires_grad();
    sum(max_pool2d(x, 2)).backward();
    EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{1, 0, 1, 0, 0, 0, 0, 0}));
    const Tensor y = max_pool2d(tensor(std::vector<float>{1, NAN, 5, 2}, {1, 1, 2, 2}, device), 2);
    EXPECT_TRUE(std::isnan(y.item<float>()));
    const Tensor low = max_pool2d(full({1, 1, 2, 2}, -HUGE_VAL, {.device = device}), 2, {.padding = 1});
    EXPECT_EQ(max(low).item<float>(), -HUGE_VALF);
  }
}

TEST(Pool2d, Errors) {
  const Tensor x = zeros({1, 1, 4, 4});
  expect_error<ShapeError>(
      [&] {
        (void)max_pool2d(zeros({4, 4}), 2);
      },
      "max_pool2d: x is [4, 4], expected [batch");
  expect_error<ShapeError>([&] { (void)avg_pool2d(x, 5); }, "avg_pool2d: a window of 5 does not fit");
  expect_error<ConfigError>([&] { (void)max_pool2d(x, 2, {.padding = 2}); },
                            "a padding of 2 is more than half of a window of 2");
  expect_error<ConfigError>([&] { (void)max_pool2d(x, 0); }, "max_pool2d: the kernel's size is 0");
  expect_error<ConfigError>([&] { (void)avg_pool2d(x, 2, {.stride = -1}); }, "avg_pool2d: stride is -1");
  expect_error<ShapeError>([&] { (void)avg_pool1d(x, 2); }, "avg_pool1d: x is");
  expect_error<DTypeError>([&] { (void)max_pool2d(x.to(DType::i64), 2); }, "i64");
}

}  // namespace
}  // namespace heed::test
