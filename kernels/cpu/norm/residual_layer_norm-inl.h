// The rows of a forward of layer norm with a residual; follows simd.h.
#if defined(HEED_KERNELS_CPU_NORM_RESIDUAL_LAYER_NORM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_CPU_NORM_RESIDUAL_LAYER_NORM_INL_H_
#undef HEED_KERNELS_CPU_NORM_RESIDUAL_LAYER_NORM_INL_H_
#else
#define HEED_KERNELS_CPU_NORM_RESIDUAL_LAYER_NORM_INL_H_
#endif

#include <heed/kernels/cpu/norm/layer_norm-inl.h>
#include <heed/kernels/cpu/norm/residual-inl.h>

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

/// The steps but for the first pass, which finds the sums of a row's elements and of their sizes. `kept_sums`
/// holds the rows on their way where they cannot be read again from args.sum, which non-temporal stores
/// write; else null.
template <class Io, class T>
struct NormalizeSteps {
  static constexpr bool kNonTemporal = std::is_same_v<Io, NonTemporal<T>>;
  const kernels::NormForward<T>& args;
  const int64_t size;
  T* const kept_sums;
  GroupStatistics<T> statistics[2];
  GroupSums<T> sum, other;

  NormalizeSteps(const kernels::NormForward<T>& forward, T* sums)
      : args(forward), size(rows_in_group<T>(args.cols)), kept_sums(sums) {}

  HWY_INLINE const T* x(const Group& group, int64_t i) const {
    if (args.residual == nullptr) return args.x + (group.row + i) * args.cols;
    return sum_to(group, i);
  }
  HWY_INLINE T* sum_to(const Group& group, int64_t i) const {
    if (kNonTemporal) return kept_sums + (group.slot * size + i) * args.cols;
    return args.sum + (group.row + i) * args.cols;
  }

  HWY_INLINE void begin(const Group&) {}
  HWY_INLINE bool find(Group& group) {
    GroupStatistics<T>& out = statistics[group.slot];
    auto pivot = pivots_from<T>(sum, other, group.rows, size, args.cols);
    out.pivot.set(pivot);
    for (int64_t i = 0; i < group.rows; ++i) {
      Deviations<false, T> columns{x(group, i), nullptr, out.pivot[i], {}, {}};
      for_columns<T>(0, args.cols, columns);
      sum[i] = columns.sum.lanes();
      other[i] = columns.squares.lanes();
    }
    const bool sound = statistics_from<T>(sum, other, group.rows, size, args.cols, args.eps, pivot, out);
    out.store(args.mean, args.rstd, group.row, group.rows);
    if (HWY_UNLIKELY(!sound)) {
      // With copies: what others know the address of does not stay in registers.
      const kernels::NormForward<T> forward = args;
      NormalizeSteps steps(forward, kept_sums);
      steps.statistics[group.slot] = out;
      steps.take_alone(group);
      group.rows = 0;
    }
    return true;
  }
  HWY_NOINLINE void take_alone(const Group group) const {
    for (int64_t i = 0; i < group.rows; ++i) {
      if (statistics[group.slot].overflowed(i))
        normalize_alone(args, group.row + i, x(group, i));
      else
        last_pass(group, i).rest();
    }
  }
  HWY_INLINE auto last_pass(const Group& group, int64_t i) const {
    const T* const from = x(group, i);
    constexpr int64_t ahead = kAhead / static_cast<int64_t>(sizeof(T));
    return normalize_row<!kNonTemporal, Io>(from, from + ahead, args.weight, args.bias,
                                            args.y + (group.row + i) * args.cols, args.cols,
                                            statistics[group.slot], i);
  }
};

/// With a residual.
template <class Io, class T>
struct AddSteps : NormalizeSteps<Io, T> {
  uint8_t* const drawn;  // the bits of a row that are not kept

  AddSteps(const kernels::NormForward<T>& forward, T* sums, uint8_t* bits)
      : NormalizeSteps<Io, T>(forward, sums), drawn(bits) {}

  template <class Pipelined>
  HWY_INLINE void first_pass(const Group& group, int64_t i, Pipelined& pipelined) {
    const auto& args = this->args;
    const int64_t row = group.row + i;
    const auto sums =
        add_row<PivotSums<T>>(args, row, this->sum_to(group, i),
                              this->kNonTemporal ? args.sum + row * args.cols : nullptr, drawn, pipelined);
    this->sum[i] = sums.sum.lanes();
    this->other[i] = sums.magnitude.lanes();
  }
};

/// Without one: normalises what AddSteps stored to the same bits.
template <class T>
struct AgainSteps : NormalizeSteps<Whole<T>, T> {
  using NormalizeSteps<Whole<T>, T>::NormalizeSteps;

  template <class Pipelined>
  HWY_INLINE void first_pass(const Group& group, int64_t i, Pipelined& pipelined) {
    PivotColumns<T> columns{this->x(group, i), {}};
    for_columns<T>(0, this->args.cols, columns, pipelined);
    this->sum[i] = columns.sums.sum.lanes();
    this->other[i] = columns.sums.magnitude.lanes();
  }
};

/// Takes its arguments by value: those of a reference would be read again after each byte of the mask.
template <class Io, class T>
HWY_NOINLINE void add_rows(const kernels::NormForward<T> args, int64_t begin, int64_t end) {
  using Steps = AddSteps<Io, T>;
  const int64_t size = rows_in_group<T>(args.cols);
  Workspace<T> sums(Steps::kNonTemporal ? 2 * size * args.cols : 0);
  const bool draws = args.dropout.active() && args.keep_mask == nullptr;
  Workspace<uint8_t> drawn(draws ? keep_mask_bytes(args.cols) : 0);
  Steps steps(args, sums.data(), drawn.data());
  for_groups<Steps::kNonTemporal>(begin, end, steps.size, steps);
  if (Steps::kNonTemporal) hwy::FlushStream();
}

template <class T>
HWY_NOINLINE void normalize_again(const kernels::NormForward<T>& args, int64_t begin, int64_t end) {
  AgainSteps<T> steps(args, nullptr);
  for_groups<false>(begin, end, steps.size, steps);
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
