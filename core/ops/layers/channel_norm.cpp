#include <heed/core/channel_norm.h>
#include <heed/core/ops.h>
#include <heed/core/ops/common.h>
#include <heed/core/runtime/dispatch.h>
#include <heed/kernels/batch_norm.h>

namespace heed {
namespace {

struct ChannelSizes {
  int64_t batch, channels, pixels;
};

ChannelSizes check_channels(const char* name, const Tensor& x, const Tensor& weight, const Tensor& bias,
                            double eps) {
  HEED_CHECK(x.rank() >= 2, ShapeError, name, ": x is ", x.shape(), ", expected [batch, channels, ..]");
  check_floating(x, name);
  HEED_CHECK(eps > 0, ConfigError, name, ": eps is ", eps, "; it must be positive");
  const int64_t batch = x.shape()[0], channels = x.shape()[1];
  check_parameter(weight, "weight", {channels}, x, name);
  check_parameter(bias, "bias", {channels}, x, name);
  int64_t pixels = 1;
  for (int axis = 2; axis < x.rank(); ++axis) pixels *= x.shape()[axis];
  return {batch, channels, pixels};
}

/// [channels] as it broadcasts to x.
Tensor along_channels(const Tensor& values, const Tensor& x) {
  Shape shape{values.size(0)};
  for (int axis = 2; axis < x.rank(); ++axis) shape.append(1);
  return values.reshape(shape);
}

struct BatchNormClosure {
  ChannelSizes sizes;
  Saved x, weight, mean, variance;
  double eps;

  void operator()(const GradIn& gy, GradOut& gx) const {
    const Tensor g = gy[0].contiguous(), input = *x, scale = *weight, centre = *mean, spread = *variance;
    const GradSlot to_x = slot_if_wanted(gx, 0), to_weight = accumulator_if_wanted(gx, 1),
                   to_bias = accumulator_if_wanted(gx, 2);
    visit_floating(g.dtype(), "batch_norm", [&]<class T>() {
      using A = accumulator_t<T>;
      HEED_DISPATCH(g.device(), batch_norm_backward,
                    kernels::BatchNormBackward<T>{.gy = g.data<T>(),
                                                  .x = input.data<T>(),
                                                  .weight = data_or_null<T>(scale),
                                                  .mean = centre.data<A>(),
                                                  .variance = spread.data<A>(),
                                                  .gx = data_or_null<T>(to_x.tensor),
                                                  .gweight = data_or_null<A>(to_weight.tensor),
                                                  .gbias = data_or_null<A>(to_bias.tensor),
                                                  .accumulate_x = to_x.accumulate,
                                                  .accumulate_weight = to_weight.accumulate,
                                                  .accumulate_bias = to_bias.accumulate,
                                                  .batch = sizes.batch,
                                                  .channels = sizes.channels,
                                                  .pixels = sizes.pixels,
                                                  .eps = eps});
    });
  }
};

}  // namespace

BatchNormResult batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  const ChannelSizes s = check_channels("batch_norm", x, weight, bias, eps);
  HEED_CHECK(s.batch * s.pixels > 0, ShapeError, "batch_norm: channels of x ", x.shape(), " have no values");
  HEED_CHECK(s.batch < (int64_t{1} << 31) / s.pixels, ShapeError, "batch_norm: a channel of x ", x.shape(),
             " has 2^31 values or more");
  const Contiguous input(x), scale(weight), shift(bias);
  const Tensor y = empty_like(*input), mean = empty({s.channels}, accumulator_options(x)),
               variance = empty_like(mean);
  visit_floating(x.dtype(), "batch_norm", [&]<class T>() {
    using A = accumulator_t<T>;
    HEED_DISPATCH(x.device(), batch_norm_forward,
                  kernels::BatchNormForward<T>{.x = input->data<T>(),
                                               .weight = data_or_null<T>(*scale),
                                               .bias = data_or_null<T>(*shift),
                                               .y = y.data<T>(),
                                               .mean = mean.data<A>(),
                                               .variance = variance.data<A>(),
                                               .batch = s.batch,
                                               .channels = s.channels,
                                               .pixels = s.pixels,
                                               .eps = eps});
  });
  return {record("batch_norm", {x, weight, bias}, y,
                 BatchNormClosure{s, save(*input), save(*scale), save(mean), save(variance), eps}),
          mean, variance};
}

Tensor batch_norm_by(const Tensor& x, const Tensor& mean, const Tensor& variance, const Tensor& weight,
                     const Tensor& bias, double eps) {
  constexpr const char* kName = "batch_norm_by";
  const ChannelSizes s = check_channels(kName, x, weight, bias, eps);
  const DType wide = accumulator_options(x).dtype;
  for (const Tensor* statistic : {&mean, &variance}) {
    HEED_CHECK(statistic->shape() == Shape{s.channels}, ShapeError, kName, ": statistics are ",
               statistic->shape(), ", expected [", s.channels, "] for x of ", x.shape());
    HEED_CHECK(statistic->dtype() == wide, DTypeError, kName, ": statistics are ", statistic->dtype(),
               ", expected ", wide, " for x of ", x.dtype());
  }
  HEED_CHECK(!needs_grad({mean, variance}), AutogradError, kName,
             ": statistics require a gradient, but they get none");
  Tensor scale = rsqrt(variance + eps);
  if (weight.defined()) scale = scale * weight.to(wide);
  Tensor shift = -(mean * scale);
  if (bias.defined()) shift = shift + bias.to(wide);
  return (x.to(wide) * along_channels(scale, x) + along_channels(shift, x)).to(x.dtype());
}

Tensor group_norm(const Tensor& x, int64_t groups, const Tensor& weight, const Tensor& bias, double eps) {
  const ChannelSizes s = check_channels("group_norm", x, weight, bias, eps);
  HEED_CHECK(groups > 0 && s.channels % groups == 0, ConfigError, "group_norm: ", s.channels,
             " channels do not divide into ", groups, " groups");
  const Tensor rows = x.reshape({s.batch * groups, s.channels / groups * s.pixels});
  Tensor y = layer_norm(rows, {}, {}, eps).reshape(x.shape());
  if (weight.defined()) y = y * along_channels(weight, x);
  return bias.defined() ? y + along_channels(bias, x) : y;
}

}  // namespace heed
