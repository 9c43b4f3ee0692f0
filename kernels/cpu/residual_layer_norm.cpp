#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/kernels/cpu/residual_layer_norm.cpp"

#include <heed/core/base/parallel_for.h>
#include <heed/kernels/cpu/layer_norm_simd.h>
#include <heed/kernels/cpu/residual_simd.h>
#include <heed/kernels/cpu/simd/typed_export.h>
#include <heed/kernels/cpu/tasks/grain.h>
#include <heed/kernels/residual_layer_norm.h>

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

template <class T>
using ResidualLayerNormChunk = GradientChunk<kernels::ResidualLayerNormBackward<T>>;

/// Writes residual + dropout(x), also by non-temporal stores to `nontemporal` if it is not null, and sums it
/// up as it was stored.
template <class T>
struct AddColumns {
  const T *residual, *x;
  T *out, *nontemporal;
  const Dropout* dropout;
  const uint8_t* keep_mask;  // a bit a column; null where nothing is dropped
  PivotSums<T> sums;

  template <int I, class Io>
  HWY_INLINE void step(int64_t c, Io io) {
    prefetch_ahead(x + c);
    prefetch_ahead(residual + c);
    auto v = io.load(x + c);
    if (keep_mask != nullptr) v = apply_dropout(Tag<T>(), v, keep_mask, c, *dropout);
    v = hn::Add(io.load(residual + c), v);
    io.store(v, out + c);
    if (nontemporal != nullptr) NonTemporal<T>().store(v, nontemporal + c);
    if constexpr (std::is_same_v<T, bfloat16>) v = io.load(out + c);
    sums.template add<I>(v);
  }
};

/// The steps but for the first pass, which finds the sums of a row's elements and of their sizes. `kept_sums`
/// holds the rows on their way where they cannot be read again from args.sum, which non-temporal stores
/// write; else null.
template <class Io, class T>
struct NormalizeSteps {
  static constexpr bool kNonTemporal = std::is_same_v<Io, NonTemporal<T>>;
  const kernels::ResidualLayerNormForward<T>& args;
  const int64_t size;
  T* const kept_sums;
  GroupStatistics<T> statistics[2];
  GroupSums<T> sum, other;

  NormalizeSteps(const kernels::ResidualLayerNormForward<T>& forward, T* sums)
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
      const kernels::ResidualLayerNormForward<T> forward = args;
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

  AddSteps(const kernels::ResidualLayerNormForward<T>& forward, T* sums, uint8_t* bits)
      : NormalizeSteps<Io, T>(forward, sums), drawn(bits) {}

  template <class Pipelined>
  HWY_INLINE void first_pass(const Group& group, int64_t i, Pipelined& pipelined) {
    const auto& args = this->args;
    const int64_t row = group.row + i, first = row * args.cols;
    uint8_t* const keep_mask =
        args.keep_mask != nullptr ? args.keep_mask + row * keep_mask_bytes(args.cols) : drawn;
    AddColumns<T> columns{args.residual + first,
                          args.x + first,
                          this->sum_to(group, i),
                          this->kNonTemporal ? args.sum + first : nullptr,
                          &args.dropout,
                          keep_mask,
                          {}};
    for (int64_t c = 0; c < args.cols; c += kChunk) {
      const int64_t n = std::min(kChunk, args.cols - c);
      if (args.dropout.active()) fill_keep_mask(args.dropout, first + c, n, keep_mask + c / 8);
      for_columns<T>(c, c + n, columns, pipelined);
    }
    this->sum[i] = columns.sums.sum.lanes();
    this->other[i] = columns.sums.magnitude.lanes();
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

/// Takes its arguments by value: those of a reference would be read again after each byte of `kept`.
template <class Io, class T>
HWY_INLINE void add_rows(const kernels::ResidualLayerNormForward<T> args, int64_t begin, int64_t end) {
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
void forward(const kernels::ResidualLayerNormForward<T>& args, int64_t begin, int64_t end) {
  if (args.residual == nullptr) {
    AgainSteps<T> steps(args, nullptr);
    for_groups<false>(begin, end, steps.size, steps);
  } else if (uses_nontemporal_stores(args.y, args.rows, args.cols, 4) &&
             uses_nontemporal_stores(args.sum, args.rows, args.cols, 4)) {
    add_rows<NonTemporal<T>>(args, begin, end);
  } else {
    add_rows<Whole<T>>(args, begin, end);
  }
}
HEED_TYPED(forward, kernels::ResidualLayerNormForward)

template <class T>
void backward(const ResidualLayerNormChunk<T>& chunk, int64_t begin, int64_t end) {
  const kernels::ResidualLayerNormBackward<T>& args = chunk.args;
  const bool draws = args.dropout.active() && args.gx != nullptr && args.keep_mask == nullptr;
  Workspace<uint8_t> drawn(draws ? keep_mask_bytes(args.cols) : 0);
  const auto emit_row = [&](int64_t row) {
    const int64_t first = row * args.cols;
    for (int64_t c = 0; draws && c < args.cols; c += kChunk)
      fill_keep_mask(args.dropout, first + c, std::min(kChunk, args.cols - c), drawn.data() + c / 8);
    return StoreGradients<T>{
        shifted(args.gsum, first),
        shifted(args.gresidual, first),
        shifted(args.gx, first),
        args.accumulate_residual,
        args.accumulate_x,
        &args.dropout,
        args.keep_mask != nullptr ? args.keep_mask + row * keep_mask_bytes(args.cols) : drawn.data()};
  };
  if (may_stream(args.gx, args.accumulate_x, args) &&
      may_stream(args.gresidual, args.accumulate_residual, args))
    backward_rows<NonTemporal<T>>(args, args.sum, begin, end, chunk.gweight, chunk.gbias, emit_row);
  else
    backward_rows<Whole<T>>(args, args.sum, begin, end, chunk.gweight, chunk.gbias, emit_row);
}
HEED_TYPED(backward, ResidualLayerNormChunk)

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::cpu {
namespace {

HEED_EXPORT_TYPED(forward)
HEED_EXPORT_TYPED(backward)

}  // namespace

int64_t residual_layer_norm_keep_mask_size(int64_t rows, int64_t cols, const Dropout& dropout) {
  return dropout.active() ? rows * keep_mask_bytes(cols) : 0;
}

template <class T>
void residual_layer_norm_forward(const kernels::ResidualLayerNormForward<T>& args) {
  const auto rows = HEED_SIMD_OF(T, forward);
  parallel_for(args.rows, rows_per_task(args.rows, args.cols),
               [&](int64_t begin, int64_t end) { rows(args, begin, end); });
}

template <class T>
void residual_layer_norm_backward(const kernels::ResidualLayerNormBackward<T>& args) {
  for_row_chunks<T>(args, HEED_SIMD_OF(T, backward));
}

#define HEED_INSTANTIATE(T)                                                                  \
  template void residual_layer_norm_forward<T>(const kernels::ResidualLayerNormForward<T>&); \
  template void residual_layer_norm_backward<T>(const kernels::ResidualLayerNormBackward<T>&);
HEED_INSTANTIATE(float)
HEED_INSTANTIATE(bfloat16)
HEED_INSTANTIATE(double)
#undef HEED_INSTANTIATE

}  // namespace heed::cpu
#endif
