#include <algorithm>
#include <limits>

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
using kernels::CompareOp;
using kernels::PredicateOp;
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
  [[maybe_unused]] const Floats d;
  if constexpr (kOp == BinaryOp::add) return hn::Add(a, b);
  if constexpr (kOp == BinaryOp::subtract) return hn::Sub(a, b);
  if constexpr (kOp == BinaryOp::multiply) return hn::Mul(a, b);
  if constexpr (kOp == BinaryOp::divide) return hn::Div(a, b);
  if constexpr (kOp == BinaryOp::power) return power(d, a, b);
  if constexpr (kOp == BinaryOp::maximum) return hn::IfThenElse(hn::Or(hn::Gt(a, b), hn::IsNaN(a)), a, b);
  if constexpr (kOp == BinaryOp::minimum) return hn::IfThenElse(hn::Or(hn::Lt(a, b), hn::IsNaN(a)), a, b);
}

template <Values (*kValue)(Values), class T>
void map_row(const UnaryRow<T>& row) {
  const Floats d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= row.n; i += lanes) store(kValue(load(d, row.x + i)), d, row.y + i);
  if (i < row.n) store_n(kValue(load_n(d, row.x + i, row.n - i)), d, row.y + i, row.n - i);
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

template <CompareOp kOp>
HWY_INLINE hn::MFromD<Floats> holds(Values a, Values b) {
  if constexpr (kOp == CompareOp::equal) return hn::Eq(a, b);
  if constexpr (kOp == CompareOp::not_equal) return hn::Not(hn::Eq(a, b));  // of NaN too, where Ne is false
  if constexpr (kOp == CompareOp::less) return hn::Lt(a, b);
  if constexpr (kOp == CompareOp::less_equal) return hn::Le(a, b);
  if constexpr (kOp == CompareOp::greater) return hn::Gt(a, b);
  if constexpr (kOp == CompareOp::greater_equal) return hn::Ge(a, b);
}

template <PredicateOp kOp>
HWY_INLINE hn::MFromD<Floats> holds(Values x) {
  if constexpr (kOp == PredicateOp::is_nan) return hn::IsNaN(x);
  if constexpr (kOp == PredicateOp::is_finite)
    return hn::Le(hn::Abs(x), hn::Set(Floats(), std::numeric_limits<float>::max()));
}

/// The first n lanes of a mask, all if there are fewer, as bytes.
HWY_INLINE void store_mask(hn::MFromD<Floats> mask, bool* y, int64_t n) {
  const Floats d;
  const hn::RebindToUnsigned<Floats> words;
  const hn::Rebind<uint8_t, Floats> bytes;
  const auto ones = hn::ShiftRight<31>(hn::BitCast(words, hn::VecFromMask(d, mask)));
  const auto narrow = hn::DemoteTo(bytes, hn::BitCast(hn::RebindToSigned<Floats>(), ones));
  if (n >= static_cast<int64_t>(hn::Lanes(d)))
    return hn::StoreU(narrow, bytes, reinterpret_cast<uint8_t*>(y));
  uint8_t buffer[hn::MaxLanes(d)];
  hn::StoreU(narrow, bytes, buffer);
  std::copy_n(buffer, n, y);
}

template <PredicateOp kOp, class T>
void holds_row(const UnaryRow<T, bool>& row) {
  const Floats d;
  for (int64_t i = 0; i < row.n; i += static_cast<int64_t>(hn::Lanes(d)))
    store_mask(holds<kOp>(load_up_to(d, row.x + i, row.n - i)), row.y + i, row.n - i);
}

template <CompareOp kOp, class T>
void holds_row(const BinaryRow<T, bool>& row) {
  const Floats d;
  const auto a = hn::Set(d, float{row.a[0]}), b = hn::Set(d, float{row.b[0]});
  for (int64_t i = 0; i < row.n; i += static_cast<int64_t>(hn::Lanes(d))) {
    const int64_t n = row.n - i;
    const auto left = row.step_a ? load_up_to(d, row.a + i, n) : a;
    const auto right = row.step_b ? load_up_to(d, row.b + i, n) : b;
    store_mask(holds<kOp>(left, right), row.y + i, n);
  }
}

