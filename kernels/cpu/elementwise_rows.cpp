#include <cmath>

#include <heed/kernels/cpu/elementwise_rows.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/kernels/cpu/elementwise_rows.cpp"
#include <heed/kernels/cpu/simd.h>
// The -inl headers follow simd.h, which includes this file once per instruction set.
#include <heed/kernels/cpu/math-inl.h>
#include <heed/kernels/cpu/tail-inl.h>

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

using kernels::BinaryOp;
using kernels::UnaryOp;
using Floats = Tag<float>;
using Values = Vec<Floats>;

template <UnaryOp kOp>
HWY_INLINE Values unary_value(Values x) {
  const Floats d;
  const auto one = hn::Set(d, 1.0f);
  if constexpr (kOp == UnaryOp::negative) return hn::Neg(x);
  if constexpr (kOp == UnaryOp::absolute) return hn::Abs(x);
  if constexpr (kOp == UnaryOp::sign) {
    return hn::IfThenElse(hn::Or(hn::Eq(x, hn::Zero(d)), hn::IsNaN(x)), x, hn::CopySign(one, x));
  }
  if constexpr (kOp == UnaryOp::exponential) return exp(d, x);
  if constexpr (kOp == UnaryOp::logarithm) return log_everywhere(d, x);
  if constexpr (kOp == UnaryOp::square_root) return hn::Sqrt(x);
  if constexpr (kOp == UnaryOp::reciprocal_square_root) return hn::Div(one, hn::Sqrt(x));
  if constexpr (kOp == UnaryOp::reciprocal) return hn::Div(one, x);
  if constexpr (kOp == UnaryOp::sine) return sine<false>(d, x);
  if constexpr (kOp == UnaryOp::cosine) return sine<true>(d, x);
  if constexpr (kOp == UnaryOp::hyperbolic_tangent) return tanh(d, x);
  if constexpr (kOp == UnaryOp::sigmoid) return sigmoid(d, x);
  if constexpr (kOp == UnaryOp::error_function) return erf(d, x);
  if constexpr (kOp == UnaryOp::square) return hn::Mul(x, x);
  if constexpr (kOp == UnaryOp::floor) return hn::Floor(x);
  if constexpr (kOp == UnaryOp::ceil) return hn::Ceil(x);
  if constexpr (kOp == UnaryOp::round) return hn::Round(x);
}

template <BinaryOp kOp>
HWY_INLINE Values binary_value(Values a, Values b) {
  if constexpr (kOp == BinaryOp::add) return hn::Add(a, b);
  if constexpr (kOp == BinaryOp::subtract) return hn::Sub(a, b);
  if constexpr (kOp == BinaryOp::multiply) return hn::Mul(a, b);
  if constexpr (kOp == BinaryOp::divide) return hn::Div(a, b);
  if constexpr (kOp == BinaryOp::maximum) return hn::IfThenElse(hn::Or(hn::Gt(a, b), hn::IsNaN(a)), a, b);
  if constexpr (kOp == BinaryOp::minimum) return hn::IfThenElse(hn::Or(hn::Lt(a, b), hn::IsNaN(a)), a, b);
}

template <UnaryOp kOp, class T>
void map_row(const UnaryRow<T>& row) {
  const Floats d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= row.n; i += lanes) store(unary_value<kOp>(load(d, row.x + i)), d, row.y + i);
  if (i < row.n) store_n(unary_value<kOp>(load_n(d, row.x + i, row.n - i)), d, row.y + i, row.n - i);
}

template <BinaryOp kOp, class T>
void zip_row(const BinaryRow<T>& row) {
  const Floats d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), step_a = row.step_a, step_b = row.step_b;
  const auto a = hn::Set(d, float{row.a[0]}), b = hn::Set(d, float{row.b[0]});
  int64_t i = 0;
  for (; i + lanes <= row.n; i += lanes) {
    store(binary_value<kOp>(step_a ? load(d, row.a + i) : a, step_b ? load(d, row.b + i) : b), d, row.y + i);
  }
  if (const int64_t n = row.n - i; n > 0) {
    store_n(binary_value<kOp>(step_a ? load_n(d, row.a + i, n) : a, step_b ? load_n(d, row.b + i, n) : b), d,
            row.y + i, n);
  }
}

/// Squares and cubes by multiplications.
HWY_INLINE float power_value(float a, float b) {
  return b == 2 ? a * a : b == 3 ? a * a * a : std::pow(a, b);
}

