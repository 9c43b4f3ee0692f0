// Chooses the rows of a norm by its kind and by whether it adds to a residual.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/kernels/cpu/norm/norm.cpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include <heed/core/base/threads/parallel_for.h>
#include <heed/kernels/cpu/norm/layer_norm_alone.h>
#include <heed/kernels/cpu/norm/parameter_sums.h>
#include <heed/kernels/cpu/simd/simd.h>  // includes this file once per instruction set
#include <heed/kernels/cpu/simd/typed_export.h>
#include <heed/kernels/cpu/tasks/grain.h>
#include <heed/kernels/cpu/tasks/workspace.h>
#include <heed/kernels/norm.h>
// The -inl headers follow simd.h.
#include <heed/kernels/cpu/norm/layer_norm_forward-inl.h>
#include <heed/kernels/cpu/norm/residual_layer_norm-inl.h>
#include <heed/kernels/cpu/norm/rms_norm-inl.h>

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

template <class T>
using NormChunk = GradientChunk<kernels::NormBackward<T>>;

template <class Io, class T>
void forward_rows(const kernels::NormForward<T>& args, int64_t begin, int64_t end) {
  if (args.kind == NormKind::rms)
    rms_norm_rows<Io>(args, begin, end);
  else if (args.residual != nullptr)
    add_rows<Io>(args, begin, end);
  else
    layer_norm_rows<Io>(args, begin, end);
}

template <class T>
void forward(const kernels::NormForward<T>& args, int64_t begin, int64_t end) {
  if (args.again && args.kind == NormKind::layer) return normalize_again(args, begin, end);
  const int streams = args.residual == nullptr ? 2 : 4;
  if (uses_nontemporal_stores(args.y, args.rows, args.cols, streams) &&
      (args.residual == nullptr || uses_nontemporal_stores(args.sum, args.rows, args.cols, streams)))
    forward_rows<NonTemporal<T>>(args, begin, end);
  else
    forward_rows<Whole<T>>(args, begin, end);
}
HEED_TYPED(forward, kernels::NormForward)

template <class Io, bool kResidual, class T>
void backward_rows(const NormChunk<T>& chunk, int64_t begin, int64_t end) {
  if (chunk.args.kind == NormKind::rms)
    rms_norm_backward_rows<Io, kResidual>(chunk, begin, end);
  else
    layer_norm_backward_rows<Io, kResidual>(chunk, begin, end);
}

template <class T>
void backward(const NormChunk<T>& chunk, int64_t begin, int64_t end) {
  const kernels::NormBackward<T>& args = chunk.args;
  const bool streams = may_stream(args.gx, args.accumulate_x, args) &&
                       may_stream(args.gresidual, args.accumulate_residual, args);
  if (args.residual)
    streams ? backward_rows<NonTemporal<T>, true>(chunk, begin, end)
            : backward_rows<Whole<T>, true>(chunk, begin, end);
  else
    streams ? backward_rows<NonTemporal<T>, false>(chunk, begin, end)
            : backward_rows<Whole<T>, false>(chunk, begin, end);
}
HEED_TYPED(backward, NormChunk)

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::cpu {
namespace {

HEED_EXPORT_TYPED(forward)
HEED_EXPORT_TYPED(backward)

}  // namespace

int64_t norm_keep_mask_size(int64_t rows, int64_t cols, const Dropout& dropout) {
  return dropout.active() ? rows * keep_mask_bytes(cols) : 0;
}

template <class T>
void norm_forward(const kernels::NormForward<T>& args) {
  const auto rows = HEED_SIMD_OF(T, forward);
  parallel_for(args.rows, rows_per_task(args.rows, args.cols),
               [&](int64_t begin, int64_t end) { rows(args, begin, end); });
}

template <class T>
void norm_backward(const kernels::NormBackward<T>& args) {
  for_row_chunks<T>(args, HEED_SIMD_OF(T, backward));
}

#define HEED_INSTANTIATE(T)                                      \
  template void norm_forward<T>(const kernels::NormForward<T>&); \
  template void norm_backward<T>(const kernels::NormBackward<T>&);
HEED_INSTANTIATE(float)
HEED_INSTANTIATE(bfloat16)
HEED_INSTANTIATE(double)
#undef HEED_INSTANTIATE

}  // namespace heed::cpu
#endif
