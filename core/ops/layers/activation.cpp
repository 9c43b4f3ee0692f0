#include <heed/core/ops.h>
#include <heed/core/ops/common.h>
#include <heed/core/ops/composed.h>
#include <heed/core/runtime/dispatch.h>
#include <heed/kernels/activation.h>

namespace heed {

Tensor activation(const Tensor& x, Activation which) {
  check_floating(x, "activation");
  if (which == Activation::none) return x;
  if (!detail::has_kernel<kernels::ActivationForward>(x.device(), x.dtype()))
    return composed::activation(x, which);
  const Tensor input = x.contiguous(), y = empty_like(input);
  visit_floating(x.dtype(), "activation", [&]<class T>() {
    HEED_DISPATCH(x.device(), activation_forward,
                  kernels::ActivationForward<T>{
                      .activation = which, .x = input.data<T>(), .y = y.data<T>(), .count = y.numel()});
  });
  return record("activation", {x}, y, [which, input = save(input)](const GradIn& gy, GradOut& gx) {
    const Tensor g = gy[0].contiguous(), x = *input;
    const GradSlot slot = gx.into(0);
    visit_floating(g.dtype(), "activation", [&]<class T>() {
      HEED_DISPATCH(g.device(), activation_backward,
                    kernels::ActivationBackward<T>{.activation = which,
                                                   .x = x.data<T>(),
                                                   .gy = g.data<T>(),
                                                   .gx = slot.tensor.data<T>(),
                                                   .count = g.numel(),
                                                   .accumulate = slot.accumulate});
    });
  });
}

Tensor relu(const Tensor& x) { return activation(x, Activation::relu); }
Tensor gelu(const Tensor& x) { return activation(x, Activation::gelu); }
Tensor gelu_tanh(const Tensor& x) { return activation(x, Activation::gelu_tanh); }
Tensor silu(const Tensor& x) { return activation(x, Activation::silu); }

Tensor gated(const Tensor& x, Activation which) {
  const int64_t rows = rows_and_cols(x, "gated").first, width = x.size(-1), cols = width / 2;
  HEED_CHECK(width % 2 == 0, ShapeError, "gated: the last axis of ", x.shape(),
             " is odd; it holds the gate and, beside it, as many values");
  check_floating(x, "gated");
  if (!detail::has_kernel<kernels::GatedForward>(x.device(), x.dtype()))
    return composed::activation(x.slice(-1, 0, cols), which) * x.slice(-1, cols, width);
  const Tensor input = x.contiguous();
  Shape shape = x.shape();
  shape[x.rank() - 1] = cols;
  const Tensor y = empty(shape, x.options());
  visit_floating(x.dtype(), "gated", [&]<class T>() {
    HEED_DISPATCH(x.device(), gated_forward,
                  kernels::GatedForward<T>{.activation = which,
                                           .gate = input.data<T>(),
                                           .up = input.data<T>() + cols,
                                           .y = y.data<T>(),
                                           .rows = rows,
                                           .cols = cols,
                                           .ld = width});
  });
  return record("gated", {x}, y, [which, rows, cols, input = save(input)](const GradIn& gy, GradOut& gx) {
    const Tensor g = gy[0].contiguous(), x = *input;
    const GradSlot slot = gx.into(0);
    visit_floating(g.dtype(), "gated", [&]<class T>() {
      HEED_DISPATCH(g.device(), gated_backward,
                    kernels::GatedBackward<T>{.activation = which,
                                              .gate = x.data<T>(),
                                              .up = x.data<T>() + cols,
                                              .gy = g.data<T>(),
                                              .ggate = slot.tensor.data<T>(),
                                              .gup = slot.tensor.data<T>() + cols,
                                              .rows = rows,
                                              .cols = cols,
                                              .ld = 2 * cols,
                                              .gld = 2 * cols,
                                              .accumulate_gate = slot.accumulate,
                                              .accumulate_up = slot.accumulate});
    });
  });
}

}  // namespace heed
