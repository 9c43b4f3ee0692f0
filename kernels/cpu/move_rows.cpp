#include <bit>
#include <type_traits>

#include <heed/kernels/cpu/move_rows.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/kernels/cpu/move_rows.cpp"
#include <heed/kernels/cpu/simd.h>
// The -inl headers follow simd.h, which includes this file once per instruction set.
#include <heed/kernels/cpu/tail-inl.h>

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

/// How elements are moved as they are: floats as uint32_t, bf16 as uint16_t.
template <class T>
using Bits = std::conditional_t<sizeof(T) == 2, uint16_t, uint32_t>;
template <class T>
HWY_INLINE const Bits<T>* bits(const T* p) {
  return reinterpret_cast<const Bits<T>*>(p);
}
template <class T>
HWY_INLINE Bits<T>* bits(T* p) {
  return reinterpret_cast<Bits<T>*>(p);
}

template <class T>
HWY_INLINE void reverse_row_of(int64_t n, T* y, const T* x) {
  const hn::ScalableTag<Bits<T>> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    hn::StoreU(hn::Reverse(d, hn::LoadU(d, bits(x + n - lanes - i))), d, bits(y + i));
  for (; i < n; ++i) y[i] = x[n - 1 - i];
}

template <class T>
HWY_INLINE void where_row_of(const WhereRow<T>& row) {
  const hn::ScalableTag<Bits<T>> d;
  const hn::Rebind<uint8_t, decltype(d)> bytes;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto a = hn::Set(d, std::bit_cast<Bits<T>>(row.a[0])),
             b = hn::Set(d, std::bit_cast<Bits<T>>(row.b[0]));
  int64_t i = 0;
  for (; i + lanes <= row.n; i += lanes) {
    const auto condition = hn::LoadU(bytes, reinterpret_cast<const uint8_t*>(row.condition + i));
    const auto no = hn::Eq(hn::PromoteTo(d, condition), hn::Zero(d));
    const auto if_true = row.step_a ? hn::LoadU(d, bits(row.a + i)) : a;
    const auto if_false = row.step_b ? hn::LoadU(d, bits(row.b + i)) : b;
    hn::StoreU(hn::IfThenElse(no, if_false, if_true), d, bits(row.y + i));
  }
  for (; i < row.n; ++i) row.y[i] = row.condition[i] ? row.a[i * row.step_a] : row.b[i * row.step_b];
}

template <class To, class From>
HWY_INLINE void convert_row_of(int64_t n, To* y, const From* x) {
  const Tag<float> d;
  for (int64_t i = 0; i < n; i += static_cast<int64_t>(hn::Lanes(d)))
    store_up_to(load_up_to(d, x + i, n - i), d, y + i, n - i);
}

void where_row_f32(const WhereRow<float>& row) { where_row_of(row); }
void where_row_bf16(const WhereRow<bfloat16>& row) { where_row_of(row); }
void reverse_row_f32(int64_t n, float* y, const float* x) { reverse_row_of(n, y, x); }
void reverse_row_bf16(int64_t n, bfloat16* y, const bfloat16* x) { reverse_row_of(n, y, x); }
void convert_row_bf16_f32(int64_t n, bfloat16* y, const float* x) { convert_row_of(n, y, x); }
void convert_row_f32_bf16(int64_t n, float* y, const bfloat16* x) { convert_row_of(n, y, x); }
void convert_row_f32_bool(int64_t n, float* y, const bool* x) { convert_row_of(n, y, x); }
void convert_row_bf16_bool(int64_t n, bfloat16* y, const bool* x) { convert_row_of(n, y, x); }

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::cpu {

#define HEED_WHERE(T, suffix)              \
  HWY_EXPORT(where_row_##suffix);          \
  template <>                              \
  void where_row(const WhereRow<T>& row) { \
    HEED_SIMD(where_row_##suffix)(row);    \
  }
HEED_WHERE(float, f32)
HEED_WHERE(bfloat16, bf16)
#undef HEED_WHERE

// A function of n, y and x.
#define HEED_ROW(name, suffix, To, From)       \
  HWY_EXPORT(name##_##suffix);                 \
  template <>                                  \
  void name(int64_t n, To* y, const From* x) { \
    HEED_SIMD(name##_##suffix)(n, y, x);       \
  }
HEED_ROW(reverse_row, f32, float, float)
HEED_ROW(reverse_row, bf16, bfloat16, bfloat16)
HEED_ROW(convert_row, bf16_f32, bfloat16, float)
HEED_ROW(convert_row, f32_bf16, float, bfloat16)
HEED_ROW(convert_row, f32_bool, float, bool)
HEED_ROW(convert_row, bf16_bool, bfloat16, bool)
#undef HEED_ROW

}  // namespace heed::cpu
#endif
