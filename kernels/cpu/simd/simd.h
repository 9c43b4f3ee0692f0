// SIMD building blocks of the CPU kernels: typed loads and stores, sums across lanes. Including it compiles
// the including file once per instruction set:
//
//   #undef HWY_TARGET_INCLUDE
//   #define HWY_TARGET_INCLUDE "heed/kernels/cpu/X.cpp"  // the file itself
//
//   #include <heed/kernels/X.h>
//   #include <heed/kernels/cpu/simd/simd.h>  // may stand anywhere among the includes
//
//   HWY_BEFORE_NAMESPACE();
//   namespace heed::cpu::HWY_NAMESPACE {
//   void x_row(…) {…}  // row functions only: no lambdas, no parallel_for, no containers
//   }
//   HWY_AFTER_NAMESPACE();
//
//   #if HWY_ONCE
//   namespace heed::cpu {
//   HWY_EXPORT(x_row);
//   void x(const kernels::X& args) { const auto row = HEED_SIMD(x_row); parallel_for(… row(…) …); }
//   }
//   #endif
#ifndef HEED_KERNELS_CPU_SIMD_ONCE_
#define HEED_KERNELS_CPU_SIMD_ONCE_
#include <cstdint>
#include <type_traits>

#include <heed/core/base/dtype.h>
#include <heed/kernels/cpu/simd/isa.h>

// On x86 the least we run on is x86-64-v2: Highway 1.0.3 has nothing between it and scalar code.
#include <hwy/detect_compiler_arch.h>
#if HWY_ARCH_X86 && !defined(HWY_BASELINE_TARGETS) && !defined(__AVX2__)
#define HWY_BASELINE_TARGETS HWY_SSE4
#endif
#include <hwy/foreach_target.h>
#endif

#if defined(HEED_KERNELS_CPU_SIMD_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_CPU_SIMD_H_
#undef HEED_KERNELS_CPU_SIMD_H_
#else
#define HEED_KERNELS_CPU_SIMD_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// The vector type in which arithmetic on T is done: floats for float and bfloat16, doubles for double.
template <class T>
using Tag = hn::ScalableTag<accumulator_t<T>>;
template <class D>
using Vec = hn::VFromD<D>;

// ---- Loads and stores: T in memory, accumulator_t<T> in the vector

template <class D>
HWY_INLINE Vec<D> load(D d, const hn::TFromD<D>* p) {
  return hn::LoadU(d, p);
}

template <class D>
HWY_INLINE Vec<D> load(D d, const bfloat16* p) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::RebindToUnsigned<D> d32;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, hn::LoadU(d16, &p->bits))));
}

template <class D>
HWY_INLINE Vec<D> load(D d, const bool* p) {
  const hn::Rebind<uint8_t, D> bytes;
  const hn::RebindToSigned<D> words;
  return hn::ConvertTo(d, hn::PromoteTo(words, hn::LoadU(bytes, reinterpret_cast<const uint8_t*>(p))));
}

template <class D>
HWY_INLINE void store(Vec<D> v, D d, hn::TFromD<D>* p) {
  hn::StoreU(v, d, p);
}

/// Rounds to nearest, ties to even; NaN stays NaN. The same bits as bfloat16(float).
template <class D>
HWY_INLINE hn::VFromD<hn::Rebind<uint16_t, D>> to_bfloat16(D, Vec<D> v) {
  const hn::RebindToUnsigned<D> d32;
  const auto word = hn::BitCast(d32, v);
  const auto upper = hn::ShiftRight<16>(word);
  const auto odd = hn::And(upper, hn::Set(d32, 1));
  const auto rounded = hn::ShiftRight<16>(hn::Add(word, hn::Add(odd, hn::Set(d32, 0x7fff))));
  const auto quiet = hn::Or(upper, hn::Set(d32, 0x40));
  const auto bits = hn::IfThenElse(hn::RebindMask(d32, hn::IsNaN(v)), quiet, rounded);
  return hn::DemoteTo(hn::Rebind<uint16_t, D>(), hn::BitCast(hn::RebindToSigned<D>(), bits));
}

template <class D>
HWY_INLINE void store(Vec<D> v, D d, bfloat16* p) {
  hn::StoreU(to_bfloat16(d, v), hn::Rebind<uint16_t, D>(), &p->bits);
}

/// Whether masked loads and stores of T leave memory outside the mask alone on this target.
template <class T>
constexpr bool kMaskedMemory = sizeof(T) >= 4 && (HWY_TARGET == HWY_AVX2 || !HWY_MEM_OPS_MIGHT_FAULT);

/// The first n lanes, n at most the vector's length; zero in the others. Touches no memory beyond them.
template <class D, class T>
HWY_INLINE Vec<D> load_n(D d, const T* p, int64_t n) {
  if constexpr (kMaskedMemory<T>) {
    return hn::MaskedLoad(hn::FirstN(d, static_cast<size_t>(n)), d, p);
  } else {
    alignas(64) T buffer[hn::MaxLanes(d)] = {};
    for (int64_t i = 0; i < n; ++i) buffer[i] = p[i];
    return load(d, buffer);
  }
}

template <class D, class T>
HWY_INLINE void store_n(Vec<D> v, D d, T* p, int64_t n) {
  if constexpr (kMaskedMemory<T>) {
    hn::BlendedStore(v, hn::FirstN(d, static_cast<size_t>(n)), d, p);
  } else {
    alignas(64) T buffer[hn::MaxLanes(d)];
    store(v, d, buffer);
    for (int64_t i = 0; i < n; ++i) p[i] = buffer[i];
  }
}

/// Two ways to touch memory, for code that does the body and the end of a row alike: whole vectors, or n
/// lanes.
template <class T>
struct Whole {
  using V = Vec<Tag<T>>;
  template <class U>  // T, or what it is computed with
  HWY_INLINE V load(const U* p) const {
    return HWY_NAMESPACE::load(Tag<T>(), p);
  }
  HWY_INLINE void store(V v, T* p) const { HWY_NAMESPACE::store(v, Tag<T>(), p); }
  /// v with zeros in the lanes that are not there.
  HWY_INLINE V keep(V v) const { return v; }
};
template <class T>
struct Partial {
  using V = Vec<Tag<T>>;
  int64_t n;
  template <class U>
  HWY_INLINE V load(const U* p) const {
    return load_n(Tag<T>(), p, n);
  }
  HWY_INLINE void store(V v, T* p) const { store_n(v, Tag<T>(), p, n); }
  HWY_INLINE V keep(V v) const { return hn::IfThenElseZero(hn::FirstN(Tag<T>(), static_cast<size_t>(n)), v); }
};

// ---- Across the lanes

/// The sum of the lanes, in an order fixed for the target.
template <class D>
HWY_INLINE hn::TFromD<D> reduce_sum(D d, Vec<D> v) {
  if constexpr (hn::MaxLanes(d) * sizeof(hn::TFromD<D>) == 64) {  // not SumOfLanes: it fills a vector first
    const hn::Half<D> half;
    return reduce_sum(half, hn::Add(hn::UpperHalf(half, v), hn::LowerHalf(half, v)));
  } else {
    return hn::GetLane(hn::SumOfLanes(d, v));
  }
}

template <class D>
HWY_INLINE hn::TFromD<D> reduce_max(D d, Vec<D> v) {
  if constexpr (hn::MaxLanes(d) * sizeof(hn::TFromD<D>) == 64) {
    const hn::Half<D> half;
    return reduce_max(half, hn::Max(hn::UpperHalf(half, v), hn::LowerHalf(half, v)));
  } else {
    return hn::GetLane(hn::MaxOfLanes(d, v));
  }
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
