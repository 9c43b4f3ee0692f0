#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <hwy/cache_control.h>

#include <heed/kernels/cpu/move_rows.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/kernels/cpu/move_rows.cpp"
#include <heed/kernels/cpu/simd/simd.h>
// The -inl header follows simd.h, which includes this file once per instruction set.
#include <heed/kernels/cpu/simd/streaming-inl.h>
#include <heed/kernels/cpu/simd/tail-inl.h>

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
    if (row.step_a) prefetch_ahead(row.a + i);
    if (row.step_b) prefetch_ahead(row.b + i);
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
  for (int64_t i = 0; i < n; i += static_cast<int64_t>(hn::Lanes(d))) {
    prefetch_ahead(x + i);
    store_up_to(load_up_to(d, x + i, n - i), d, y + i, n - i);
  }
}

template <class From>
HWY_INLINE int64_t convert_small_of(int64_t n, int64_t* y, const From* x) {
  const hn::CappedTag<float, 8> d;
  const hn::RebindToSigned<decltype(d)> words;
  const hn::Half<decltype(words)> half;
  const hn::Rebind<int64_t, decltype(half)> longs;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto v = load(d, x + i);
    if (!hn::AllTrue(d, hn::Lt(hn::Abs(v), hn::Set(d, 2147483648.0f)))) break;
    const auto whole = hn::ConvertTo(words, v);
    hn::StoreU(hn::PromoteTo(longs, hn::LowerHalf(half, whole)), longs, y + i);
    hn::StoreU(hn::PromoteTo(longs, hn::UpperHalf(half, whole)), longs, y + i + lanes / 2);
  }
  return i;
}

template <class T>
HWY_INLINE void fill_row_of(int64_t n, T* y, T value) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto values = hn::Set(d, value);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(values, d, y + i);
  for (; i < n; ++i) y[i] = value;
}

void stream_row(int64_t bytes, void* y, const void* x, int64_t ahead) {
  const hn::ScalableTag<uint8_t> d;
  constexpr int64_t kLine = 64;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)),
                before = HWY_MIN(bytes, -reinterpret_cast<intptr_t>(y) & (kLine - 1)),
                end = before + ((bytes - before) & -kLine);
  uint8_t* const to = static_cast<uint8_t*>(y);
  const uint8_t* const from = static_cast<const uint8_t*>(x);
  std::memcpy(to, from, static_cast<size_t>(before));
  for (int64_t i = before; i < end; i += kLine) {
    if (ahead > 0) prefetch_ahead(from + i, ahead);
    for (int64_t j = i; j < i + kLine; j += lanes) hn::Stream(hn::LoadU(d, from + j), d, to + j);
  }
  std::memcpy(to + end, from + end, static_cast<size_t>(bytes - end));
}

void where_row_f32(const WhereRow<float>& row) { where_row_of(row); }
void where_row_bf16(const WhereRow<bfloat16>& row) { where_row_of(row); }
void reverse_row_f32(int64_t n, float* y, const float* x) { reverse_row_of(n, y, x); }
void reverse_row_bf16(int64_t n, bfloat16* y, const bfloat16* x) { reverse_row_of(n, y, x); }
void convert_row_bf16_f32(int64_t n, bfloat16* y, const float* x) { convert_row_of(n, y, x); }
void convert_row_f32_bf16(int64_t n, float* y, const bfloat16* x) { convert_row_of(n, y, x); }
void convert_row_f32_bool(int64_t n, float* y, const bool* x) { convert_row_of(n, y, x); }
void convert_row_bf16_bool(int64_t n, bfloat16* y, const bool* x) { convert_row_of(n, y, x); }
int64_t convert_small_f32(int64_t n, int64_t* y, const float* x) { return convert_small_of(n, y, x); }
int64_t convert_small_bf16(int64_t n, int64_t* y, const bfloat16* x) { return convert_small_of(n, y, x); }
void fill_row_8(int64_t n, uint8_t* y, uint8_t value) { fill_row_of(n, y, value); }
void fill_row_16(int64_t n, uint16_t* y, uint16_t value) { fill_row_of(n, y, value); }
void fill_row_32(int64_t n, uint32_t* y, uint32_t value) { fill_row_of(n, y, value); }
void fill_row_64(int64_t n, uint64_t* y, uint64_t value) { fill_row_of(n, y, value); }

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

#define HEED_SMALL(suffix, From)                                \
  HWY_EXPORT(convert_small_##suffix);                           \
  template <>                                                   \
  int64_t convert_small(int64_t n, int64_t* y, const From* x) { \
    return HEED_SIMD(convert_small_##suffix)(n, y, x);          \
  }
HEED_SMALL(f32, float)
HEED_SMALL(bf16, bfloat16)
#undef HEED_SMALL

HWY_EXPORT(stream_row);
void stream_row(int64_t bytes, void* y, const void* x, int64_t ahead) {
  HEED_SIMD(stream_row)(bytes, y, x, ahead);
}

HWY_EXPORT(fill_row_8);
HWY_EXPORT(fill_row_16);
HWY_EXPORT(fill_row_32);
HWY_EXPORT(fill_row_64);
#define HEED_FILL(T, bits)                                                                 \
  template <>                                                                              \
  void fill_row(int64_t n, T* y, T value) {                                                \
    using Word = uint##bits##_t;                                                           \
    HEED_SIMD(fill_row_##bits)(n, reinterpret_cast<Word*>(y), std::bit_cast<Word>(value)); \
  }
HEED_FILL(float, 32)
HEED_FILL(bfloat16, 16)
HEED_FILL(double, 64)
HEED_FILL(int64_t, 64)
HEED_FILL(int32_t, 32)
HEED_FILL(bool, 8)
#undef HEED_FILL

}  // namespace heed::cpu
#endif
