// Arithmetic of two operands, element by element.
#include <cmath>
#include <limits>

#include <heed/core/ops.h>
#include <heed/core/ops/common.h>
#include <heed/core/ops/copy.h>
#include <heed/core/ops/strided_index.h>
#include <heed/core/runtime/dispatch.h>
#include <heed/core/tensor_impl.h>
#include <heed/kernels/elementwise.h>

namespace heed {
namespace {

using kernels::BinaryOp;

// An undefined operand stands for the scalar.
Tensor binary(BinaryOp op, const Tensor& a, const Tensor& b, const Shape& shape, double scalar) {
  const Tensor& like = a.defined() ? a : b;
  const Tensor y = empty(shape, like.options());
  visit_dtype(like.dtype(), [&]<class T>() {
    HEED_DISPATCH(like.device(), binary,
                  kernels::Binary<T>{.op = op,
                                     .y = y.data<T>(),
                                     .a = data_or_null<T>(a),
                                     .b = data_or_null<T>(b),
                                     .scalar = static_cast<T>(scalar),
                                     .index = strided_index(shape, y, a, b)});
  });
  return y;
}

void check_number(BinaryOp op, const Tensor& x, const char* operation) {
  const bool needs_floating = op == BinaryOp::divide || op == BinaryOp::power;
  HEED_CHECK(x.dtype() != DType::boolean && (!needs_floating || is_floating(x.dtype())), DTypeError,
             operation, ": not defined for ", x.dtype(), "; convert with to(DType::f32)");
}

Tensor binary(BinaryOp op, const char* operation, const Tensor& a, const Tensor& b) {
  check_same_kind(a, b, operation);
  check_number(op, a, operation);
  return binary(op, a, b, broadcast_shapes(a.shape(), b.shape(), operation), 0);
}

Tensor binary(BinaryOp op, const char* operation, const Tensor& a, double b) {
  check_number(op, a, operation);
  check_scalar(b, a.dtype(), operation);
  return binary(op, a, {}, a.shape(), b);
}

Tensor binary(BinaryOp op, const char* operation, double a, const Tensor& b) {
  check_number(op, b, operation);
  check_scalar(a, b.dtype(), operation);
  return binary(op, {}, b, b.shape(), a);
}

// Gives input i the gradient `g`, summed over what broadcasting repeated.
void add_summed(GradOut& gx, int i, const Tensor& g, const Shape& shape) { gx.add(i, sum_to(g, shape)); }

Tensor constant(double value, const Tensor& like) { return scalar(value, like.options()); }

}  // namespace

// ---- two operands

Tensor add(const Tensor& a, const Tensor& b) {
  return record("add", {a, b}, binary(BinaryOp::add, "add", a, b),
                [sa = a.shape(), sb = b.shape()](const GradIn& gy, GradOut& gx) {
                  if (gx.wants(0)) add_summed(gx, 0, gy[0], sa);
                  if (gx.wants(1)) add_summed(gx, 1, gy[0], sb);
                });
}

Tensor subtract(const Tensor& a, const Tensor& b) {
  return record("subtract", {a, b}, binary(BinaryOp::subtract, "subtract", a, b),
                [sa = a.shape(), sb = b.shape()](const GradIn& gy, GradOut& gx) {
                  if (gx.wants(0)) add_summed(gx, 0, gy[0], sa);
                  if (gx.wants(1)) add_summed(gx, 1, -gy[0], sb);
                });
}

Tensor multiply(const Tensor& a, const Tensor& b) {
  return record("multiply", {a, b}, binary(BinaryOp::multiply, "multiply", a, b),
                [a = save(a), b = save(b)](const GradIn& gy, GradOut& gx) {
                  const Tensor x = *a, y = *b;
                  if (gx.wants(0)) add_summed(gx, 0, gy[0] * y, x.shape());
                  if (gx.wants(1)) add_summed(gx, 1, gy[0] * x, y.shape());
                });
}

Tensor divide(const Tensor& a, const Tensor& b) {
  const Tensor y = binary(BinaryOp::divide, "divide", a, b);
  return record("divide", {a, b}, y,
                [shape = a.shape(), b = save(b), y = save(y)](const GradIn& gy, GradOut& gx) {
                  const Tensor divisor = *b;
                  if (gx.wants(0)) add_summed(gx, 0, gy[0] / divisor, shape);
                  // Not gy / b * y, which is infinite or NaN for small b where y is small too.
                  if (gx.wants(1)) add_summed(gx, 1, -(gy[0] * *y / divisor), divisor.shape());
                });
}

Tensor power(const Tensor& a, const Tensor& b) {
  const Tensor y = binary(BinaryOp::power, "power", a, b);
  return record("power", {a, b}, y, [a = save(a), b = save(b), y = save(y)](const GradIn& gy, GradOut& gx) {
    const Tensor base = *a, exponent = *b;
    const Tensor& g = gy[0];
    // x^0 and 0^b are constant: no 0 * inf there.
    if (gx.wants(0)) {
      const Tensor slope = g * (exponent * power(base, exponent - 1.0));
      const Tensor falling = g * *y * exponent / base;  // x^(b - 1) may be infinite where x^b is not
      add_summed(gx, 0, where(equal(exponent, 0), 0, where(less(exponent, 0), falling, slope)), base.shape());
    }
    if (gx.wants(1)) {
      const Tensor constant_zero = logical_and(equal(base, 0), greater_equal(exponent, 0));
      add_summed(gx, 1, g * where(constant_zero, 0, *y * log(base)), exponent.shape());
    }
  });
}

namespace {

// The gradient of an extremum: none to the loser, half to each where they are equal, all to both for NaN.
void extremum_backward(const GradIn& gy, GradOut& gx, const Tensor& a, const Tensor& b,
                       Tensor (*loses)(const Tensor&, const Tensor&)) {
  const Tensor& g = gy[0];
  const Tensor share = where(equal(a, b), g * 0.5, g);
  if (gx.wants(0)) add_summed(gx, 0, where(loses(a, b), 0, share), a.shape());
  if (gx.wants(1)) add_summed(gx, 1, where(loses(b, a), 0, share), b.shape());
}

}  // namespace

Tensor maximum(const Tensor& a, const Tensor& b) {
  return record(
      "maximum", {a, b}, binary(BinaryOp::maximum, "maximum", a, b),
      [a = save(a), b = save(b)](const GradIn& gy, GradOut& gx) { extremum_backward(gy, gx, *a, *b, less); });
}

Tensor minimum(const Tensor& a, const Tensor& b) {
  return record("minimum", {a, b}, binary(BinaryOp::minimum, "minimum", a, b),
                [a = save(a), b = save(b)](const GradIn& gy, GradOut& gx) {
                  extremum_backward(gy, gx, *a, *b, greater);
                });
}

// ---- a tensor and a number

Tensor operator+(const Tensor& a, double b) {
  return record("add", a, binary(BinaryOp::add, "add", a, b),
                [](const GradIn& gy, GradOut& gx) { gx.add(0, gy[0]); });
}
Tensor operator+(double a, const Tensor& b) { return b + a; }

Tensor operator-(const Tensor& a, double b) {
  return record("subtract", a, binary(BinaryOp::subtract, "subtract", a, b),
                [](const GradIn& gy, GradOut& gx) { gx.add(0, gy[0]); });
}
Tensor operator-(double a, const Tensor& b) {
  return record("subtract", b, binary(BinaryOp::subtract, "subtract", a, b),
                [](const GradIn& gy, GradOut& gx) { gx.add(0, -gy[0]); });
}

Tensor operator*(const Tensor& a, double b) {
  return record("multiply", a, binary(BinaryOp::multiply, "multiply", a, b),
                [b](const GradIn& gy, GradOut& gx) { gx.add(0, gy[0] * b); });
}
Tensor operator*(double a, const Tensor& b) { return b * a; }

Tensor operator/(const Tensor& a, double b) {
  return record("divide", a, binary(BinaryOp::divide, "divide", a, b),
                [b](const GradIn& gy, GradOut& gx) { gx.add(0, gy[0] / b); });
}
Tensor operator/(double a, const Tensor& b) {
  const Tensor y = binary(BinaryOp::divide, "divide", a, b);
  return record("divide", b, y,
                [b = save(b), y = save(y)](const GradIn& gy, GradOut& gx) { gx.add(0, -(gy[0] * *y / *b)); });
}

Tensor power(const Tensor& x, double exponent) {
  const Tensor y = binary(BinaryOp::power, "power", x, exponent);
  if (exponent < 0)  // x^(exponent - 1) may be infinite where x^exponent is not
    return record("power", x, y, [x = save(x), y = save(y), exponent](const GradIn& gy, GradOut& gx) {
      gx.add(0, gy[0] * *y * exponent / *x);
    });
  return record("power", x, y, [x = save(x), exponent](const GradIn& gy, GradOut& gx) {
    if (exponent == 0) return give_zeros(gx);
    gx.add(0, gy[0] * (power(*x, exponent - 1) * exponent));
  });
}

Tensor maximum(const Tensor& a, double b) {
  check_scalar(b, a.dtype(), "maximum");
  return maximum(a, constant(b, a));
}

Tensor minimum(const Tensor& a, double b) {
  check_scalar(b, a.dtype(), "minimum");
  return minimum(a, constant(b, a));
}

namespace detail {

Tensor& assign(const char* operation, Tensor& target, const Tensor& value) {
  if (!target.is_leaf() || !target.requires_grad()) return target = value;
  check_in_place(target, operation);
  target.copy_(value);  // another tensor would be no parameter
  return target;
}

}  // namespace detail
namespace {

// A bound of clamp; no bound of integers is their least or greatest.
template <class T>
T bound(double value) {
  if constexpr (std::is_integral_v<T>) {
    if (std::isinf(value)) return value < 0 ? std::numeric_limits<T>::min() : std::numeric_limits<T>::max();
  }
  return static_cast<T>(value);
}

}  // namespace

Tensor clamp(const Tensor& x, double low, double high) {
  HEED_CHECK(low <= high, ConfigError, "clamp: low is ", low, " and high ", high, "; low must not be larger");
  check_number(BinaryOp::minimum, x, "clamp");
  if (low != -HUGE_VAL) check_scalar(low, x.dtype(), "clamp");
  if (high != HUGE_VAL) check_scalar(high, x.dtype(), "clamp");
  const Tensor y = empty_like(x);
  visit_dtype(x.dtype(), [&]<class T>() {
    if constexpr (!std::is_same_v<T, bool>)
      HEED_DISPATCH(x.device(), clamp,
                    kernels::Clamp<T>{.y = y.data<T>(),
                                      .x = x.data<T>(),
                                      .low = bound<T>(low),
                                      .high = bound<T>(high),
                                      .index = strided_index(x.shape(), y, x)});
  });
  return record("clamp", x, y, [x = save(x), y = save(y)](const GradIn& gy, GradOut& gx) {
    gx.add(0, where(equal(*x, *y), gy[0], constant(0, gy[0])));
  });
}

// ---- rectifiers

namespace {

// A function of x and a number, with its slope.
Tensor rectified(BinaryOp op, BinaryOp slope, const char* operation, const Tensor& x, double number) {
  check_floating(x, operation);
  return record(operation, x, binary(op, operation, x, number),
                [slope, operation, x = save(x), number](const GradIn& gy, GradOut& gx) {
                  gx.add(0, gy[0] * binary(slope, operation, *x, number));
                });
}

}  // namespace

Tensor leaky_relu(const Tensor& x, double slope) {
  return rectified(BinaryOp::leaky_relu, BinaryOp::leaky_relu_slope, "leaky_relu", x, slope);
}

Tensor elu(const Tensor& x, double alpha) {
  return rectified(BinaryOp::elu, BinaryOp::elu_slope, "elu", x, alpha);
}

// ---- division with remainder

namespace {

// Integers have no quotient by 0. Waits for a device.
void check_divisor(const Tensor& b, const char* operation) {
  if (is_floating(b.dtype()) || b.dtype() == DType::boolean) return;
  HEED_CHECK(all(not_equal(b, constant(0, b))).item<bool>(), DataError, operation,
             ": a divisor is 0, by which integers cannot be divided");
}
void check_divisor(const Tensor& a, double b, const char* operation) {
  HEED_CHECK(b != 0 || is_floating(a.dtype()), DataError, operation,
             ": the divisor is 0, by which integers cannot be divided");
}

}  // namespace

Tensor remainder(const Tensor& a, const Tensor& b) {
  const Tensor y = binary(BinaryOp::remainder, "remainder", a, b);
  check_divisor(b, "remainder");
  return record("remainder", {a, b}, y, [a = save(a), b = save(b)](const GradIn& gy, GradOut& gx) {
    const Tensor x = *a, divisor = *b;
    if (gx.wants(0)) add_summed(gx, 0, gy[0], x.shape());
    if (gx.wants(1)) add_summed(gx, 1, -(gy[0] * floor_divide(x, divisor)), divisor.shape());
  });
}

Tensor remainder(const Tensor& a, double b) {
  check_divisor(a, b, "remainder");
  return record("remainder", a, binary(BinaryOp::remainder, "remainder", a, b),
                [](const GradIn& gy, GradOut& gx) { gx.add(0, gy[0]); });
}

Tensor floor_divide(const Tensor& a, const Tensor& b) {
  const Tensor y = binary(BinaryOp::floor_divide, "floor_divide", a, b);
  check_divisor(b, "floor_divide");
  return record("floor_divide", {a, b}, y, [sa = a.shape(), sb = b.shape()](const GradIn& gy, GradOut& gx) {
    const Tensor zero = constant(0, gy[0]);
    if (gx.wants(0)) gx.add(0, zero.expand(sa));
    if (gx.wants(1)) gx.add(1, zero.expand(sb));
  });
}

Tensor floor_divide(const Tensor& a, double b) {
  check_divisor(a, b, "floor_divide");
  return record("floor_divide", a, binary(BinaryOp::floor_divide, "floor_divide", a, b),
                [](const GradIn&, GradOut& gx) { give_zeros(gx); });
}

}  // namespace heed
