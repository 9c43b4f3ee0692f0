// The rows of a forward of layer norm without a residual; follows simd.h.
#if defined(HEED_KERNELS_CPU_NORM_LAYER_NORM_FORWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_CPU_NORM_LAYER_NORM_FORWARD_INL_H_
#undef HEED_KERNELS_CPU_NORM_LAYER_NORM_FORWARD_INL_H_
#else
#define HEED_KERNELS_CPU_NORM_LAYER_NORM_FORWARD_INL_H_
#endif

#include <heed/kernels/cpu/norm/layer_norm-inl.h>

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

/// Columns from which the first pivot of a row is taken, and up to which rows are taken a few at a time.
constexpr int64_t kSampled = 32, kMiddle = 1024;

template <class Io, class T>
struct LayerNormSteps {
  static constexpr bool kNonTemporal = std::is_same_v<Io, NonTemporal<T>>;
  const kernels::NormForward<T>& args;
  const int64_t order;  // rows_in_group(), however many are taken at a time: the bits are the same
  const int64_t size, sampled;
  const int64_t ahead;  // of the prefetch, in elements
  GroupStatistics<T> statistics[2];
  GroupSums<T> sum, other;
  Vec<Tag<T>> pivot;
  bool looked_again = false;

  /// Wide rows with non-temporal results are processed one at a time, or prefetched lines would be evicted.
  explicit LayerNormSteps(const kernels::NormForward<T>& forward)
      : args(forward),
        order(rows_in_group<T>(args.cols, kMiddle)),
        size(kNonTemporal && args.cols > kShort ? 1 : order),
        sampled(std::min(args.cols, kSampled)),
        ahead(kAhead / static_cast<int64_t>(sizeof(T)) + (size - 1) * args.cols) {}

  HWY_INLINE const T* x(int64_t row) const { return args.x + row * args.cols; }
  HWY_INLINE T* y(int64_t row) const { return args.y + row * args.cols; }

  HWY_INLINE void begin(const Group& group) {
    for (int64_t i = 0; i < group.rows; ++i) {
      PivotColumns<T> columns{x(group.row + i), {}};
      for_columns<T>(0, sampled, columns);
      sum[i] = columns.sums.sum.lanes();
      other[i] = columns.sums.magnitude.lanes();
    }
    pivot = pivots_from<T>(sum, other, group.rows, order, sampled);
    statistics[group.slot].pivot.set(pivot);
  }
  /// Prefetches x ahead or, since a plain store reads its line first, the lines of the result.
  template <class Pipelined>
  HWY_INLINE void first_pass(const Group& group, int64_t i, Pipelined& pipelined) {
    const int64_t row = group.row + i;
    Deviations<true, T> columns{
        x(row), kNonTemporal ? x(row) + ahead : y(row), statistics[group.slot].pivot[i], {}, {}};
    for_columns<T>(0, args.cols, columns, pipelined);
    sum[i] = columns.sum.lanes();
    other[i] = columns.squares.lanes();
  }
  HWY_INLINE bool find(Group& group) {
    GroupStatistics<T>& out = statistics[group.slot];
    const bool sound = statistics_from<T>(sum, other, group.rows, order, args.cols, args.eps, pivot, out),
               found = sound || looked_again;
    looked_again = !found;
    if (found)
      out.store(args.mean, args.rstd, group.row, group.rows);
    else
      out.pivot.set(pivot);
    if (HWY_UNLIKELY(found && !sound)) {
      // With copies: what others know the address of does not stay in registers.
      const kernels::NormForward<T> forward = args;
      LayerNormSteps steps(forward);
      steps.statistics[group.slot] = out;
      steps.take_alone(group);
      group.rows = 0;
    }
    return found;
  }
  HWY_NOINLINE void take_alone(const Group group) const {
    for (int64_t i = 0; i < group.rows; ++i) {
      if (statistics[group.slot].overflowed(i))
        normalize_alone(args, group.row + i, x(group.row + i));
      else
        last_pass(group, i).rest();
    }
  }
  HWY_INLINE auto last_pass(const Group& group, int64_t i) const {
    const int64_t row = group.row + i;
    return normalize_row<!kNonTemporal, Io>(x(row), x(row) + ahead, args.weight, args.bias, y(row), args.cols,
                                            statistics[group.slot], i);
  }
};

/// By value: no store can change what lies in registers.
template <class Io, class T>
HWY_NOINLINE void layer_norm_rows(const kernels::NormForward<T> args, int64_t begin, int64_t end) {
  LayerNormSteps<Io, T> steps(args);
  for_groups<steps.kNonTemporal>(begin, end, steps.size, steps);
  if (steps.kNonTemporal) hwy::FlushStream();
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
