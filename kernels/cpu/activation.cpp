#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/kernels/cpu/activation.cpp"

#include <algorithm>

#include <heed/core/base/threads/parallel_for.h>
#include <heed/kernels/activation.h>
#include <heed/kernels/cpu/activation_simd.h>
#include <heed/kernels/cpu/simd/streaming-inl.h>
#include <heed/kernels/cpu/tasks/grain.h>

// The functions that are compiled once per instruction set, with what each takes.
#define HEED_MAPS(X)                              \
  X(forward_f32, ActivationForward<float>)        \
  X(forward_bf16, ActivationForward<bfloat16>)    \
  X(forward_f64, ActivationForward<double>)       \
  X(backward_f32, ActivationBackward<float>)      \
  X(backward_bf16, ActivationBackward<bfloat16>)  \
  X(backward_f64, ActivationBackward<double>)     \
  X(gated_forward_f32, GatedForward<float>)       \
  X(gated_forward_bf16, GatedForward<bfloat16>)   \
  X(gated_forward_f64, GatedForward<double>)      \
  X(gated_backward_f32, GatedBackward<float>)     \
  X(gated_backward_bf16, GatedBackward<bfloat16>) \
  X(gated_backward_f64, GatedBackward<double>)

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

// step: the elements from i on that fill one vector, or what is left of it.

template <Activation A, class T, class Io>
HWY_INLINE void step(const kernels::ActivationForward<T>& args, int64_t i, Io io) {
  prefetch_ahead(args.x + i);
  io.store(activate<A>(Tag<T>(), io.load(args.x + i)), args.y + i);
}

template <Activation A, class T, class Io>
HWY_INLINE void step(const kernels::ActivationBackward<T>& args, int64_t i, Io io) {
  prefetch_ahead(args.x + i);
  prefetch_ahead(args.gy + i);
  auto gx = activate_backward<A>(Tag<T>(), io.load(args.x + i), io.load(args.gy + i));
  if (args.accumulate) gx = hn::Add(io.load(args.gx + i), gx);
  io.store(gx, args.gx + i);
}

template <Activation A, class T, class Io>
HWY_INLINE void step(const kernels::GatedForward<T>& args, int64_t i, Io io) {
  io.store(hn::Mul(activate<A>(Tag<T>(), io.load(args.gate + i)), io.load(args.up + i)), args.y + i);
}

template <Activation A, class T, class Io>
HWY_INLINE void step(const kernels::GatedBackward<T>& args, int64_t i, Io io) {
  const Tag<T> d;
  const auto gate = io.load(args.gate + i), gy = io.load(args.gy + i);
  if (args.ggate != nullptr) {
    auto g = activate_backward<A>(d, gate, hn::Mul(gy, io.load(args.up + i)));
    if (args.accumulate_gate) g = hn::Add(io.load(args.ggate + i), g);
    io.store(g, args.ggate + i);
  }
  if (args.gup != nullptr) {
    auto g = hn::Mul(activate<A>(d, gate), gy);
    if (args.accumulate_up) g = hn::Add(io.load(args.gup + i), g);
    io.store(g, args.gup + i);
  }
}

/// By value: no store can change what lies in registers.
template <Activation A, class Io, class Args>
HWY_INLINE void map_by(const Args args, int64_t begin, int64_t end, int64_t lanes) {
  int64_t i = begin;
  for (; i + 2 * lanes <= end; i += 2 * lanes) {
    step<A>(args, i, Io());
    step<A>(args, i + lanes, Io());
  }
  if (i + lanes <= end) step<A>(args, i, Io());
}

template <class T>
HWY_INLINE bool streams_result(const kernels::ActivationForward<T>& args) {
  return uses_nontemporal_stores(args.y, 1, args.count, 2);
}
template <class T>
HWY_INLINE bool streams_result(const kernels::ActivationBackward<T>& args) {
  return !args.accumulate && uses_nontemporal_stores(args.gx, 1, args.count, 3);
}
template <class Args>
HWY_INLINE bool streams_result(const Args&) {
  return false;
}

template <Activation A, template <class> class Args, class T>
void map(const Args<T>& args, int64_t begin, int64_t end) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(Tag<T>()));
  if (streams_result(args)) {  // whole vectors
    map_by<A, NonTemporal<T>>(args, begin, end, lanes);
    return hwy::FlushStream();
  }
  map_by<A, Whole<T>>(args, begin, end, lanes);
  const int64_t rest = (end - begin) % lanes;
  if (rest > 0) step<A>(args, end - rest, Partial<T>{rest});
}

template <template <class> class Args, class T>
void map_any(const Args<T>& args, int64_t begin, int64_t end) {
  with_activation(args.activation, [&]<Activation F>() HWY_ATTR { map<F>(args, begin, end); });
}

#define HEED_DEFINE(name, Args) \
  void name(const kernels::Args& args, int64_t begin, int64_t end) { map_any(args, begin, end); }
HEED_MAPS(HEED_DEFINE)
#undef HEED_DEFINE

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::cpu {
namespace {

#define HEED_EXPORT(name, Args) \
  HWY_EXPORT(name);             \
  auto map_for(const kernels::Args&) { return HEED_SIMD(name); }
HEED_MAPS(HEED_EXPORT)
#undef HEED_EXPORT

template <class Args>
void map_elements(const Args& args) {
  const auto map = map_for(args);
  parallel_for(args.count, elements_per_task(args.count),
               [&](int64_t begin, int64_t end) { map(args, begin, end); });
}

/// row_of(r) is args with its pointers moved to row r; where rows touch each other a task takes them as one.
template <class Args, class RowOf>
void map_rows(const Args& args, bool touching, const RowOf& row_of) {
  const auto map = map_for(args);
  parallel_for(args.rows, rows_per_task(args.rows, args.cols), [&](int64_t begin, int64_t end) {
    if (touching) return map(row_of(begin), 0, (end - begin) * args.cols);
    for (int64_t row = begin; row < end; ++row) map(row_of(row), 0, args.cols);
  });
}

}  // namespace

template <class T>
void activation_forward(const kernels::ActivationForward<T>& args) {
  map_elements(args);
}

template <class T>
void activation_backward(const kernels::ActivationBackward<T>& args) {
  map_elements(args);
}

template <class T>
void gated_forward(const kernels::GatedForward<T>& args) {
  map_rows(args, args.ld == args.cols, [&](int64_t row) {
    auto at = args;
    at.gate += row * args.ld;
    at.up += row * args.ld;
    at.y += row * args.cols;
    return at;
  });
}

template <class T>
void gated_backward(const kernels::GatedBackward<T>& args) {
  map_rows(args, args.ld == args.cols && args.gld == args.cols, [&](int64_t row) {
    auto at = args;
    at.gate += row * args.ld;
    at.up += row * args.ld;
    at.gy += row * args.cols;
    if (at.ggate != nullptr) at.ggate += row * args.gld;
    if (at.gup != nullptr) at.gup += row * args.gld;
    return at;
  });
}

#define HEED_INSTANTIATE(T)                                                    \
  template void activation_forward<T>(const kernels::ActivationForward<T>&);   \
  template void activation_backward<T>(const kernels::ActivationBackward<T>&); \
  template void gated_forward<T>(const kernels::GatedForward<T>&);             \
  template void gated_backward<T>(const kernels::GatedBackward<T>&);
HEED_INSTANTIATE(float)
HEED_INSTANTIATE(bfloat16)
HEED_INSTANTIATE(double)
#undef HEED_INSTANTIATE

}  // namespace heed::cpu
#endif
