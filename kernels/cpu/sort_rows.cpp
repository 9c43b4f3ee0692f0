#include <heed/kernels/cpu/sort_rows.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/kernels/cpu/sort_rows.cpp"
#include <heed/kernels/cpu/simd/simd.h>
// The -inl headers follow simd.h, which includes this file once per instruction set.
#include <heed/kernels/cpu/simd/tail-inl.h>

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

/// The vector type in which elements are compared: bf16 as floats, others as they are.
template <class T>
using Compared = hn::ScalableTag<math_t<T>>;

template <class Key>
HWY_INLINE void rank(Key* ranks, const Key* keys, int64_t n) {
  using V = Vec<hn::ScalableTag<Key>>;
  const hn::ScalableTag<Key> d;
  constexpr int64_t kVectors = 2, kLanes = hn::MaxLanes(d), kBlock = kVectors * kLanes;
  static_assert(kBlock - 1 <= kSortSlack);
  for (int64_t i = 0; i < n; i += kBlock) {
    V key[kVectors], place[kVectors], result[kVectors];
    for (int64_t v = 0; v < kVectors; ++v) {
      const Key first = static_cast<Key>(i + v * kLanes);
      key[v] = load(d, keys + first);
      place[v] = hn::Iota(d, first);
      result[v] = hn::Set(d, static_cast<Key>(i));
    }
    const int64_t end = HWY_MIN(i + kBlock, n);
    // A mask is -1 where it is true. On the left all count but those above, on the right only those below.
    // Unrolled, since loops this short take up to a third more at some addresses.
    HWY_UNROLL(4)
    for (int64_t j = 0; j < i; ++j) {
      const V other = hn::Set(d, keys[j]);
      for (int64_t v = 0; v < kVectors; ++v)
        result[v] = hn::Add(result[v], hn::VecFromMask(d, hn::Gt(other, key[v])));
    }
    for (int64_t j = i; j < end; ++j) {
      const V other = hn::Set(d, keys[j]), at = hn::Set(d, static_cast<Key>(j));
      for (int64_t v = 0; v < kVectors; ++v) {
        const auto equal_on_left = hn::And(hn::Eq(other, key[v]), hn::Lt(at, place[v]));
        result[v] = hn::Sub(result[v], hn::VecFromMask(d, hn::Or(hn::Lt(other, key[v]), equal_on_left)));
      }
    }
    HWY_UNROLL(4)
    for (int64_t j = end; j < n; ++j) {
      const V other = hn::Set(d, keys[j]);
      for (int64_t v = 0; v < kVectors; ++v)
        result[v] = hn::Sub(result[v], hn::VecFromMask(d, hn::Lt(other, key[v])));
    }
    for (int64_t v = 0; v < kVectors; ++v) store(result[v], d, ranks + i + v * kLanes);
  }
}

template <bool kDescending, class D>
HWY_INLINE hn::Mask<D> is_before(Vec<D> x, Vec<D> threshold) {
  if constexpr (hwy::IsFloat<hn::TFromD<D>>()) {  // NaN is above everything
    if constexpr (kDescending) return hn::Not(hn::Le(x, threshold));
    return hn::And(hn::Eq(x, x), hn::Not(hn::Ge(x, threshold)));
  } else {
    return kDescending ? hn::Gt(x, threshold) : hn::Lt(x, threshold);
  }
}

/// A bit for each element of kVectors vectors, the first one lowest.
template <int64_t kVectors, class D>
HWY_INLINE uint64_t bits_of(D d, const hn::Mask<D>* masks) {
  constexpr int64_t kLanes = hn::MaxLanes(d);
  static_assert(kLanes <= 16 && kVectors * kLanes <= 64);
  uint64_t bits = 0;
  for (int64_t v = 0; v < kVectors; ++v) {
    uint8_t bytes[8] = {};
    hn::StoreMaskBits(d, masks[v], bytes);
    bits |= (uint64_t{bytes[0]} | uint64_t{bytes[1]} << 8) << (v * kLanes);
  }
  return bits;
}

template <bool kDescending, class T>
Scanned find(const BeforeThreshold<T>& row) {
  using D = Compared<T>;
  const D d;
  constexpr int64_t kVectors = 4, kLanes = hn::MaxLanes(d);
  const auto threshold = hn::Set(d, static_cast<hn::TFromD<D>>(row.threshold));
  int64_t i = 0, found = 0;
  // Highway 1.0.3's Compress copies its tables to the stack each time; bits are as good where few are found.
  const auto append = [&](uint64_t bits) HWY_ATTR {
    for (; bits != 0; bits &= bits - 1)
      row.positions[found++] = i + static_cast<int64_t>(hwy::Num0BitsBelowLS1Bit_Nonzero64(bits));
  };
  for (; i + kVectors * kLanes <= row.n && found + kVectors * kLanes <= row.room; i += kVectors * kLanes) {
    hn::Mask<D> before[kVectors];
    for (int64_t v = 0; v < kVectors; ++v)
      before[v] = is_before<kDescending, D>(load(d, row.x + i + v * kLanes), threshold);
    if (hn::AllFalse(d, hn::Or(hn::Or(before[0], before[1]), hn::Or(before[2], before[3])))) continue;
    append(bits_of<kVectors>(d, before));
  }
  for (; i < row.n && found + kLanes <= row.room; i += kLanes) {
    const auto before = is_before<kDescending, D>(load_up_to(d, row.x + i, row.n - i), threshold);
    const auto there = hn::FirstN(d, static_cast<size_t>(HWY_MIN(row.n - i, kLanes)));
    const hn::Mask<D> masks[] = {hn::And(before, there)};
    append(bits_of<1>(d, masks));
  }
  return {HWY_MIN(i, row.n), found};
}

#define HEED_FIND(T, suffix)                                    \
  Scanned find_##suffix(const BeforeThreshold<T>& row) {        \
    return row.descending ? find<true>(row) : find<false>(row); \
  }
HEED_FIND(float, f32)
HEED_FIND(bfloat16, bf16)
HEED_FIND(double, f64)
HEED_FIND(int64_t, i64)
HEED_FIND(int32_t, i32)
#undef HEED_FIND

void rank_i32(int32_t* ranks, const int32_t* keys, int64_t n) { rank(ranks, keys, n); }
void rank_i64(int64_t* ranks, const int64_t* keys, int64_t n) { rank(ranks, keys, n); }

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::cpu {

HWY_EXPORT(rank_i32);
HWY_EXPORT(rank_i64);
template <>
void rank_keys(int32_t* ranks, const int32_t* keys, int64_t n) {
  HEED_SIMD(rank_i32)(ranks, keys, n);
}
template <>
void rank_keys(int64_t* ranks, const int64_t* keys, int64_t n) {
  HEED_SIMD(rank_i64)(ranks, keys, n);
}

#define HEED_EXPORT_FIND(T, suffix)                    \
  HWY_EXPORT(find_##suffix);                           \
  template <>                                          \
  Scanned find_before(const BeforeThreshold<T>& row) { \
    return HEED_SIMD(find_##suffix)(row);              \
  }
HEED_EXPORT_FIND(float, f32)
HEED_EXPORT_FIND(bfloat16, bf16)
HEED_EXPORT_FIND(double, f64)
HEED_EXPORT_FIND(int64_t, i64)
HEED_EXPORT_FIND(int32_t, i32)
#undef HEED_EXPORT_FIND

}  // namespace heed::cpu
#endif
