// What softmax and cross-entropy share: passes over one row of logits.
#if defined(HEED_KERNELS_CPU_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_CPU_SOFTMAX_INL_H_
#undef HEED_KERNELS_CPU_SOFTMAX_INL_H_
#else
#define HEED_KERNELS_CPU_SOFTMAX_INL_H_
#endif

#include <algorithm>
#include <limits>

#include <heed/kernels/cpu/simd/columns-inl.h>
#include <heed/kernels/cpu/simd/math-inl.h>
#include <heed/kernels/cpu/simd/streaming-inl.h>
#include <heed/kernels/cpu/simd/tail-inl.h>

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

/// Rows that are on their way at the same time, a power of two: whoever keeps something of row r keeps it in
/// place r % rows_at_once().
constexpr int64_t kMaxRowsAtOnce = 4;
constexpr int64_t kNarrow = 256;
inline int64_t rows_at_once(int64_t cols) { return cols <= kNarrow ? kMaxRowsAtOnce : 2; }

/// for each row in [begin, end) { find_max; find_sums; write }
///
/// Software-pipelined, so that no step waits for the result of the one before. Narrow rows: each step works
/// on another row. Wide rows, which would not stay in the first-level cache: only the maximum is one row
/// ahead. Non-temporal results: the last step runs during the sums of the next row, so that memory is read
/// and written at the same time.
template <class Steps>
HWY_INLINE void for_rows_in_steps(int64_t begin, int64_t end, int64_t cols, bool nontemporal, Steps& steps) {
  NoPipeline nothing;
  if (cols <= kNarrow) {
    for (int64_t r = begin; r < end + 2; ++r) {
      if (r < end) steps.find_maximum(r);
      if (begin <= r - 1 && r - 1 < end) steps.find_sums(r - 1, nothing);
      if (begin <= r - 2) steps.last_pass(r - 2).rest();
    }
  } else if (nontemporal) {
    for (int64_t r = begin; r < end; ++r) {
      steps.find_maximum(r);
      if (r == begin) {
        steps.find_sums(r, nothing);
      } else {
        auto last_pass = steps.last_pass(r - 1);
        steps.find_sums(r, last_pass);
        last_pass.rest();
      }
    }
    if (begin < end) steps.last_pass(end - 1).rest();
  } else {
    for (int64_t r = begin; r < end; ++r) {
      if (r == begin) steps.find_maximum(r);
      steps.find_sums(r, nothing);
      if (r + 1 < end) steps.find_maximum(r + 1);
      steps.last_pass(r).rest();
    }
  }
}

