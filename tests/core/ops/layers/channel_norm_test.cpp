#include <cmath>

#include <gtest/gtest.h>

#include <heed/core/channel_norm.h>
#include <heed/core/ops.h>

#include "../fused_check.h"

namespace heed::test {
namespace {

// x to mean 0 and variance 1 over some axes of its groups, from simple operations.
Tensor normalised(const Tensor& x, const ReduceOptions& over, double eps) {
  const Tensor centred = x - mean(x, over);
  return centred * rsqrt(mean(square(centred), over) + eps);
}

Tensor scaled(const Tensor& y, const Tensors& in) {
  const Shape channels{1, y.size(1), 1};
  Tensor out = y;
  if (in[1].defined()) out = out * in[1].reshape(channels);
  return in[2].defined() ? out + in[2].reshape(channels) : out;
}

Tensors inputs(const Shape& shape, bool affine) {
  const Shape channels{shape[1]};
  return {normal(shape, 1) * 2.0 + 0.5, affine ? normal(channels, 2) : Tensor(),
          affine ? normal(channels, 3) : Tensor()};
}

void check_batch(const Shape& shape, bool affine = true) {
  const auto composed = [](const Tensors& in) {
    return Tensors{scaled(normalised(in[0], {.axes = {0, 2}, .keep = true}, 1e-5), in)};
  };
  check_fused({.name = concat("batch_norm ", shape),
               .inputs = inputs(shape, affine),
               .function = [](const Tensors& in) { return Tensors{batch_norm(in[0], in[1], in[2]).output}; },
               .reference = composed,
               .plain = composed,
               .magnitude = 16});  // of partial sums of a channel
}

TEST(BatchNorm, AnySizes) {
  check_batch({3, 2, 7});
  check_batch({2, 3, 33});
  check_batch({1, 1, 300});
  check_batch({4, 5, 1});
  check_batch({2, 4, 6}, false);
  check_batch({2, 0, 6});
}

TEST(BatchNorm, Statistics) {
  for (Device device : devices()) {
    const Tensor x = tensor(std::vector<float>{1, 2, 10, 20, 3, 6, 30, 40}, {2, 2, 2}, device);
    const BatchNormResult result = batch_norm(x);
    EXPECT_EQ(result.mean.to_vector<float>(), (std::vector<float>{3, 25}));
    EXPECT_EQ(result.variance.to_vector<float>(), (std::vector<float>{3.5, 125}));
  }
}

TEST(BatchNorm, LargeMeanLosesLittle) {
  const Tensor exact = normal({4, 1, 1000}, 5) + 1e4;
  for (Device device : devices()) {
    const Tensor got = batch_norm(exact.to(DType::f32).to(device)).output.to(kCpu).to(DType::f64);
    const Tensor want = normalised(exact.to(DType::f32).to(DType::f64), {.axes = {0, 2}, .keep = true}, 1e-5);
    EXPECT_LE(max_difference(got, want), 8 * 0x1p-23 * 1e4);
  }
}

TEST(BatchNorm, ByGivenStatistics) {
  const auto composed = [](const Tensors& in) {
    const Tensor centre =
        tensor(std::vector<double>{0.5, -1}, {1, 2, 1}).to(in[0].dtype()).to(in[0].device());
    const Tensor spread =
        tensor(std::vector<double>{4, 0.25}, {1, 2, 1}).to(in[0].dtype()).to(in[0].device());
    return Tensors{scaled((in[0] - centre) * rsqrt(spread + 1e-5), in)};
  };
  const auto given = [](const Tensors& in) {
    const DType wide = in[0].dtype() == DType::f64 ? DType::f64 : DType::f32;
    const auto statistic = [&](std::vector<double> values) {
      return tensor(values, {2}).to(wide).to(in[0].device());
    };
    return Tensors{batch_norm_by(in[0], statistic({0.5, -1}), statistic({4, 0.25}), in[1], in[2])};
  };
  check_fused({.name = "batch_norm_by",
               .inputs = inputs({3, 2, 5}, true),
               .function = given,
               .reference = composed,
               .plain = composed,
               .magnitude = 8});
}

void check_group(const Shape& shape, int64_t groups, bool affine = true) {
  const auto composed = [=](const Tensors& in) {
    const Tensor grouped = in[0].reshape({shape[0], groups, shape[1] / groups * shape[2]});
    return Tensors{scaled(normalised(grouped, {.axes = {2}, .keep = true}, 1e-5).reshape(shape), in)};
  };
  check_fused(
      {.name = concat("group_norm ", shape, " in ", groups),
       .inputs = inputs(shape, affine),
       .function = [=](const Tensors& in) { return Tensors{group_norm(in[0], groups, in[1], in[2])}; },
       .reference = composed,
       .plain = composed,
       .magnitude = 8});
}

TEST(GroupNorm, AnyGroups) {
  check_group({2, 6, 5}, 3);
  check_group({3, 4, 4}, 1);
  check_group({2, 3, 9}, 3, false);
}

TEST(ChannelNorm, Errors) {
  const Tensor x = zeros({2, 4, 3});
  expect_error<ShapeError>([&] { (void)batch_norm(zeros({4})); },
                           "batch_norm: x is [4], expected [batch, channels");
  expect_error<ShapeError>([&] { (void)batch_norm(zeros({0, 4, 3})); }, "have no values");
  expect_error<ShapeError>([&] { (void)batch_norm(x, zeros({3})); },
                           "batch_norm: weight is [3], expected [4]");
  expect_error<ConfigError>([&] { (void)batch_norm(x, {}, {}, 0); }, "eps is 0");
  expect_error<ShapeError>([&] { (void)batch_norm_by(x, zeros({3}), zeros({4})); }, "statistics are [3]");
  expect_error<DTypeError>([&] { (void)batch_norm_by(x, zeros({4}, {.dtype = DType::f64}), zeros({4})); },
                           "f64");
  expect_error<ConfigError>([&] { (void)group_norm(x, 3); }, "4 channels do not divide into 3 groups");
  expect_error<ConfigError>([&] { (void)group_norm(x, 0); }, "0 groups");
}

}  // namespace
}  // namespace heed::test