template <class T>
void power_row(const BinaryRow<T>& row) {
  const Floats d;
  const float exponent = row.step_b ? 0 : float{row.b[0]};
  if (row.step_a && exponent == 2) return map_row<UnaryOp::square, T>({row.n, row.y, row.a});
  if (row.step_a && exponent == 3) {
    for (int64_t i = 0, lanes = static_cast<int64_t>(hn::Lanes(d)); i < row.n; i += lanes) {
      const auto x = load_up_to(d, row.a + i, row.n - i);
      store_up_to(hn::Mul(hn::Mul(x, x), x), d, row.y + i, row.n - i);
    }
    return;
  }
  for (int64_t i = 0; i < row.n; ++i)
    row.y[i] = T(power_value(float{row.a[i * row.step_a]}, float{row.b[i * row.step_b]}));
}

template <class T>
HWY_INLINE void (*unary_row_of(UnaryOp op))(const UnaryRow<T>&) {
  switch (op) {
#define HEED_CASE(name) \
  case UnaryOp::name:   \
    return map_row<UnaryOp::name, T>;
    HEED_CASE(negative)
    HEED_CASE(absolute)
    HEED_CASE(sign)
    HEED_CASE(exponential)
    HEED_CASE(logarithm)
    HEED_CASE(square_root)
    HEED_CASE(reciprocal_square_root)
    HEED_CASE(reciprocal)
    HEED_CASE(sine)
    HEED_CASE(cosine)
    HEED_CASE(hyperbolic_tangent)
    HEED_CASE(sigmoid)
    HEED_CASE(error_function)
    HEED_CASE(square)
    HEED_CASE(floor)
    HEED_CASE(ceil)
    HEED_CASE(round)
#undef HEED_CASE
    default:
      return nullptr;
  }
}

template <class T>
HWY_INLINE void (*binary_row_of(BinaryOp op))(const BinaryRow<T>&) {
  switch (op) {
#define HEED_CASE(name) \
  case BinaryOp::name:  \
    return zip_row<BinaryOp::name, T>;
    HEED_CASE(add)
    HEED_CASE(subtract)
    HEED_CASE(multiply)
    HEED_CASE(divide)
    HEED_CASE(maximum)
    HEED_CASE(minimum)
#undef HEED_CASE
    case BinaryOp::power:
      return power_row<T>;
    default:
      return nullptr;
  }
}

auto unary_row_f32(UnaryOp op) { return unary_row_of<float>(op); }
auto unary_row_bf16(UnaryOp op) { return unary_row_of<bfloat16>(op); }
auto binary_row_f32(BinaryOp op) { return binary_row_of<float>(op); }
auto binary_row_bf16(BinaryOp op) { return binary_row_of<bfloat16>(op); }

template <class To, class From>
HWY_INLINE void convert_row(int64_t n, To* y, const From* x) {
  const Floats d;
  for (int64_t i = 0; i < n; i += static_cast<int64_t>(hn::Lanes(d)))
    store_up_to(load_up_to(d, x + i, n - i), d, y + i, n - i);
}
void narrow_row(int64_t n, bfloat16* y, const float* x) { convert_row(n, y, x); }
void widen_row(int64_t n, float* y, const bfloat16* x) { convert_row(n, y, x); }

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::cpu {

HWY_EXPORT(unary_row_f32);
HWY_EXPORT(unary_row_bf16);
HWY_EXPORT(binary_row_f32);
HWY_EXPORT(binary_row_bf16);
HWY_EXPORT(narrow_row);
HWY_EXPORT(widen_row);

template <>
void (*unary_row<float>(kernels::UnaryOp op))(const UnaryRow<float>&) {
  return HEED_SIMD(unary_row_f32)(op);
}
template <>
void (*unary_row<bfloat16>(kernels::UnaryOp op))(const UnaryRow<bfloat16>&) {
  return HEED_SIMD(unary_row_bf16)(op);
}
template <>
void (*binary_row<float>(kernels::BinaryOp op))(const BinaryRow<float>&) {
  return HEED_SIMD(binary_row_f32)(op);
}
template <>
void (*binary_row<bfloat16>(kernels::BinaryOp op))(const BinaryRow<bfloat16>&) {
  return HEED_SIMD(binary_row_bf16)(op);
}
void narrow_row(int64_t n, bfloat16* y, const float* x) { HEED_SIMD(narrow_row)(n, y, x); }
void widen_row(int64_t n, float* y, const bfloat16* x) { HEED_SIMD(widen_row)(n, y, x); }

}  // namespace heed::cpu
#endif
