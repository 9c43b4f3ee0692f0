#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/kernels/cpu/optimizer.cpp"

#include <heed/kernels/optimizer.h>

#ifndef HEED_KERNELS_CPU_OPTIMIZER_ONCE_
#define HEED_KERNELS_CPU_OPTIMIZER_ONCE_
namespace heed::cpu {

/// The numbers of a step, computed in double and rounded to A, as PyTorch does.
template <class A>
struct StepFactors {
  A clip, shrink, decay;  // of the gradient; of the value, decoupled; of the value into the gradient
  bool has_decay;
  int64_t elements;  // of all parameters of the step
};

template <class A>
struct AdamFactors {
  StepFactors<A> common;
  A beta2, one_minus_beta1, one_minus_beta2, eps, step_size;
  bool lerp_from_gradient;  // which end m's interpolation is computed from
};

template <class A>
struct SgdFactors {
  StepFactors<A> common;
  A momentum, one_minus_dampening, step_size;
  bool first;
};

template <class A>
struct LionFactors {
  StepFactors<A> common;
  A beta1, one_minus_beta1, beta2, one_minus_beta2, step_size;
};

constexpr int64_t kNormBlock = 4096, kNormBlocksPerTask = 8, kNormAhead = 3072;
constexpr int64_t kStepBlock = 64, kStepBlocksPerTask = 256;  // tasks begin at whole lines

}  // namespace heed::cpu
#endif

#include <algorithm>
#include <cmath>

#include <heed/core/base/check.h>
#include <heed/core/base/threads/parallel_for.h>
#include <heed/kernels/cpu/simd/simd.h>
#include <heed/kernels/cpu/simd/streaming-inl.h>
#include <heed/kernels/cpu/tasks/gradient_blocks.h>
#include <heed/kernels/cpu/tasks/workspace.h>

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

// No fused multiply-add below: every instruction set gives the bits of the formulas as they are written.

/// The gradient as the step sees it: clipped, and with weight decay added to it.
template <class Io, class A>
HWY_INLINE Vec<Tag<A>> take_gradient(const A* gradient, const StepFactors<A>& f, Vec<Tag<A>> value, Io io) {
  const Tag<A> d;
  auto g = hn::Mul(io.load(gradient), hn::Set(d, f.clip));
  if (f.has_decay) g = hn::Add(g, hn::Mul(value, hn::Set(d, f.decay)));
  return g;
}

/// v as T holds it.
template <class T>
HWY_INLINE Vec<Tag<T>> rounded_to(Vec<Tag<T>> v) {
  const Tag<T> d;
  if constexpr (std::is_same_v<T, bfloat16>)
    return hn::BitCast(d,
                       hn::ShiftLeft<16>(hn::PromoteTo(hn::RebindToUnsigned<Tag<T>>(), to_bfloat16(d, v))));
  else
    return v;
}

template <class T, template <class> class Io, class... N>
HWY_INLINE Vec<Tag<T>> load_value(const kernels::StepSlice<T>& slice, const kernels::StepPart<T>& part,
                                  int64_t i, N... n) {
  if (slice.master == nullptr) return Io<T>{n...}.load(part.value + i);
  const auto master = Io<accumulator_t<T>>{n...}.load(slice.master + part.state + i);
  if (!slice.written) return master;
  const auto value = Io<T>{n...}.load(part.value + i);
  return hn::IfThenElse(hn::Eq(rounded_to<T>(master), value), master, value);
}

template <class T, template <class> class Io, class... N>
HWY_INLINE void store_value(const kernels::StepSlice<T>& slice, const kernels::StepPart<T>& part, int64_t i,
                            Vec<Tag<T>> value, N... n) {
  if (slice.master != nullptr) Io<accumulator_t<T>>{n...}.store(value, slice.master + part.state + i);
  Io<T>{n...}.store(value, part.value + i);
}

template <template <class> class Io, class T, class A, class... N>
HWY_INLINE void step(const kernels::AdamStep<T>& args, const AdamFactors<A>& f,
                     const kernels::StepPart<T>& part, int64_t i, N... n) {
  const Tag<A> d;
  const Io<A> io{n...};
  A* const at_m = args.m + part.state + i;
  A* const at_v = args.v + part.state + i;
  auto value = load_value<T, Io>(args.slice, part, i, n...);
  const auto g = take_gradient(part.g + i, f.common, value, io);
  value = hn::Mul(value, hn::Set(d, f.common.shrink));

  auto m = io.load(at_m), v = io.load(at_v);
  const auto difference = hn::Sub(g, m);
  m = f.lerp_from_gradient ? hn::Sub(g, hn::Mul(difference, hn::Set(d, A(1) - f.one_minus_beta1)))
                           : hn::Add(m, hn::Mul(hn::Set(d, f.one_minus_beta1), difference));
  v = hn::Add(hn::Mul(v, hn::Set(d, f.beta2)), hn::Mul(hn::Mul(hn::Set(d, f.one_minus_beta2), g), g));
  const auto denominator = hn::Add(hn::Sqrt(v), hn::Set(d, f.eps));
  value = hn::Add(value, hn::Div(hn::Mul(hn::Set(d, -f.step_size), m), denominator));

  io.store(m, at_m);
  io.store(v, at_v);
  store_value<T, Io>(args.slice, part, i, value, n...);
}

