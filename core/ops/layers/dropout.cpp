#include <heed/core/ops.h>
#include <heed/core/ops/common.h>
#include <heed/core/ops/layers/dropout_option.h>
#include <heed/core/runtime/dispatch.h>
#include <heed/kernels/dropout.h>

namespace heed {
namespace {

// y = residual + dropout(x); without a residual, dropout(x).
Tensor forward(const Tensor& x, const Tensor& residual, const Dropout& dropout, const char* name) {
  const Tensor input = x.contiguous(), base = contiguous_or_undefined(residual);
  const Tensor y = empty_like(input);
  visit_floating(x.dtype(), name, [&]<class T>() {
    HEED_DISPATCH(x.device(), dropout_forward,
                  kernels::DropoutForward<T>{.x = input.data<T>(),
                                             .residual = data_or_null<T>(base),
                                             .y = y.data<T>(),
                                             .count = y.numel(),
                                             .dropout = dropout});
  });
  return y;
}

void backward(const Tensor& gy, GradOut& gx, int input, const Dropout& dropout) {
  if (!gx.wants(input)) return;
  if (!dropout.active()) return gx.add(input, gy);
  const Tensor g = gy.contiguous();
  const GradSlot slot = gx.into(input);
  visit_floating(g.dtype(), "dropout", [&]<class T>() {
    HEED_DISPATCH(g.device(), dropout_backward,
                  kernels::DropoutBackward<T>{.gy = g.data<T>(),
                                              .gx = slot.tensor.data<T>(),
                                              .count = g.numel(),
                                              .dropout = dropout,
                                              .accumulate = slot.accumulate});
  });
}

}  // namespace

Tensor dropout(const Tensor& x, const DropoutOptions& options) {
  check_floating(x, "dropout");
  const Dropout dropout = draw_dropout(options.p, options.generator, "dropout");
  if (options.p == 0) return x;
  return record("dropout", {x}, forward(x, {}, dropout, "dropout"),
                [dropout](const GradIn& gy, GradOut& gx) { backward(gy[0], gx, 0, dropout); });
}

Tensor residual_dropout(const Tensor& residual, const Tensor& x, const DropoutOptions& options) {
  HEED_CHECK(residual.shape() == x.shape(), ShapeError, "residual_dropout: residual is ", residual.shape(),
             ", x is ", x.shape(), "; they must be equal");
  check_same_kind(residual, x, "residual_dropout");
  check_floating(x, "residual_dropout");
  const Dropout dropout = draw_dropout(options.p, options.generator, "residual_dropout");
  return record("residual_dropout", {residual, x}, forward(x, residual, dropout, "residual_dropout"),
                [dropout](const GradIn& gy, GradOut& gx) {
                  if (gx.wants(0)) gx.add(0, gy[0]);
                  backward(gy[0], gx, 1, dropout);
                });
}

}  // namespace heed
