#include <algorithm>
#include <cstring>
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

/// x³, in double.
HWY_INLINE Values cube(Values x) {
  const Floats d;
  const auto lower = lower_doubles(d, x), upper = upper_doubles(d, x);
  return floats(d, hn::Mul(hn::Mul(lower, lower), lower), hn::Mul(hn::Mul(upper, upper), upper));
}

/// x to the power of one half: unlike a root +0 at -0, and infinity at -infinity.
HWY_INLINE Values power_half(Values x) {
  const Floats d;
  const auto infinity = hn::Set(d, std::numeric_limits<float>::infinity());
  return hn::IfThenElse(hn::Eq(x, hn::Neg(infinity)), infinity, hn::Sqrt(hn::Add(x, hn::Zero(d))));
}

/// Some exponents need no logarithm.
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

/// Floats as uint32_t, bf16 as uint16_t.
template <class Bits, class T>
HWY_INLINE void where_row_of(const WhereRow<T>& row) {
  const hn::ScalableTag<Bits> d;
  const hn::Rebind<uint8_t, decltype(d)> bytes;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto at = [](const T* p) HWY_ATTR { return reinterpret_cast<const Bits*>(p); };
  Bits left, right;
  std::memcpy(&left, row.a, sizeof left);
  std::memcpy(&right, row.b, sizeof right);
  const auto a = hn::Set(d, left), b = hn::Set(d, right);
  int64_t i = 0;
  for (; i + lanes <= row.n; i += lanes) {
    const auto condition = hn::LoadU(bytes, reinterpret_cast<const uint8_t*>(row.condition + i));
    const auto no = hn::Eq(hn::PromoteTo(d, condition), hn::Zero(d));
    const auto if_true = row.step_a ? hn::LoadU(d, at(row.a + i)) : a;
    const auto if_false = row.step_b ? hn::LoadU(d, at(row.b + i)) : b;
    hn::StoreU(hn::IfThenElse(no, if_false, if_true), d, reinterpret_cast<Bits*>(row.y + i));
  }
  for (; i < row.n; ++i) row.y[i] = row.condition[i] ? row.a[i * row.step_a] : row.b[i * row.step_b];
}

template <class To, class From>
HWY_INLINE void convert_row_of(int64_t n, To* y, const From* x) {
  const Floats d;
  for (int64_t i = 0; i < n; i += static_cast<int64_t>(hn::Lanes(d)))
    store_up_to(load_up_to(d, x + i, n - i), d, y + i, n - i);
}

template <class T>
HWY_INLINE void (*unary_row_of(UnaryOp op))(const UnaryRow<T>&) {
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
void where_row_f32(const WhereRow<float>& row) { where_row_of<uint32_t>(row); }
void where_row_bf16(const WhereRow<bfloat16>& row) { where_row_of<uint16_t>(row); }
void convert_row_bf16_f32(int64_t n, bfloat16* y, const float* x) { convert_row_of(n, y, x); }
void convert_row_f32_bf16(int64_t n, float* y, const bfloat16* x) { convert_row_of(n, y, x); }
void convert_row_f32_bool(int64_t n, float* y, const bool* x) { convert_row_of(n, y, x); }
void convert_row_bf16_bool(int64_t n, bfloat16* y, const bool* x) { convert_row_of(n, y, x); }

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::cpu {

#define HEED_ROWS(name, type, T, Op, Row)           \
  HWY_EXPORT(name##_##type);                        \
  template <>                                       \
  void (*name<T>(kernels::Op op))(const Row& row) { \
    return HEED_SIMD(name##_##type)(op);            \
  }
#define HEED_COMMA ,
HEED_ROWS(unary_row, f32, float, UnaryOp, UnaryRow<float>)
HEED_ROWS(unary_row, bf16, bfloat16, UnaryOp, UnaryRow<bfloat16>)
HEED_ROWS(predicate_row, f32, float, PredicateOp, UnaryRow<float HEED_COMMA bool>)
HEED_ROWS(predicate_row, bf16, bfloat16, PredicateOp, UnaryRow<bfloat16 HEED_COMMA bool>)
HEED_ROWS(binary_row, f32, float, BinaryOp, BinaryRow<float>)
HEED_ROWS(binary_row, bf16, bfloat16, BinaryOp, BinaryRow<bfloat16>)
HEED_ROWS(compare_row, f32, float, CompareOp, BinaryRow<float HEED_COMMA bool>)
HEED_ROWS(compare_row, bf16, bfloat16, CompareOp, BinaryRow<bfloat16 HEED_COMMA bool>)
#undef HEED_COMMA
#undef HEED_ROWS

HWY_EXPORT(clamp_row_f32);
HWY_EXPORT(clamp_row_bf16);
template <>
void clamp_row(const UnaryRow<float>& row, float low, float high) {
  HEED_SIMD(clamp_row_f32)(row, low, high);
}
template <>
void clamp_row(const UnaryRow<bfloat16>& row, float low, float high) {
  HEED_SIMD(clamp_row_bf16)(row, low, high);
}

HWY_EXPORT(where_row_f32);
HWY_EXPORT(where_row_bf16);
template <>
void where_row(const WhereRow<float>& row) {
  HEED_SIMD(where_row_f32)(row);
}
template <>
void where_row(const WhereRow<bfloat16>& row) {
  HEED_SIMD(where_row_bf16)(row);
}

#define HEED_CONVERT(to, To, from, From)              \
  HWY_EXPORT(convert_row_##to##_##from);              \
  template <>                                         \
  void convert_row(int64_t n, To* y, const From* x) { \
    HEED_SIMD(convert_row_##to##_##from)(n, y, x);    \
  }
HEED_CONVERT(bf16, bfloat16, f32, float)
HEED_CONVERT(f32, float, bf16, bfloat16)
HEED_CONVERT(f32, float, bool, bool)
HEED_CONVERT(bf16, bfloat16, bool, bool)
#undef HEED_CONVERT

}  // namespace heed::cpu
#endif