template <template <class> class Io, class T, class A, class... N>
HWY_INLINE void step(const kernels::SgdStep<T>& args, const SgdFactors<A>& f,
                     const kernels::StepPart<T>& part, int64_t i, N... n) {
  const Tag<A> d;
  const Io<A> io{n...};
  auto value = load_value<T, Io>(args.slice, part, i, n...);
  auto g = take_gradient(part.g + i, f.common, value, io);
  if (args.momentum_buffer != nullptr) {
    A* const buffer = args.momentum_buffer + part.state + i;
    const auto momentum = hn::Set(d, f.momentum);
    auto b = g;
    if (!f.first) {
      b = hn::Add(hn::Mul(io.load(buffer), momentum), hn::Mul(g, hn::Set(d, f.one_minus_dampening)));
    }
    io.store(b, buffer);
    g = args.nesterov ? hn::Add(g, hn::Mul(b, momentum)) : b;
  }
  value = hn::Add(value, hn::Mul(g, hn::Set(d, -f.step_size)));
  store_value<T, Io>(args.slice, part, i, value, n...);
}

template <template <class> class Io, class T, class A, class... N>
HWY_INLINE void step(const kernels::LionStep<T>& args, const LionFactors<A>& f,
                     const kernels::StepPart<T>& part, int64_t i, N... n) {
  const Tag<A> d;
  const Io<A> io{n...};
  A* const at_m = args.m + part.state + i;
  auto value = load_value<T, Io>(args.slice, part, i, n...);
  const auto g = take_gradient(part.g + i, f.common, value, io);
  const auto m = io.load(at_m);
  const auto direction = hn::Add(hn::Mul(m, hn::Set(d, f.beta1)), hn::Mul(g, hn::Set(d, f.one_minus_beta1)));
  // lr * sign(direction); a NaN stays one
  const auto move = hn::IfThenElse(hn::Or(hn::Gt(direction, hn::Zero(d)), hn::Lt(direction, hn::Zero(d))),
                                   hn::CopySign(hn::Set(d, f.step_size), direction), direction);
  value = hn::Sub(hn::Mul(value, hn::Set(d, f.common.shrink)), move);
  io.store(hn::Add(hn::Mul(m, hn::Set(d, f.beta2)), hn::Mul(g, hn::Set(d, f.one_minus_beta2))), at_m);
  store_value<T, Io>(args.slice, part, i, value, n...);
}

template <class T>
HWY_INLINE void prefetch_moments(const kernels::AdamStep<T>& args, int64_t i) {
  prefetch_ahead(args.m + i);
  prefetch_ahead(args.v + i);
}
template <class T>
HWY_INLINE void prefetch_moments(const kernels::SgdStep<T>& args, int64_t i) {
  if (args.momentum_buffer != nullptr) prefetch_ahead(args.momentum_buffer + i);
}
template <class T>
HWY_INLINE void prefetch_moments(const kernels::LionStep<T>& args, int64_t i) {
  prefetch_ahead(args.m + i);
}

/// Like Whole, but bf16, which a step with masters writes without reading it, is stored non-temporally.
template <class T>
struct WholeNonTemporal : std::conditional_t<std::is_same_v<T, bfloat16>, NonTemporal<T>, Whole<T>> {};

/// Elements [begin, end) of a parameter. What is passed by value the stores cannot change: it stays in
/// registers.
template <class Args, class Factors, class T>
HWY_INLINE void step_range(const Args args, const Factors factors, const kernels::StepPart<T> part,
                           int64_t begin, int64_t end) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(Tag<T>())),
                whole = begin + (end - begin) / lanes * lanes;
  // From a cache the next task's lines would be taken from the thread that has them.
  constexpr int64_t kArrays = std::is_same_v<T, bfloat16> ? 8 : 4;
  int64_t i = begin;
  if (uses_nontemporal_stores(part.value + begin, 1, factors.common.elements / 32 * 32, kArrays)) {
    for (; i < whole; i += lanes) {
      prefetch_ahead(part.g + i);
      if (args.slice.master != nullptr)
        prefetch_ahead(args.slice.master + part.state + i);
      else
        prefetch_ahead(part.value + i);
      prefetch_moments(args, part.state + i);
      step<WholeNonTemporal>(args, factors, part, i);
    }
    hwy::FlushStream();
  }
  for (; i < whole; i += lanes) step<Whole>(args, factors, part, i);
  if (i < end) step<Partial>(args, factors, part, i, end - i);
}

