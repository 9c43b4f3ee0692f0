#include <limits>

#include <heed/kernels/cpu/elementwise/elementwise_rows.h>
#include <heed/kernels/division.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/kernels/cpu/elementwise/elementwise_rows.cpp"
#include <heed/kernels/cpu/simd/simd.h>
// The -inl headers follow simd.h, which includes this file once per instruction set.
#include <heed/kernels/cpu/simd/math-inl.h>
#include <heed/kernels/cpu/simd/near_one-inl.h>
#include <heed/kernels/cpu/simd/streaming-inl.h>
#include <heed/kernels/cpu/simd/tail-inl.h>

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
  if constexpr (kOp == UnaryOp::log1p) return log1p(d, x);
  if constexpr (kOp == UnaryOp::expm1) return expm1(d, x);
  if constexpr (kOp == UnaryOp::softplus) return softplus(d, x);
}

/// f of each pair of lanes: for what vectors have no instructions for.
HWY_INLINE Values zip_lanes(Values a, Values b, float (*f)(float, float)) {
  const Floats d;
  alignas(64) float left[hn::MaxLanes(d)], right[hn::MaxLanes(d)];
  hn::Store(a, d, left);
  hn::Store(b, d, right);
  for (size_t i = 0; i < hn::Lanes(d); ++i) left[i] = f(left[i], right[i]);
  return hn::Load(d, left);
}

/// a > 0 ? positive : other.
HWY_INLINE Values where_positive(Values a, Values positive, Values other) {
  return hn::IfThenElse(hn::Gt(a, hn::Zero(Floats())), positive, other);
}

template <BinaryOp kOp>
HWY_INLINE Values binary_value(Values a, Values b) {
  [[maybe_unused]] const Floats d;
  [[maybe_unused]] const auto one = hn::Set(d, 1.0f);
  if constexpr (kOp == BinaryOp::add) return hn::Add(a, b);
  if constexpr (kOp == BinaryOp::subtract) return hn::Sub(a, b);
  if constexpr (kOp == BinaryOp::multiply) return hn::Mul(a, b);
  if constexpr (kOp == BinaryOp::divide) return hn::Div(a, b);
  if constexpr (kOp == BinaryOp::power) return power(d, a, b);
  if constexpr (kOp == BinaryOp::maximum) return hn::IfThenElse(hn::Or(hn::Gt(a, b), hn::IsNaN(a)), a, b);
  if constexpr (kOp == BinaryOp::minimum) return hn::IfThenElse(hn::Or(hn::Lt(a, b), hn::IsNaN(a)), a, b);
  if constexpr (kOp == BinaryOp::remainder) return zip_lanes(a, b, kernels::floor_remainder<float>);
  if constexpr (kOp == BinaryOp::floor_divide) return zip_lanes(a, b, kernels::floor_quotient<float>);
  if constexpr (kOp == BinaryOp::leaky_relu) return where_positive(a, a, hn::Mul(a, b));
  if constexpr (kOp == BinaryOp::leaky_relu_slope) return where_positive(a, one, b);
  if constexpr (kOp == BinaryOp::elu) return where_positive(a, a, hn::Mul(b, expm1(d, a)));
  if constexpr (kOp == BinaryOp::elu_slope) return where_positive(a, one, hn::Mul(b, exp(d, a)));
}

template <Values (*kValue)(Values), class T>
void map_row(const UnaryRow<T>& row) {
  const Floats d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= row.n; i += lanes) {
    prefetch_ahead(row.x + i);
    store(kValue(load(d, row.x + i)), d, row.y + i);
  }
  if (i < row.n) store_n(kValue(load_n(d, row.x + i, row.n - i)), d, row.y + i, row.n - i);
}

template <BinaryOp kOp, class T>
void zip_row(const BinaryRow<T>& row) {
  const Floats d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), step_a = row.step_a, step_b = row.step_b;
  const auto a = hn::Set(d, float{row.a[0]}), b = hn::Set(d, float{row.b[0]});
  int64_t i = 0;
  for (; i + lanes <= row.n; i += lanes) {
    if (step_a) prefetch_ahead(row.a + i);
    if (step_b) prefetch_ahead(row.b + i);
    store(binary_value<kOp>(step_a ? load(d, row.a + i) : a, step_b ? load(d, row.b + i) : b), d, row.y + i);
  }
  if (const int64_t n = row.n - i; n > 0) {
    store_n(binary_value<kOp>(step_a ? load_n(d, row.a + i, n) : a, step_b ? load_n(d, row.b + i, n) : b), d,
            row.y + i, n);
  }
}

HWY_INLINE Values cube(Values x) { return hn::Mul(hn::Mul(x, x), x); }

