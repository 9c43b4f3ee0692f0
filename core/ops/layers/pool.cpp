#include <algorithm>

#include <heed/core/ops.h>
#include <heed/core/ops/common.h>
#include <heed/core/ops/layers/window.h>
#include <heed/core/runtime/dispatch.h>
#include <heed/kernels/pool.h>

namespace heed {
namespace {

struct PoolClosure {
  kernels::PoolSizes sizes;
  Tensor index;  // of max

  void operator()(const GradIn& gy, GradOut& gx) const {
    const Tensor g = gy[0].contiguous();
    const GradSlot slot = gx.into(0);
    visit_floating(g.dtype(), "pool", [&]<class T>() {
      HEED_DISPATCH(g.device(), pool_backward,
                    kernels::PoolBackward<T>{.sizes = sizes,
                                             .gy = g.data<T>(),
                                             .index = data_or_null<int32_t>(index),
                                             .gx = slot.tensor.data<T>(),
                                             .accumulate = slot.accumulate});
    });
  }
};

Tensor pool(const char* name, PoolKind kind, const Tensor& x, Size2d kernel, const Pool2dOptions& options) {
  HEED_CHECK(x.rank() == 4, ShapeError, name, ": x is ", x.shape(),
             ", expected [batch, channels, height, width]");
  check_floating(x, name);
  const auto step = [](int64_t stride, int64_t size) { return stride == 0 ? size : stride; };
  const kernels::PoolSizes sizes{.kind = kind,
                                 .planes = x.shape()[0] * x.shape()[1],
                                 .height = x.shape()[2],
                                 .width = x.shape()[3],
                                 .window = make_window(name, x, kernel,
                                                       {step(options.stride.height, kernel.height),
                                                        step(options.stride.width, kernel.width)},
                                                       options.padding, options.dilation)};
  for (int axis = 0; axis < 2; ++axis)
    HEED_CHECK(2 * sizes.window.padding[axis] <= sizes.window.extent(axis), ConfigError, name,
               ": a padding of ", sizes.window.padding[axis], " is more than half of a window of ",
               sizes.window.extent(axis));
  HEED_CHECK(sizes.height < (int64_t{1} << 30) / std::max<int64_t>(sizes.width, 1), ShapeError, name,
             ": a plane of x ", x.shape(), " has 2^30 elements or more");
  const Contiguous input(x);
  const Tensor y = empty({x.shape()[0], x.shape()[1], sizes.out_height(), sizes.out_width()}, x.options());
  const Tensor index = kind == PoolKind::max && needs_grad({x})
                           ? empty(y.shape(), {.dtype = DType::i32, .device = x.device()})
                           : Tensor();
  visit_floating(x.dtype(), name, [&]<class T>() {
    HEED_DISPATCH(
        x.device(), pool_forward,
        kernels::PoolForward<T>{
            .sizes = sizes, .x = input->data<T>(), .y = y.data<T>(), .index = data_or_null<int32_t>(index)});
  });
  return record(kind == PoolKind::max ? "max_pool2d" : "avg_pool2d", {x}, y, PoolClosure{sizes, index});
}

Tensor pool1d(const char* name, PoolKind kind, const Tensor& x, int64_t kernel,
              const Pool1dOptions& options) {
  HEED_CHECK(x.rank() == 3, ShapeError, name, ": x is ", x.shape(), ", expected [batch, channels, length]");
  return pool(name, kind, x.unsqueeze(2), {1, kernel},
              {.stride = {1, options.stride},
               .padding = {0, options.padding},
               .dilation = {1, options.dilation}})
      .squeeze(2);
}

}  // namespace

Tensor max_pool2d(const Tensor& x, Size2d kernel, const Pool2dOptions& options) {
  return pool("max_pool2d", PoolKind::max, x, kernel, options);
}
Tensor avg_pool2d(const Tensor& x, Size2d kernel, const Pool2dOptions& options) {
  return pool("avg_pool2d", PoolKind::mean, x, kernel, options);
}
Tensor max_pool1d(const Tensor& x, int64_t kernel, const Pool1dOptions& options) {
  return pool1d("max_pool1d", PoolKind::max, x, kernel, options);
}
Tensor avg_pool1d(const Tensor& x, int64_t kernel, const Pool1dOptions& options) {
  return pool1d("avg_pool1d", PoolKind::mean, x, kernel, options);
}

}  // namespace heed
