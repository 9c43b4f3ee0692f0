// Horizontal sums of several vectors at once, by transposing and adding: one at a time, a sum costs as much
// as the products before it.
#include <heed/kernels/cpu/simd/simd.h>

#if defined(HEED_KERNELS_CPU_HORIZONTAL_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_CPU_HORIZONTAL_SUMS_INL_H_
#undef HEED_KERNELS_CPU_HORIZONTAL_SUMS_INL_H_
#else
#define HEED_KERNELS_CPU_HORIZONTAL_SUMS_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

/// Vectors whose lanes are summed together: as many as a vector has lanes.
template <class D>
constexpr int64_t kHorizontalSums = hn::MaxLanes(D());

/// Lane i of each 16-byte block is the sum of v[i]'s lanes in that block, for a block of four floats.
template <class D>
HWY_INLINE Vec<D> block_sums(D d, const Vec<D>* v, float) {
  const hn::Repartition<uint64_t, D> d64;
  const auto v01 = hn::Add(hn::InterleaveLower(d, v[0], v[1]), hn::InterleaveUpper(d, v[0], v[1]));
  const auto v23 = hn::Add(hn::InterleaveLower(d, v[2], v[3]), hn::InterleaveUpper(d, v[2], v[3]));
  const auto a = hn::BitCast(d64, v01), b = hn::BitCast(d64, v23);
  return hn::Add(hn::BitCast(d, hn::InterleaveLower(d64, a, b)),
                 hn::BitCast(d, hn::InterleaveUpper(d64, a, b)));
}
template <class D>
HWY_INLINE Vec<D> block_sums(D d, const Vec<D>* v, double) {
  return hn::Add(hn::InterleaveLower(d, v[0], v[1]), hn::InterleaveUpper(d, v[0], v[1]));
}

/// The least number of vectors whose sums are worth making together.
template <class D>
constexpr int64_t kBlockSums = 16 / sizeof(hn::TFromD<D>);

/// Lane i is the sum of the lanes of v[i] for kBlockSums<D> vectors; the lanes behind repeat them.
template <class D>
HWY_INLINE Vec<D> few_horizontal_sums(D d, const Vec<D>* v) {
  constexpr int64_t kBlocks = kHorizontalSums<D> / kBlockSums<D>;
  auto sum = block_sums(d, v, hn::TFromD<D>());
  if constexpr (kBlocks == 4) sum = hn::Add(sum, hn::ConcatLowerUpper(d, sum, sum));
  if constexpr (kBlocks >= 2) sum = hn::Add(sum, hn::SwapAdjacentBlocks(sum));
  return sum;
}

/// Lane i is the sum of the lanes of v[i], for kHorizontalSums<D> vectors; the order is the same for each,
/// and that of few_horizontal_sums.
template <class D>
HWY_INLINE Vec<D> horizontal_sums(D d, const Vec<D>* v) {
  using A = hn::TFromD<D>;
  constexpr int64_t kBlock = 16 / sizeof(A), kBlocks = kHorizontalSums<D> / kBlock;
  const auto a = block_sums(d, v, A());
  if constexpr (kBlocks == 1) {
    return a;
  } else if constexpr (kBlocks == 2) {
    const auto b = block_sums(d, v + kBlock, A());
    return hn::Add(hn::ConcatLowerLower(d, b, a), hn::ConcatUpperUpper(d, b, a));
  } else {
    static_assert(kBlocks == 4);
    const auto b = block_sums(d, v + kBlock, A()), c = block_sums(d, v + 2 * kBlock, A()),
               e = block_sums(d, v + 3 * kBlock, A());
    const auto ac = hn::Add(hn::ConcatLowerLower(d, c, a), hn::ConcatUpperUpper(d, c, a));
    const auto be = hn::Add(hn::ConcatLowerLower(d, e, b), hn::ConcatUpperUpper(d, e, b));
    return hn::Add(hn::OddEvenBlocks(hn::SwapAdjacentBlocks(be), ac),
                   hn::OddEvenBlocks(be, hn::SwapAdjacentBlocks(ac)));
  }
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