#define HEED_DEFINE_STEP(Kind, kind, T, name)                                                            \
  void kind##_##name(const kernels::Kind##Step<T>& args, const Kind##Factors<accumulator_t<T>>& factors, \
                     const kernels::StepPart<T>& part, int64_t begin, int64_t end) {                     \
    step_range(args, factors, part, begin, end);                                                         \
  }
#define HEED_DEFINE(T, name)            \
  HEED_DEFINE_STEP(Adam, adam, T, name) \
  HEED_DEFINE_STEP(Sgd, sgd, T, name)   \
  HEED_DEFINE_STEP(Lion, lion, T, name)
HEED_DEFINE(float, f32)
HEED_DEFINE(bfloat16, bf16)
HEED_DEFINE(double, f64)
#undef HEED_DEFINE
#undef HEED_DEFINE_STEP

/// As many doubles from memory as D has lanes; zeros from `n` on.
template <class D, class A>
HWY_INLINE Vec<D> load_doubles(D d, const A* g, int64_t n) {
  const hn::Rebind<A, D> narrow;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  if (n <= 0) return hn::Zero(d);
  const auto v = n < lanes ? load_n(narrow, g, n) : load(narrow, g);
  if constexpr (std::is_same_v<A, double>)
    return v;
  else
    return hn::PromoteTo(d, v);
}

/// 32 running sums whatever the vector's length, so that every instruction set adds in the same order.
template <class A>
double sum_squares(const A* g, int64_t count) {
  const hn::ScalableTag<double> d;
  constexpr int64_t kSums = 32, kLanes = hn::MaxLanes(d);
  Vec<decltype(d)> sums[kSums / kLanes];
  for (auto& sum : sums) sum = hn::Zero(d);
  const auto add = [&](int64_t i, int64_t n) HWY_ATTR {
    for (int64_t k = 0; k < kSums / kLanes; ++k) {
      const auto v = load_doubles(d, g + i + k * kLanes, n - k * kLanes);
      // The square of a float is exact in double: fused or not, the sum has the same bits.
      sums[k] = std::is_same_v<A, float> ? hn::MulAdd(v, v, sums[k]) : hn::Add(sums[k], hn::Mul(v, v));
    }
  };
  int64_t i = 0;
  for (; i + kSums <= count; i += kSums) {
    prefetch_ahead(g + i, kNormAhead);
    prefetch_ahead(g + i + kSums / 2, kNormAhead);
    add(i, kSums);
  }
  if (i < count) add(i, count - i);
  alignas(64) double lanes[kSums];
  for (int64_t k = 0; k < kSums / kLanes; ++k) hn::Store(sums[k], d, lanes + k * kLanes);
  double total = 0;
  for (double lane : lanes) total += lane;
  return total;
}