template <class T>
HWY_INLINE void clamp_row_of(const UnaryRow<T>& row, float low, float high) {
  const Floats d;
  const auto least = hn::Set(d, low), most = hn::Set(d, high);
  for (int64_t i = 0; i < row.n; i += static_cast<int64_t>(hn::Lanes(d))) {
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

template <class T>
HWY_INLINE void (*predicate_row_of(PredicateOp op))(const UnaryRow<T, bool>&) {
  return op == PredicateOp::is_nan ? holds_row<PredicateOp::is_nan, T> : holds_row<PredicateOp::is_finite, T>;
}

template <class T>
HWY_INLINE void (*compare_row_of(CompareOp op))(const BinaryRow<T, bool>&) {
  switch (op) {
#define HEED_CASE(name) \
  case CompareOp::name: \
    return holds_row<CompareOp::name, T>;
    HEED_CASE(equal)
    HEED_CASE(not_equal)
    HEED_CASE(less)
    HEED_CASE(less_equal)
    HEED_CASE(greater)
    HEED_CASE(greater_equal)
#undef HEED_CASE
  }
  return nullptr;
}

auto unary_row_f32(UnaryOp op) { return unary_row_of<float>(op); }
auto unary_row_bf16(UnaryOp op) { return unary_row_of<bfloat16>(op); }
auto binary_row_f32(BinaryOp op) { return binary_row_of<float>(op); }
auto binary_row_bf16(BinaryOp op) { return binary_row_of<bfloat16>(op); }

auto predicate_row_f32(PredicateOp op) { return predicate_row_of<float>(op); }
auto predicate_row_bf16(PredicateOp op) { return predicate_row_of<bfloat16>(op); }
auto compare_row_f32(CompareOp op) { return compare_row_of<float>(op); }
auto compare_row_bf16(CompareOp op) { return compare_row_of<bfloat16>(op); }
void clamp_row_f32(const UnaryRow<float>& row, float low, float high) { clamp_row_of(row, low, high); }
void clamp_row_bf16(const UnaryRow<bfloat16>& row, float low, float high) { clamp_row_of(row, low, high); }

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::cpu {

#define HEED_EXPORT_ROWS(T, type)                                               \
  HWY_EXPORT(unary_row_##type);                                                 \
  HWY_EXPORT(predicate_row_##type);                                             \
  HWY_EXPORT(binary_row_##type);                                                \
  HWY_EXPORT(compare_row_##type);                                               \
  HWY_EXPORT(clamp_row_##type);                                                 \
  template <>                                                                   \
  void (*unary_row<T>(kernels::UnaryOp op))(const UnaryRow<T>&) {               \
    return HEED_SIMD(unary_row_##type)(op);                                     \
  }                                                                             \
  template <>                                                                   \
  void (*predicate_row<T>(kernels::PredicateOp op))(const UnaryRow<T, bool>&) { \
    return HEED_SIMD(predicate_row_##type)(op);                                 \
  }                                                                             \
  template <>                                                                   \
  void (*binary_row<T>(kernels::BinaryOp op))(const BinaryRow<T>&) {            \
    return HEED_SIMD(binary_row_##type)(op);                                    \
  }                                                                             \
  template <>                                                                   \
  void (*compare_row<T>(kernels::CompareOp op))(const BinaryRow<T, bool>&) {    \
    return HEED_SIMD(compare_row_##type)(op);                                   \
  }                                                                             \
  template <>                                                                   \
  void clamp_row(const UnaryRow<T>& row, float low, float high) {               \
    HEED_SIMD(clamp_row_##type)(row, low, high);                                \
  }
HEED_EXPORT_ROWS(float, f32)
HEED_EXPORT_ROWS(bfloat16, bf16)
#undef HEED_EXPORT_ROWS

}  // namespace heed::cpu
#endif
