#include <heed/core/ops.h>
#include <heed/core/ops/common.h>
#include <heed/core/ops/composed.h>
#include <heed/core/runtime/dispatch.h>
#include <heed/kernels/softmax.h>

namespace heed {
namespace {

Tensor over_last_axis(const Tensor& x, bool log, const char* name) {
  if (!detail::has_kernel<kernels::SoftmaxForward>(x.device(), x.dtype())) return composed::softmax(x, log);
  const int64_t rows = rows_and_cols(x, name).first, cols = x.size(-1);
  const Tensor input = x.contiguous(), y = empty_like(input);
  visit_floating(x.dtype(), name, [&]<class T>() {
    HEED_DISPATCH(x.device(), softmax_forward,
                  kernels::SoftmaxForward<T>{
                      .x = input.data<T>(), .y = y.data<T>(), .rows = rows, .cols = cols, .log = log});
  });
  return record(name, {x}, y, [rows, cols, log, saved = save(y)](const GradIn& gy, GradOut& gx) {
    const Tensor g = gy[0].contiguous(), y = *saved;
    const GradSlot slot = gx.into(0);
    visit_floating(g.dtype(), "softmax", [&]<class T>() {
      HEED_DISPATCH(g.device(), softmax_backward,
                    kernels::SoftmaxBackward<T>{.y = y.data<T>(),
                                                .gy = g.data<T>(),
                                                .gx = slot.tensor.data<T>(),
                                                .rows = rows,
                                                .cols = cols,
                                                .log = log,
                                                .accumulate = slot.accumulate});
    });
  });
}

Tensor over_axis(const Tensor& x, int64_t axis, bool log, const char* name) {
  check_floating(x, name);
  const int at = normalize_axis(axis, x.rank(), name);
  if (at == x.rank() - 1) return over_last_axis(x, log, name);
  return over_last_axis(x.transpose(at, -1), log, name).transpose(at, -1);
}

}  // namespace

Tensor softmax(const Tensor& x, int64_t axis) { return over_axis(x, axis, false, "softmax"); }
Tensor log_softmax(const Tensor& x, int64_t axis) { return over_axis(x, axis, true, "log_softmax"); }

}  // namespace heed
