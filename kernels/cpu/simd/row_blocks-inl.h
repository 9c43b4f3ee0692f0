// Processes several short rows together, so that horizontal sums, square roots and divisions are vectorised
// across rows.
#if defined(HEED_KERNELS_CPU_ROW_BLOCKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_CPU_ROW_BLOCKS_INL_H_
#undef HEED_KERNELS_CPU_ROW_BLOCKS_INL_H_
#else
#define HEED_KERNELS_CPU_ROW_BLOCKS_INL_H_
#endif

#include <algorithm>

#include <heed/kernels/cpu/simd/columns-inl.h>
#include <heed/kernels/cpu/simd/horizontal_sums-inl.h>

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

/// Two sums that for_columns keeps apart, so that an addition need not wait for the one before.
template <class T>
struct Sum {
  using V = Vec<Tag<T>>;
  V part[2] = {hn::Zero(Tag<T>()), hn::Zero(Tag<T>())};

  template <int I>
  HWY_INLINE void add(V v) {
    part[I] = hn::Add(part[I], v);
  }
  template <int I>
  HWY_INLINE void add_product(V a, V b) {
    part[I] = hn::MulAdd(a, b, part[I]);
  }
  HWY_INLINE V lanes() const { return hn::Add(part[0], part[1]); }
};

/// Up to how many columns rows are short.
constexpr int64_t kShort = 256;

/// Rows whose statistics are computed together: of short rows as many as a vector has lanes; of up to
/// `middle` columns a few, which stay in the first-level cache.
template <class T>
HWY_INLINE int64_t rows_in_group(int64_t cols, int64_t middle = 0) {
  return cols <= kShort ? kHorizontalSums<Tag<T>> : cols <= middle ? kBlockSums<Tag<T>> : 1;
}

/// Rows row … row + rows - 1. Their statistics are in slot 0 or 1, since two groups are under way.
struct Group {
  int64_t row, rows, slot;
};

/// for each group of `size` rows in [begin, end) { begin; first_pass of its rows; find; last_pass of its
/// rows }
///
///   begin(group)                     what the first pass needs
///   first_pass(group, i, pipelined)  the sums of row group.row + i
///   find(group)                      what the last pass needs; false: take the first pass again. It may
///                                    take the last pass itself and leave the group no rows
///   last_pass(group, i)              a PipelinedPass
///
/// kPipelined: the last pass over a group runs during the first pass over the next.
template <bool kPipelined, class Steps>
HWY_INLINE void for_groups(int64_t begin, int64_t end, int64_t size, Steps& steps) {
  NoPipeline nothing;
  Group before{begin, 0, 1};
  for (int64_t row = begin; row < end; row += size) {
    Group group{row, std::min(size, end - row), 1 - before.slot};
    steps.begin(group);
    do {
      for (int64_t i = 0; i < before.rows; ++i) {
        auto last_pass = steps.last_pass(before, i);
        if (i < group.rows) steps.first_pass(group, i, last_pass);
        last_pass.rest();
      }
      for (int64_t i = before.rows; i < group.rows; ++i) steps.first_pass(group, i, nothing);
      before.rows = 0;
    } while (!steps.find(group));
    if constexpr (kPipelined) {
      before = group;
    } else {
      for (int64_t i = 0; i < group.rows; ++i) steps.last_pass(group, i).rest();
    }
  }
  for (int64_t i = 0; i < before.rows; ++i) steps.last_pass(before, i).rest();
}

/// Sums of the rows of a group, whose lanes are still to be added.
template <class T>
using GroupSums = Vec<Tag<T>>[kHorizontalSums<Tag<T>>];

/// Lane i is the total of row i.
template <class T>
HWY_INLINE Vec<Tag<T>> totals(GroupSums<T>& sums, int64_t rows, int64_t group) {
  const Tag<T> d;
  constexpr int64_t kFew = kBlockSums<Tag<T>>;
  if (group == 1) return hn::Set(d, reduce_sum(d, sums[0]));
  if (rows <= kFew) {
    for (int64_t i = 1; i < kFew; ++i)
      if (i >= rows) sums[i] = hn::Zero(d);
    return few_horizontal_sums(d, sums);
  }
  for (int64_t i = rows; i < group; ++i) sums[i] = hn::Zero(d);
  return horizontal_sums(d, sums);
}

/// One number for each row of a group.
template <class T>
struct PerRow {
  alignas(64) accumulator_t<T> value[kHorizontalSums<Tag<T>>];

  HWY_INLINE void set(Vec<Tag<T>> v) { hn::StoreU(v, Tag<T>(), value); }
  HWY_INLINE Vec<Tag<T>> operator[](int64_t row) const { return hn::Set(Tag<T>(), value[row]); }
};

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