/// The largest of n elements, -inf if there are none; NaN may be passed over.
template <class T>
HWY_INLINE accumulator_t<T> row_max(const T* x, int64_t n) {
  const Tag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto lowest = hn::Set(d, -std::numeric_limits<accumulator_t<T>>::infinity());
  constexpr int kApart = 4;  // so that few wait for the one before
  Vec<Tag<T>> most[kApart] = {lowest, lowest, lowest, lowest};
  int64_t i = 0;
  for (; i + kApart * lanes <= n; i += kApart * lanes) {
    for (int k = 0; k < kApart; ++k) most[k] = hn::Max(most[k], load(d, x + i + k * lanes));
  }
  for (; i + lanes <= n; i += lanes) most[0] = hn::Max(most[0], load(d, x + i));
  if (i < n) {
    const auto rest =
        hn::IfThenElse(hn::FirstN(d, static_cast<size_t>(n - i)), load_n(d, x + i, n - i), lowest);
    most[1] = hn::Max(most[1], rest);
  }
  return reduce_max(d, hn::Max(hn::Max(most[0], most[1]), hn::Max(most[2], most[3])));
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

template <class A>
struct RowSums {
  A exponentials;  // Σ exp(x - shift)
  A shifted;       // Σ (x - shift)
};

/// The sum of K vectors, K a power of two.
template <int K, class D>
HWY_INLINE Vec<D> sum_of(D d, const Vec<D>* v) {
  if constexpr (K == 1) {
    return v[0];
  } else {
    return hn::Add(sum_of<K / 2>(d, v), sum_of<K / 2>(d, v + K / 2));
  }
}

/// K vectors of a row from x on, whose sums go to each lane of `sums`.
template <int K, bool kStore, bool kShifted, class T>
HWY_INLINE void add_exponentials(const T* x, accumulator_t<T>* out, Vec<Tag<T>> shift,
                                 RowSums<Vec<Tag<T>>>& sums) {
  const Tag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  Vec<Tag<T>> t[K], e[K];
  for (int k = 0; k < K; ++k) e[k] = t[k] = hn::Sub(load(d, x + k * lanes), shift);
  exp_fast(d, e);
  if constexpr (kStore) {
    for (int k = 0; k < K; ++k) hn::StoreU(e[k], d, out + k * lanes);
  }
  sums.exponentials = hn::Add(sums.exponentials, sum_of<K>(d, e));
  if constexpr (kShifted) sums.shifted = hn::Add(sums.shifted, sum_of<K>(d, t));
}

/// Where the exponentials of a row go: nowhere, to a place of their own, or where its results are to be.
enum class Exponentials { dropped, kept, result };

/// For results T stored by Io: bfloat16 cannot hold exponentials, and what non-temporal stores wrote should
/// not be read again.
template <class Io, class T>
constexpr Exponentials kPlace =
    std::is_same_v<Io, Whole<accumulator_t<T>>> ? Exponentials::result : Exponentials::kept;

/// RowSums of a block short enough for float. Prefetches x kAsked bytes ahead unless that is 0, and the lines
/// of `out`, which a plain store reads first.
template <Exponentials kTo, bool kShifted, int64_t kAsked, class T, class Pipelined,
          class A = accumulator_t<T>>
HWY_INLINE RowSums<A> block_sums(const T* x, A* out, int64_t n, A shift, Pipelined& pipelined) {
  constexpr int kTogether = kScalesAtOnce ? 8 : 4;
  constexpr bool kStore = kTo != Exponentials::dropped;
  const Tag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto shift_v = hn::Set(d, shift);
  RowSums<Vec<Tag<T>>> sums{hn::Zero(d), hn::Zero(d)};
  int64_t i = 0;
  for (; i + kTogether * lanes <= n; i += kTogether * lanes) {
    add_exponentials<kTogether, kStore, kShifted>(x + i, kStore ? out + i : nullptr, shift_v, sums);
    for (int k = 0; k < kTogether; ++k) {
      if constexpr (kAsked > 0) {
        prefetch_ahead(x + i + k * lanes, kAsked);
        if constexpr (kTo == Exponentials::result) prefetch_ahead(out + i + k * lanes);
      }
      pipelined.step();
    }
  }
  for (; i + lanes <= n; i += lanes)
    add_exponentials<1, kStore, kShifted>(x + i, kStore ? out + i : nullptr, shift_v, sums);
  if (i < n) {
    const auto t = hn::Sub(load_n(d, x + i, n - i), shift_v);
    const auto e = exp_fast(d, t);
    if constexpr (kStore) store_n(e, d, out + i, n - i);
    const auto valid = hn::FirstN(d, static_cast<size_t>(n - i));
    sums.exponentials = hn::Add(sums.exponentials, hn::IfThenElseZero(valid, e));
    if constexpr (kShifted) sums.shifted = hn::Add(sums.shifted, hn::IfThenElseZero(valid, t));
  }
  return {reduce_sum(d, sums.exponentials), kShifted ? reduce_sum(d, sums.shifted) : A(0)};
}

/// One pass of RowSums; writes exp(x - shift) to `out` unless they are dropped, and finds Σ (x - shift) if
/// kShifted. `pipelined` is the last pass over another row.
template <Exponentials kTo, bool kShifted, int64_t kAsked = kAhead, class T, class Pipelined,
          class A = accumulator_t<T>>
HWY_INLINE RowSums<A> row_sums(const T* x, A* out, int64_t n, A shift, Pipelined& pipelined) {
  if (n <= kNarrow) return block_sums<kTo, kShifted, 0>(x, out, n, shift, pipelined);
  constexpr int64_t kBlock = 2048;
  RowSums<double> sums{0, 0};
  for (int64_t i = 0; i < n; i += kBlock) {
    const auto block = block_sums<kTo, kShifted, kAsked>(
        x + i, kTo == Exponentials::dropped ? nullptr : out + i, std::min(kBlock, n - i), shift, pipelined);
    sums.exponentials += static_cast<double>(block.exponentials);
    sums.shifted += static_cast<double>(block.shifted);
  }
  return {static_cast<A>(sums.exponentials), static_cast<A>(sums.shifted)};
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