double sum_squares_f32(const float* g, int64_t count) { return sum_squares(g, count); }
double sum_squares_f64(const double* g, int64_t count) { return sum_squares(g, count); }

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::cpu {
namespace {

#define HEED_EXPORT(T, name)                                                    \
  HWY_EXPORT(adam_##name);                                                      \
  HWY_EXPORT(sgd_##name);                                                       \
  HWY_EXPORT(lion_##name);                                                      \
  auto step_for(const kernels::AdamStep<T>&) { return HEED_SIMD(adam_##name); } \
  auto step_for(const kernels::SgdStep<T>&) { return HEED_SIMD(sgd_##name); }   \
  auto step_for(const kernels::LionStep<T>&) { return HEED_SIMD(lion_##name); }
HEED_EXPORT(float, f32)
HEED_EXPORT(bfloat16, bf16)
HEED_EXPORT(double, f64)
#undef HEED_EXPORT

HWY_EXPORT(sum_squares_f32);
HWY_EXPORT(sum_squares_f64);
auto sum_squares_for(float) { return HEED_SIMD(sum_squares_f32); }
auto sum_squares_for(double) { return HEED_SIMD(sum_squares_f64); }

bool is_skipped(const double* norm) { return norm != nullptr && !std::isfinite(*norm); }

template <class T>
double rate_of(const kernels::StepSlice<T>& slice) {
  return *slice.lr * slice.lr_factor;
}

template <class T, class A = accumulator_t<T>>
StepFactors<A> step_factors(const kernels::StepSlice<T>& slice, bool decoupled) {
  double clip = 1;
  if (slice.gradient_norm != nullptr && slice.clip > 0) {
    clip = slice.clip / (*slice.gradient_norm + 1e-6);
    if (clip > 1) clip = 1;
  }
  return {A(clip), A(decoupled ? 1 - rate_of(slice) * slice.weight_decay : 1), A(slice.weight_decay),
          !decoupled && slice.weight_decay != 0, slice.count()};
}

template <class T>
AdamFactors<accumulator_t<T>> factors_of(const kernels::AdamStep<T>& args, int64_t step) {
  using A = accumulator_t<T>;
  const double n = static_cast<double>(step);
  const double correction1 = 1 - std::pow(args.beta1, n), root = std::sqrt(1 - std::pow(args.beta2, n));
  return {step_factors(args.slice, args.decoupled),
          A(args.beta2),
          A(1 - args.beta1),
          A(1 - args.beta2),
          A(args.eps * root),
          A(rate_of(args.slice) * root / correction1),
          1 - args.beta1 >= 0.5};
}

template <class T>
SgdFactors<accumulator_t<T>> factors_of(const kernels::SgdStep<T>& args, int64_t step) {
  using A = accumulator_t<T>;
  return {step_factors(args.slice, false), A(args.momentum), A(1 - args.dampening), A(rate_of(args.slice)),
          step == 1};
}

template <class T>
LionFactors<accumulator_t<T>> factors_of(const kernels::LionStep<T>& args, int64_t) {
  using A = accumulator_t<T>;
  return {step_factors(args.slice, true), A(args.beta1), A(1 - args.beta1), A(args.beta2), A(1 - args.beta2),
          A(rate_of(args.slice))};
}

template <class Args>
void step_all(const Args& args) {
  if (is_skipped(args.slice.gradient_norm) || args.slice.parts.empty()) return;
  for (const auto& part : args.slice.parts)
    HEED_ASSERT(args.slice.steps[part.index] >= 1, "optimizer: step is ", args.slice.steps[part.index],
                ", counted from 1");
  const auto step = step_for(args);
  const int64_t usual = args.slice.steps[args.slice.parts.front().index];
  const auto usual_factors = factors_of(args, usual);
  const GradientBlocks blocks(args.slice.parts, kStepBlock);
  parallel_for(blocks.count(), kStepBlocksPerTask, [&](int64_t begin, int64_t end) {
    blocks.for_each_part(begin, end, [&](const auto& part, int64_t, int64_t first, int64_t last) {
      const int64_t number = args.slice.steps[part.index];
      step(args, number == usual ? usual_factors : factors_of(args, number), part, first, last);
    });
  });
}

}  // namespace

template <class A>
void gradient_norm(const kernels::GradientNorm<A>& args) {
  const auto sum_squares = sum_squares_for(A());
  const GradientBlocks blocks(args.gradients, kNormBlock);
  Workspace<double> sums(blocks.count());
  parallel_for(blocks.count(), kNormBlocksPerTask, [&](int64_t begin, int64_t end) {
    blocks.for_each_part(begin, end, [&](const auto& part, int64_t block, int64_t first, int64_t last) {
      for (; first < last; first += kNormBlock)
        sums.data()[block++] = sum_squares(part.g + first, std::min(kNormBlock, last - first));
    });
  });
  double total = 0;
  for (int64_t block = 0; block < blocks.count(); ++block) total += sums.data()[block];
  *args.norm = std::sqrt(total);
}

void set_lr(const kernels::SetLr& args) { *args.lr = args.value; }

void advance_steps(const kernels::AdvanceSteps& args) {
  if (is_skipped(args.gradient_norm)) return;
  ++*args.step;
  for (const int64_t i : args.stepped) ++args.steps[i];
}

template <class T>
void adam_step(const kernels::AdamStep<T>& args) {
  step_all(args);
}

template <class T>
void sgd_step(const kernels::SgdStep<T>& args) {
  step_all(args);
}

template <class T>
void lion_step(const kernels::LionStep<T>& args) {
  step_all(args);
}

template void gradient_norm<float>(const kernels::GradientNorm<float>&);
template void gradient_norm<double>(const kernels::GradientNorm<double>&);
#define HEED_INSTANTIATE(T)                                \
  template void adam_step<T>(const kernels::AdamStep<T>&); \
  template void sgd_step<T>(const kernels::SgdStep<T>&);   \
  template void lion_step<T>(const kernels::LionStep<T>&);
HEED_INSTANTIATE(float)
HEED_INSTANTIATE(bfloat16)
HEED_INSTANTIATE(double)
#undef HEED_INSTANTIATE

}  // namespace heed::cpu
#endif
