// Comparison and choice.
#include <heed/core/ops.h>
#include <heed/core/ops/common.h>
#include <heed/core/ops/copy.h>
#include <heed/core/ops/strided_index.h>
#include <heed/core/runtime/dispatch.h>
#include <heed/kernels/elementwise.h>

namespace heed {
namespace {

using kernels::CompareOp;

TensorOptions bool_on(const Tensor& x) { return {DType::boolean, x.device()}; }

Tensor compare(CompareOp op, const char* operation, const Tensor& a, const Tensor& b) {
  check_same_kind(a, b, operation);
  const Tensor y = empty(broadcast_shapes(a.shape(), b.shape(), operation), bool_on(a));
  visit_dtype(a.dtype(), [&]<class T>() {
    HEED_DISPATCH(a.device(), compare,
                  kernels::Compare<T>{.op = op,
                                      .y = y.data<bool>(),
                                      .a = a.data<T>(),
                                      .b = b.data<T>(),
                                      .index = strided_index(y.shape(), y, a, b)});
  });
  return y;
}

void check_bool(const Tensor& x, const char* name, const char* operation) {
  HEED_CHECK(x.dtype() == DType::boolean, DTypeError, operation, ": ", name, " is ", x.dtype(),
             ", expected bool; make one by comparing");
}

Tensor logical(kernels::BinaryOp op, const char* operation, const Tensor& a, const Tensor& b) {
  check_bool(a, "the left operand", operation);
  check_bool(b, "the right operand", operation);
  check_same_kind(a, b, operation);
  const Tensor y = empty(broadcast_shapes(a.shape(), b.shape(), operation), bool_on(a));
  HEED_DISPATCH(a.device(), binary,
                kernels::Binary<bool>{.op = op,
                                      .y = y.data<bool>(),
                                      .a = a.data<bool>(),
                                      .b = b.data<bool>(),
                                      .scalar = false,
                                      .index = strided_index(y.shape(), y, a, b)});
  return y;
}

Tensor predicate(kernels::PredicateOp op, const char* operation, const Tensor& x) {
  if (!is_floating(x.dtype()))  // integers are finite and never NaN
    return full(x.shape(), op == kernels::PredicateOp::is_finite, bool_on(x));
  const Tensor y = empty(x.shape(), bool_on(x));
  visit_floating(x.dtype(), operation, [&]<class T>() {
    HEED_DISPATCH(
        x.device(), predicate,
        kernels::Predicate<T>{
            .op = op, .y = y.data<bool>(), .x = x.data<T>(), .index = strided_index(x.shape(), y, x)});
  });
  return y;
}

}  // namespace

Tensor equal(const Tensor& a, const Tensor& b) { return compare(CompareOp::equal, "equal", a, b); }
Tensor not_equal(const Tensor& a, const Tensor& b) {
  return compare(CompareOp::not_equal, "not_equal", a, b);
}
Tensor less(const Tensor& a, const Tensor& b) { return compare(CompareOp::less, "less", a, b); }
Tensor less_equal(const Tensor& a, const Tensor& b) {
  return compare(CompareOp::less_equal, "less_equal", a, b);
}
Tensor greater(const Tensor& a, const Tensor& b) { return compare(CompareOp::greater, "greater", a, b); }
Tensor greater_equal(const Tensor& a, const Tensor& b) {
  return compare(CompareOp::greater_equal, "greater_equal", a, b);
}

namespace {

Tensor compare(CompareOp op, const char* operation, const Tensor& a, double b) {
  check_scalar(b, a.dtype(), operation);
  return compare(op, operation, a, scalar(b, a.options()));
}

}  // namespace

Tensor equal(const Tensor& a, double b) { return compare(CompareOp::equal, "equal", a, b); }
Tensor not_equal(const Tensor& a, double b) { return compare(CompareOp::not_equal, "not_equal", a, b); }
Tensor less(const Tensor& a, double b) { return compare(CompareOp::less, "less", a, b); }
Tensor less_equal(const Tensor& a, double b) { return compare(CompareOp::less_equal, "less_equal", a, b); }
Tensor greater(const Tensor& a, double b) { return compare(CompareOp::greater, "greater", a, b); }
Tensor greater_equal(const Tensor& a, double b) {
  return compare(CompareOp::greater_equal, "greater_equal", a, b);
}

Tensor logical_and(const Tensor& a, const Tensor& b) {
  return logical(kernels::BinaryOp::logical_and, "logical_and", a, b);
}
Tensor logical_or(const Tensor& a, const Tensor& b) {
  return logical(kernels::BinaryOp::logical_or, "logical_or", a, b);
}

Tensor logical_not(const Tensor& a) {
  check_bool(a, "the operand", "logical_not");
  const Tensor y = empty_like(a);
  HEED_DISPATCH(a.device(), unary,
                kernels::Unary<bool>{.op = kernels::UnaryOp::logical_not,
                                     .y = y.data<bool>(),
                                     .x = a.data<bool>(),
                                     .index = strided_index(a.shape(), y, a)});
  return y;
}

Tensor is_nan(const Tensor& x) { return predicate(kernels::PredicateOp::is_nan, "is_nan", x); }
Tensor is_finite(const Tensor& x) { return predicate(kernels::PredicateOp::is_finite, "is_finite", x); }

bool all_finite(const Tensor& x) { return all(is_finite(x.detach())).item<bool>(); }

bool array_equal(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) return false;
  return all(equal(a.detach(), b.detach())).item<bool>();
}

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  check_bool(condition, "the condition", "where");
  check_same_kind(a, b, "where");
  HEED_CHECK(condition.device() == a.device(), DeviceError, "where: the condition is on ", condition.device(),
             ", the operands on ", a.device(), "; move one with to(Device)");
  const Shape shape =
      broadcast_shapes(condition.shape(), broadcast_shapes(a.shape(), b.shape(), "where"), "where");
  const Tensor y = empty(shape, a.options());
  visit_dtype(a.dtype(), [&]<class T>() {
    HEED_DISPATCH(a.device(), where,
                  kernels::Where<T>{.y = y.data<T>(),
                                    .condition = condition.data<bool>(),
                                    .a = a.data<T>(),
                                    .b = b.data<T>(),
                                    .index = strided_index(shape, y, condition, a, b)});
  });
  return record("where", {a, b}, y,
                [condition = save(condition), sa = a.shape(), sb = b.shape()](const GradIn& gy, GradOut& gx) {
                  const Tensor zero = scalar(0, gy[0].options());
                  if (gx.wants(0)) gx.add(0, sum_to(where(*condition, gy[0], zero), sa));
                  if (gx.wants(1)) gx.add(1, sum_to(where(*condition, zero, gy[0]), sb));
                });
}

Tensor where(const Tensor& condition, const Tensor& a, double b) {
  check_scalar(b, a.dtype(), "where");
  return where(condition, a, scalar(b, a.options()));
}

Tensor where(const Tensor& condition, double a, const Tensor& b) {
  check_scalar(a, b.dtype(), "where");
  return where(condition, scalar(a, b.options()), b);
}

Tensor masked_fill(const Tensor& x, const Tensor& mask, double value) {
  check_bool(mask, "the mask", "masked_fill");
  check_scalar(value, x.dtype(), "masked_fill");
  HEED_CHECK(mask.rank() <= x.rank() && broadcast_shapes(mask.shape(), x.shape(), "masked_fill") == x.shape(),
             ShapeError, "masked_fill: a mask of shape ", mask.shape(), " does not broadcast to ", x.shape());
  return where(mask, scalar(value, x.options()), x);
}

}  // namespace heed
