#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/kernels/cpu/dropout.cpp"

#include <algorithm>

#include <heed/core/base/threads/parallel_for.h>
#include <heed/kernels/cpu/dropout_simd.h>
#include <heed/kernels/cpu/simd/streaming-inl.h>
#include <heed/kernels/cpu/simd/typed_export.h>
#include <heed/kernels/cpu/tasks/grain.h>
#include <heed/kernels/dropout.h>

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

/// The elements from i on that fill one vector, or what is left of it. Bit j of `kept` is that of element i;
/// null where nothing is dropped.
template <class T, class Io>
HWY_INLINE void step(const kernels::DropoutForward<T>& args, int64_t i, const uint8_t* keep_mask, int64_t j,
                     Io io) {
  prefetch_ahead(args.x + i);
  auto v = io.load(args.x + i);
  if (keep_mask != nullptr) v = apply_dropout(Tag<T>(), v, keep_mask, j, args.dropout);
  if (args.residual != nullptr) v = hn::Add(io.load(args.residual + i), v);
  io.store(v, args.y + i);
}

template <class T, class Io>
HWY_INLINE void step(const kernels::DropoutBackward<T>& args, int64_t i, const uint8_t* keep_mask, int64_t j,
                     Io io) {
  prefetch_ahead(args.gy + i);
  auto v = io.load(args.gy + i);
  if (keep_mask != nullptr) v = apply_dropout(Tag<T>(), v, keep_mask, j, args.dropout);
  if (args.accumulate) v = hn::Add(io.load(args.gx + i), v);
  io.store(v, args.gx + i);
}

template <class T>
HWY_INLINE bool streams_result(const kernels::DropoutForward<T>& args) {
  return args.y != args.x && args.y != args.residual && uses_nontemporal_stores(args.y, 1, args.count, 2);
}
template <class T>
HWY_INLINE bool streams_result(const kernels::DropoutBackward<T>& args) {
  return args.gx != args.gy && !args.accumulate && uses_nontemporal_stores(args.gx, 1, args.count, 2);
}

/// By value: no store can change what lies in registers.
template <class Io, template <class> class Args, class T>
HWY_INLINE void map_by(const Args<T> args, int64_t begin, int64_t end) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(Tag<T>()));
  const bool active = args.dropout.active();
  KeepMaskBuffer buffer;
  for (int64_t chunk = begin; chunk < end; chunk += kDropoutChunk) {
    const int64_t n = end - chunk < kDropoutChunk ? end - chunk : kDropoutChunk;
    if (active) fill_keep_mask(args.dropout, chunk, n, buffer.bits);
    const uint8_t* const keep_mask = active ? buffer.bits : nullptr;
    int64_t j = 0;
    for (; j + lanes <= n; j += lanes) step(args, chunk + j, keep_mask, j, Io());
    if (j < n) step(args, chunk + j, keep_mask, j, Partial<T>{n - j});
  }
}

template <template <class> class Args, class T>
void map(const Args<T>& args, int64_t begin, int64_t end) {
  if (!streams_result(args)) return map_by<Whole<T>>(args, begin, end);
  map_by<NonTemporal<T>>(args, begin, end);
  hwy::FlushStream();
}

template <class T>
void forward(const kernels::DropoutForward<T>& args, int64_t begin, int64_t end) {
  map(args, begin, end);
}
HEED_TYPED(forward, kernels::DropoutForward)

template <class T>
void backward(const kernels::DropoutBackward<T>& args, int64_t begin, int64_t end) {
  map(args, begin, end);
}
HEED_TYPED(backward, kernels::DropoutBackward)

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::cpu {
namespace {

HEED_EXPORT_TYPED(forward)
HEED_EXPORT_TYPED(backward)

}  // namespace

template <class T>
void dropout_forward(const kernels::DropoutForward<T>& args) {
  const auto map = HEED_SIMD_OF(T, forward);
  parallel_for(args.count, elements_per_task(args.count),
               [&](int64_t begin, int64_t end) { map(args, begin, end); });
}

template <class T>
void dropout_backward(const kernels::DropoutBackward<T>& args) {
  const auto map = HEED_SIMD_OF(T, backward);
  parallel_for(args.count, elements_per_task(args.count),
               [&](int64_t begin, int64_t end) { map(args, begin, end); });
}

#define HEED_INSTANTIATE(T)                                            \
  template void dropout_forward<T>(const kernels::DropoutForward<T>&); \
  template void dropout_backward<T>(const kernels::DropoutBackward<T>&);
HEED_INSTANTIATE(float)
HEED_INSTANTIATE(bfloat16)
HEED_INSTANTIATE(double)
#undef HEED_INSTANTIATE

}  // namespace heed::cpu
#endif
