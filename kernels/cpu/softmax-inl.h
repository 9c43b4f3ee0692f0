// What softmax and cross-entropy share: passes over one row of logits.
#if defined(HEED_KERNELS_CPU_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_CPU_SOFTMAX_INL_H_
#undef HEED_KERNELS_CPU_SOFTMAX_INL_H_
#else
#define HEED_KERNELS_CPU_SOFTMAX_INL_H_
#endif

#include <algorithm>
#include <limits>

#include <heed/kernels/cpu/streaming-inl.h>
#include <heed/kernels/cpu/tail-inl.h>

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

constexpr int64_t kMostRowsInGroup = 16;

/// Rows that take each step together, so that the sums and quotients of one need not wait for another's.
inline int64_t rows_in_group(int64_t cols) { return cols <= 256 ? kMostRowsInGroup : 1; }

/// The largest of n elements, -inf if there are none; NaN may be passed over.
template <class T>
HWY_INLINE accumulator_t<T> row_max(const T* x, int64_t n) {
  const Tag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto lowest = hn::Set(d, -std::numeric_limits<accumulator_t<T>>::infinity());
  auto most0 = lowest, most1 = lowest;
  int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    most0 = hn::Max(most0, load(d, x + i));
    most1 = hn::Max(most1, load(d, x + i + lanes));
  }
  for (; i + lanes <= n; i += lanes) most0 = hn::Max(most0, load(d, x + i));
  if (i < n) {
    const auto rest =
        hn::IfThenElse(hn::FirstN(d, static_cast<size_t>(n - i)), load_n(d, x + i, n - i), lowest);
    most1 = hn::Max(most1, rest);
  }
  return reduce_max(d, hn::Max(most0, most1));
}

/// Whether `most` is the maximum of a row of nothing but -inf (and not one with a NaN that row_max passed
/// over).
template <class T>
HWY_INLINE bool row_is_empty(const T* x, int64_t n, accumulator_t<T> most) {
  constexpr accumulator_t<T> kLowest = -std::numeric_limits<accumulator_t<T>>::infinity();
  if (most != kLowest) return false;
  for (int64_t i = 0; i < n; ++i) {
    if (static_cast<accumulator_t<T>>(x[i]) != kLowest) return false;
  }
  return true;
}

/// Sums over a row in double, of what a vector pass adds up in blocks short enough for float.
struct RowSums {
  double exponentials;  // Σ exp(x - shift)
  double shifted;       // Σ (x - shift)
};

/// One pass of RowSums; writes exp(x - shift) to `out` if kStore, and finds Σ (x - shift) if kShifted.
template <bool kStore, bool kShifted, class T>
HWY_INLINE RowSums row_sums(const T* x, accumulator_t<T>* out, int64_t n, accumulator_t<T> shift) {
  constexpr int64_t kBlock = 2048;
  const Tag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto shift_v = hn::Set(d, shift);
  RowSums sums{0, 0};
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, n);
    auto exponentials = hn::Zero(d), shifted = hn::Zero(d);
    int64_t i = begin;
    for (; i + lanes <= end; i += lanes) {
      prefetch_ahead(x + i);
      const auto t = hn::Sub(load(d, x + i), shift_v);
      const auto e = exp_fast(d, t);
      if constexpr (kStore) hn::StoreU(e, d, out + i);
      exponentials = hn::Add(exponentials, e);
      if constexpr (kShifted) shifted = hn::Add(shifted, t);
    }
    if (i < end) {
      const auto t = hn::Sub(load_n(d, x + i, end - i), shift_v);
      const auto e = exp_fast(d, t);
      if constexpr (kStore) store_n(e, d, out + i, end - i);
      const auto valid = hn::FirstN(d, static_cast<size_t>(end - i));
      exponentials = hn::Add(exponentials, hn::IfThenElseZero(valid, e));
      if constexpr (kShifted) shifted = hn::Add(shifted, hn::IfThenElseZero(valid, t));
    }
    sums.exponentials += static_cast<double>(reduce_sum(d, exponentials));
    if constexpr (kShifted) sums.shifted += static_cast<double>(reduce_sum(d, shifted));
  }
  return sums;
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
