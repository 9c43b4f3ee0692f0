#include <heed/core/ops.h>
#include <heed/core/ops/common.h>
#include <heed/core/ops/layers/window.h>
#include <heed/core/runtime/dispatch.h>
#include <heed/kernels/convolution.h>

namespace heed {

kernels::Window make_window(const char* operation, const Tensor& x, Size2d kernel, Size2d stride,
                            Size2d padding, Size2d dilation) {
  constexpr int64_t kMax = 1 << 24;  // places in an image and its padding are 32-bit numbers
  const auto check_size = [&](const char* what, Size2d size, int64_t least) {
    for (int64_t each : {size.height, size.width})
      HEED_CHECK(each >= least && each < kMax, ConfigError, operation, ": ", what, " is ", each,
                 "; it must be at least ", least);
  };
  check_size("the kernel's size", kernel, 1);
  check_size("stride", stride, 1);
  check_size("padding", padding, 0);
  check_size("dilation", dilation, 1);
  const kernels::Window window{{kernel.height, kernel.width},
                               {stride.height, stride.width},
                               {padding.height, padding.width},
                               {dilation.height, dilation.width}};
  for (int axis = 0; axis < 2; ++axis)
    HEED_CHECK(window.positions(x.shape()[2 + axis], axis) > 0, ShapeError, operation, ": a window of ",
               window.extent(axis), " does not fit into ", x.shape()[2 + axis], " elements of x ", x.shape(),
               " with a padding of ", window.padding[axis]);
  return window;
}

namespace {

struct ConvolutionClosure {
  kernels::ConvolutionSizes sizes;
  Saved x, weight;  // each only if the gradient of the other is wanted

  void operator()(const GradIn& gy, GradOut& gx) const {
    const Tensor g = gy[0].contiguous(), input = *x, matrix = *weight;
    const GradSlot to_x = slot_if_wanted(gx, 0), to_weight = accumulator_if_wanted(gx, 1);
    visit_floating(g.dtype(), "convolution", [&]<class T>() {
      using A = accumulator_t<T>;
      HEED_DISPATCH(g.device(), convolution_backward,
                    kernels::ConvolutionBackward<T>{.sizes = sizes,
                                                    .gy = g.data<T>(),
                                                    .x = data_or_null<T>(input),
                                                    .weight = data_or_null<T>(matrix),
                                                    .gx = data_or_null<T>(to_x.tensor),
                                                    .gweight = data_or_null<A>(to_weight.tensor),
                                                    .accumulate_x = to_x.accumulate,
                                                    .accumulate_weight = to_weight.accumulate});
    });
    if (gx.wants(2)) gx.add(2, sum(g.to(accumulator_options(g).dtype), {.axes = {0, 2, 3}}));
  }
};

}  // namespace

Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias,
              const Convolution2dOptions& options) {
  constexpr const char* kName = "conv2d";
  HEED_CHECK(x.rank() == 4, ShapeError, kName, ": x is ", x.shape(),
             ", expected [batch, channels, height, width]");
  check_floating(x, kName);
  HEED_CHECK(options.groups > 0, ConfigError, kName, ": groups is ", options.groups,
             "; it must be at least 1");
  const int64_t channels = x.shape()[1];
  HEED_CHECK(channels > 0, ShapeError, kName, ": x ", x.shape(), " has no channels");
  HEED_CHECK(weight.rank() == 4 && weight.shape()[1] * options.groups == channels &&
                 weight.shape()[0] % options.groups == 0,
             ShapeError, kName, ": weight is ", weight.shape(),
             ", expected [outputs, channels / groups, height, width] for x of ", x.shape(), " and ",
             options.groups, options.groups == 1 ? " group" : " groups, which divide both");
  check_same_kind(x, weight, kName);
  check_parameter(bias, "bias", {weight.shape()[0]}, x, kName);
  const kernels::ConvolutionSizes sizes{
      .batch = x.shape()[0],
      .channels = channels,
      .height = x.shape()[2],
      .width = x.shape()[3],
      .outputs = weight.shape()[0],
      .groups = options.groups,
      .window = make_window(kName, x, {weight.shape()[2], weight.shape()[3]}, options.stride, options.padding,
                            options.dilation)};
  const Contiguous input(x), matrix(weight), shift(bias);
  const Tensor y = empty({sizes.batch, sizes.outputs, sizes.out_height(), sizes.out_width()}, x.options());
  visit_floating(x.dtype(), kName, [&]<class T>() {
    HEED_DISPATCH(x.device(), convolution_forward,
                  kernels::ConvolutionForward<T>{.sizes = sizes,
                                                 .x = input->data<T>(),
                                                 .weight = matrix->data<T>(),
                                                 .bias = data_or_null<T>(*shift),
                                                 .y = y.data<T>()});
  });
  return record(kName, {x, weight, bias}, y,
                ConvolutionClosure{sizes, weight.requires_grad() ? save(*input) : Saved(),
                                   x.requires_grad() ? save(*matrix) : Saved()});
}

Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias,
              const Convolution1dOptions& options) {
  HEED_CHECK(x.rank() == 3 && weight.rank() == 3, ShapeError, "conv1d: x is ", x.shape(), " and weight ",
             weight.shape(), ", expected [batch, channels, length] and [outputs, channels / groups, kernel]");
  return conv2d(x.unsqueeze(2), weight.unsqueeze(2), bias,
                {.stride = {1, options.stride},
                 .padding = {0, options.padding},
                 .dilation = {1, options.dilation},
                 .groups = options.groups})
      .squeeze(2);
}

}  // namespace heed
