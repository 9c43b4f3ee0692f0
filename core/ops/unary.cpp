// Functions of one operand, element by element.
#include <cmath>

#include <heed/core/ops.h>
#include <heed/core/ops/common.h>
#include <heed/core/ops/strided_index.h>
#include <heed/core/runtime/dispatch.h>
#include <heed/kernels/elementwise.h>

namespace heed {
namespace {

using kernels::UnaryOp;

template <class T>
void unary(UnaryOp op, const Tensor& x, const Tensor& y) {
  HEED_DISPATCH(x.device(), unary,
                kernels::Unary<T>{
                    .op = op, .y = y.data<T>(), .x = x.data<T>(), .index = strided_index(x.shape(), y, x)});
}

// A function of real numbers.
Tensor unary_floating(UnaryOp op, const char* operation, const Tensor& x) {
  const Tensor y = empty_like(x);
  visit_floating(x.dtype(), operation, [&]<class T>() { unary<T>(op, x, y); });
  return y;
}

// A function of real numbers and integers.
Tensor unary_number(UnaryOp op, const char* operation, const Tensor& x) {
  HEED_CHECK(x.dtype() != DType::boolean, DTypeError, operation, ": not defined for bool");
  const Tensor y = empty_like(x);
  visit_dtype(x.dtype(), [&]<class T>() { unary<T>(op, x, y); });
  return y;
}

}  // namespace

Tensor operator-(const Tensor& a) {
  return record("negative", a, unary_number(UnaryOp::negative, "negative", a),
                [](const GradIn& gy, GradOut& gx) { gx.add(0, -gy[0]); });
}

Tensor abs(const Tensor& x) {
  return record("abs", x, unary_number(UnaryOp::absolute, "abs", x),
                [x = save(x)](const GradIn& gy, GradOut& gx) { gx.add(0, gy[0] * sign(*x)); });
}

Tensor square(const Tensor& x) {
  return record("square", x, unary_number(UnaryOp::square, "square", x),
                [x = save(x)](const GradIn& gy, GradOut& gx) { gx.add(0, gy[0] * *x * 2.0); });
}

Tensor sign(const Tensor& x) {
  return record("sign", x, unary_number(UnaryOp::sign, "sign", x),
                [](const GradIn&, GradOut& gx) { give_zeros(gx); });
}

Tensor floor(const Tensor& x) {
  return record("floor", x, unary_floating(UnaryOp::floor, "floor", x),
                [](const GradIn&, GradOut& gx) { give_zeros(gx); });
}

Tensor round(const Tensor& x) {
  return record("round", x, unary_floating(UnaryOp::round, "round", x),
                [](const GradIn&, GradOut& gx) { give_zeros(gx); });
}

Tensor exp(const Tensor& x) {
  const Tensor y = unary_floating(UnaryOp::exponential, "exp", x);
  return record("exp", x, y, [y = save(y)](const GradIn& gy, GradOut& gx) { gx.add(0, gy[0] * *y); });
}

Tensor log(const Tensor& x) {
  return record("log", x, unary_floating(UnaryOp::logarithm, "log", x),
                [x = save(x)](const GradIn& gy, GradOut& gx) { gx.add(0, gy[0] / *x); });
}

Tensor sqrt(const Tensor& x) {
  const Tensor y = unary_floating(UnaryOp::square_root, "sqrt", x);
  return record("sqrt", x, y,
                [y = save(y)](const GradIn& gy, GradOut& gx) { gx.add(0, gy[0] / (*y * 2.0)); });
}

Tensor rsqrt(const Tensor& x) {
  const Tensor y = unary_floating(UnaryOp::reciprocal_square_root, "rsqrt", x);
  return record("rsqrt", x, y, [x = save(x), y = save(y)](const GradIn& gy, GradOut& gx) {
    gx.add(0, gy[0] * (*y * -0.5) / *x);
  });
}

Tensor sin(const Tensor& x) {
  return record("sin", x, unary_floating(UnaryOp::sine, "sin", x),
                [x = save(x)](const GradIn& gy, GradOut& gx) { gx.add(0, gy[0] * cos(*x)); });
}

Tensor cos(const Tensor& x) {
  return record("cos", x, unary_floating(UnaryOp::cosine, "cos", x),
                [x = save(x)](const GradIn& gy, GradOut& gx) { gx.add(0, -(gy[0] * sin(*x))); });
}

Tensor tanh(const Tensor& x) {
  const Tensor y = unary_floating(UnaryOp::hyperbolic_tangent, "tanh", x);
  return record("tanh", x, y,
                [y = save(y)](const GradIn& gy, GradOut& gx) { gx.add(0, gy[0] * (1.0 - square(*y))); });
}

Tensor sigmoid(const Tensor& x) {
  const Tensor y = unary_floating(UnaryOp::sigmoid, "sigmoid", x);
  return record("sigmoid", x, y, [y = save(y)](const GradIn& gy, GradOut& gx) {
    const Tensor s = *y;
    gx.add(0, gy[0] * (s * (1.0 - s)));
  });
}

Tensor erf(const Tensor& x) {
  return record("erf", x, unary_floating(UnaryOp::error_function, "erf", x),
                [x = save(x)](const GradIn& gy, GradOut& gx) {
                  constexpr double kSlopeAtZero = 1.1283791670955126;  // 2 / sqrt(pi)
                  gx.add(0, gy[0] * (exp(-square(*x)) * kSlopeAtZero));
                });
}

Tensor log1p(const Tensor& x) {
  return record("log1p", x, unary_floating(UnaryOp::log1p, "log1p", x),
                [x = save(x)](const GradIn& gy, GradOut& gx) { gx.add(0, gy[0] / (*x + 1.0)); });
}

Tensor expm1(const Tensor& x) {
  return record("expm1", x, unary_floating(UnaryOp::expm1, "expm1", x),
                [x = save(x)](const GradIn& gy, GradOut& gx) { gx.add(0, gy[0] * exp(*x)); });
}

Tensor reciprocal(const Tensor& x) {
  const Tensor y = unary_floating(UnaryOp::reciprocal, "reciprocal", x);
  return record("reciprocal", x, y,
                [y = save(y)](const GradIn& gy, GradOut& gx) { gx.add(0, -(gy[0] * *y * *y)); });
}

Tensor softplus(const Tensor& x, double beta) {
  HEED_CHECK(std::isfinite(beta) && beta != 0, ConfigError, "softplus: beta is ", beta,
             "; it must be finite and not 0");
  if (beta != 1) return softplus(x * beta) / beta;
  return record("softplus", x, unary_floating(UnaryOp::softplus, "softplus", x),
                [x = save(x)](const GradIn& gy, GradOut& gx) { gx.add(0, gy[0] * sigmoid(*x)); });
}

}  // namespace heed