/// x to the power of one half: unlike a root +0 at -0, and infinity at -infinity.
HWY_INLINE Values power_half(Values x) {
  const Floats d;
  const auto infinity = hn::Set(d, std::numeric_limits<float>::infinity());
  return hn::IfThenElse(hn::Eq(x, hn::Neg(infinity)), infinity, hn::Sqrt(hn::Add(x, hn::Zero(d))));
}

/// Some exponents need no logarithm. Cubes are rounded twice.
template <class T>
void power_row(const BinaryRow<T>& row) {
  if (row.step_a && !row.step_b) {
    const UnaryRow<T> base{row.n, row.y, row.a};
    const float exponent = row.b[0];
    if (exponent == 2) return map_row<unary_value<UnaryOp::square>>(base);
    if (exponent == 3) return map_row<cube>(base);
    if (exponent == 0.5f) return map_row<power_half>(base);
    if (exponent == -1) return map_row<unary_value<UnaryOp::reciprocal>>(base);
  }
  zip_row<BinaryOp::power>(row);
}

template <class T>
HWY_INLINE void clamp_row_of(const UnaryRow<T>& row, float low, float high) {
  const Floats d;
  const auto least = hn::Set(d, low), most = hn::Set(d, high);
  for (int64_t i = 0; i < row.n; i += static_cast<int64_t>(hn::Lanes(d))) {
    prefetch_ahead(row.x + i);
    const auto x = load_up_to(d, row.x + i, row.n - i);
    // Min and Max give their second argument when it is NaN.
    store_up_to(hn::Min(most, hn::Max(least, x)), d, row.y + i, row.n - i);
  }
}

/// The sign of bf16 changed (negative) or taken away.
template <UnaryOp kOp>
void sign_row(const UnaryRow<bfloat16>& row) {
  const hn::ScalableTag<uint16_t> d;
  const auto sign = hn::Set(d, 0x8000);
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= row.n; i += lanes) {
    const auto x = hn::LoadU(d, &row.x[i].bits);
    hn::StoreU(kOp == UnaryOp::negative ? hn::Xor(x, sign) : hn::AndNot(sign, x), d, &row.y[i].bits);
  }
  for (; i < row.n; ++i) {
    const uint16_t x = row.x[i].bits;
    row.y[i].bits = static_cast<uint16_t>(kOp == UnaryOp::negative ? x ^ 0x8000 : x & 0x7fff);
  }
}

template <class T>
HWY_INLINE void (*unary_row_of(UnaryOp op))(const UnaryRow<T>&) {
  if constexpr (std::is_same_v<T, bfloat16>) {
    if (op == UnaryOp::negative) return sign_row<UnaryOp::negative>;
    if (op == UnaryOp::absolute) return sign_row<UnaryOp::absolute>;
  }
  switch (op) {
#define HEED_CASE(name) \
  case UnaryOp::name:   \
    return map_row<unary_value<UnaryOp::name>, T>;
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
    HEED_CASE(log1p)
    HEED_CASE(expm1)
    HEED_CASE(softplus)
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
    HEED_CASE(remainder)
    HEED_CASE(floor_divide)
    HEED_CASE(leaky_relu)
    HEED_CASE(leaky_relu_slope)
    HEED_CASE(elu)
    HEED_CASE(elu_slope)
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

void clamp_row_f32(const UnaryRow<float>& row, float low, float high) { clamp_row_of(row, low, high); }
void clamp_row_bf16(const UnaryRow<bfloat16>& row, float low, float high) { clamp_row_of(row, low, high); }

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::cpu {

#define HEED_EXPORT_ROWS(T, type)                                    \
  HWY_EXPORT(unary_row_##type);                                      \
  HWY_EXPORT(binary_row_##type);                                     \
  HWY_EXPORT(clamp_row_##type);                                      \
  template <>                                                        \
  void (*unary_row<T>(kernels::UnaryOp op))(const UnaryRow<T>&) {    \
    return HEED_SIMD(unary_row_##type)(op);                          \
  }                                                                  \
  template <>                                                        \
  void (*binary_row<T>(kernels::BinaryOp op))(const BinaryRow<T>&) { \
    return HEED_SIMD(binary_row_##type)(op);                         \
  }                                                                  \
  template <>                                                        \
  void clamp_row(const UnaryRow<T>& row, float low, float high) {    \
    HEED_SIMD(clamp_row_##type)(row, low, high);                     \
  }
HEED_EXPORT_ROWS(float, f32)
HEED_EXPORT_ROWS(bfloat16, bf16)
#undef HEED_EXPORT_ROWS

}  // namespace heed::cpu
#endif
