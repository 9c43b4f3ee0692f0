#include <algorithm>
#include <cmath>

#include <heed/kernels/cuda/device.cuh>
#include <heed/kernels/cuda/vector.cuh>
#include <heed/kernels/optimizer.h>

namespace heed::cuda {
namespace {

using kernels::AdamStep;
using kernels::GradientPart;
using kernels::GradientParts;
using kernels::SgdStep;
using kernels::StepSlice;

constexpr int kThreads = 256;
constexpr int kWidth = 4;              // elements at once
constexpr int64_t kMostBlocks = 1024;  // enough to keep a GPU busy; a block works out the factors once

// ---- the gradients of a launch

constexpr int kParts = 64;
constexpr int64_t kChunk = int64_t{kThreads} * kWidth * 4;

// Cut into chunks, which blocks take in turn.
struct PartTable {
  GradientPart<float> parts[kParts];
  int64_t first_chunk[kParts + 1];  // of each part, and the number of chunks
  int size;

  unsigned blocks() const { return static_cast<unsigned>(std::min(first_chunk[size], kMostBlocks)); }
};

// f(gradient, i) for each run of kRun elements that is this thread's: its gradient, and its place in the
// arenas.
template <int kRun, class F>
__device__ __forceinline__ void for_each_run(const PartTable& table, const F& f) {
  int at = 0;
  for (int64_t chunk = blockIdx.x; chunk < table.first_chunk[table.size]; chunk += gridDim.x) {
    while (chunk >= table.first_chunk[at + 1]) ++at;
    const float* const g = table.parts[at].g;
    const int64_t offset = table.parts[at].offset, first = (chunk - table.first_chunk[at]) * kChunk;
    const int64_t left = table.parts[at].count - first, end = first + (left < kChunk ? left : kChunk);
#pragma unroll 4
    for (int64_t i = first + int64_t{threadIdx.x} * kRun; i < end; i += int64_t{kThreads} * kRun)
      f(g + i, offset + i);
  }
}

// run(table, whether its parts are read kWidth elements at a time) for all parts.
template <class Run>
void for_each_table(GradientParts<float> parts, bool aligned, const Run& run) {
  for (const bool vectors : {true, false}) {
    PartTable table{};
    for (const GradientPart<float>& part : parts) {
      const bool fits =
          aligned && part.count % kWidth == 0 && part.offset % kWidth == 0 && aligned_for<kWidth>(part.g);
      if (part.count == 0 || fits != vectors) continue;
      table.parts[table.size] = part;
      table.first_chunk[table.size + 1] =
          table.first_chunk[table.size] + simt::ceil_div<int64_t>(part.count, kChunk);
      if (++table.size < kParts) continue;
      run(table, vectors);
      table = {};
    }
    if (table.size > 0) run(table, vectors);
  }
}

// ---- the norm

struct ThreadSums {
  double value[kThreads];
};

__device__ __forceinline__ double sum_of_threads(double value) {
  auto& shared = simt::shared<ThreadSums>();
  shared.value[threadIdx.x] = value;
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) shared.value[threadIdx.x] = value += shared.value[threadIdx.x + half];
  }
  return value;
}

// Budget: 32 registers, 2048 bytes shared.
template <int kRun>
__global__ void __launch_bounds__(kThreads) norm_kernel(PartTable table, double* partials) {
  double sum = 0;
  for_each_run<kRun>(table, [&](const float* g, int64_t) {
    float v[kRun];
    load(v, g);
    for (int j = 0; j < kRun; ++j) sum += double(v[j]) * double(v[j]);
  });
  sum = sum_of_threads(sum);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

// Budget: 32 registers, 2048 bytes shared.
__global__ void __launch_bounds__(kThreads)
    join_norm_kernel(const double* partials, int count, double* norm) {
  double sum = 0;
  for (int i = threadIdx.x; i < count; i += kThreads) sum += partials[i];
  sum = sum_of_threads(sum);
  if (threadIdx.x == 0) *norm = sqrt(sum);
}

// ---- what a step reads

// Budget: 8 registers, 0 bytes shared.
__global__ void set_rate_kernel(double* rate, double value) { *rate = value; }

// Nothing but the gradients is changed where the norm is not finite.
__device__ __forceinline__ bool is_skipped(const double* norm) {
  return norm != nullptr && !(*norm < HUGE_VAL);
}

// Budget: 8 registers, 0 bytes shared.
__global__ void advance_step_kernel(int64_t* step, const double* norm) {
  if (!is_skipped(norm)) ++*step;
}

// ---- steps
// Every product and sum is rounded on its own, as on the CPU: nvcc may not fuse these.

__device__ __forceinline__ float times(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ float plus(float a, float b) { return __fadd_rn(a, b); }

// The numbers of a step, computed in double and rounded.
struct Factors {
  float clip, shrink, decay;  // of the gradient; of the value, decoupled; of the value into the gradient
  int has_decay;
  float beta2, one_minus_beta1, one_minus_beta2, eps, step_size;  // Adam
  int lerp_from_gradient;
  float momentum, one_minus_dampening;  // SGD
  int first;
};

template <class T>
__device__ void set_common(Factors& f, const StepSlice<T>& slice, bool decoupled) {
  double clip = 1;
  if (slice.gradient_norm != nullptr && slice.clip > 0) {
    clip = slice.clip / (*slice.gradient_norm + 1e-6);
    if (clip > 1) clip = 1;
  }
  const double rate = *slice.rate * slice.rate_factor;
  f.clip = static_cast<float>(clip);
  f.shrink = static_cast<float>(decoupled ? 1 - rate * slice.weight_decay : 1);
  f.decay = static_cast<float>(slice.weight_decay);
  f.has_decay = !decoupled && slice.weight_decay != 0;
}

template <class T>
__device__ void set_factors(Factors& f, const AdamStep<T>& args) {
  set_common(f, args.slice, args.decoupled);
  const double step = static_cast<double>(*args.step);
  f.beta2 = static_cast<float>(args.beta2);
  f.one_minus_beta1 = static_cast<float>(1 - args.beta1);
  f.one_minus_beta2 = static_cast<float>(1 - args.beta2);
  const double root = sqrt(1 - pow(args.beta2, step));
  f.eps = static_cast<float>(args.eps * root);
  f.step_size =
      static_cast<float>(*args.slice.rate * args.slice.rate_factor * root / (1 - pow(args.beta1, step)));
  f.lerp_from_gradient = 1 - args.beta1 >= 0.5;
}

template <class T>
__device__ void set_factors(Factors& f, const SgdStep<T>& args) {
  set_common(f, args.slice, false);
  f.momentum = static_cast<float>(args.momentum);
  f.one_minus_dampening = static_cast<float>(1 - args.dampening);
  f.step_size = static_cast<float>(*args.slice.rate * args.slice.rate_factor);
  f.first = *args.step == 1;
}

// The gradient as the step sees it: clipped, and with weight decay added to it.
template <int kRun>
__device__ __forceinline__ void take_gradient(const float* gradient, const Factors& f,
                                              const float (&value)[kRun], float (&g)[kRun]) {
  load(g, gradient);
  for (int j = 0; j < kRun; ++j) {
    g[j] = times(g[j], f.clip);
    if (f.has_decay) g[j] = plus(g[j], times(value[j], f.decay));
  }
}

template <int kRun, class T>
__device__ __forceinline__ void step(const AdamStep<T>& args, const Factors& f, const float* gradient,
                                     int64_t i, float (&value)[kRun]) {
  float g[kRun], m[kRun], v[kRun];
  take_gradient(gradient, f, value, g);
  load(m, args.m + i);
  load(v, args.v + i);
  for (int j = 0; j < kRun; ++j) {
    const float difference = plus(g[j], -m[j]);
    m[j] = f.lerp_from_gradient ? plus(g[j], -times(difference, plus(1.0f, -f.one_minus_beta1)))
                                : plus(m[j], times(f.one_minus_beta1, difference));
    v[j] = plus(times(v[j], f.beta2), times(times(f.one_minus_beta2, g[j]), g[j]));
    const float denominator = plus(sqrtf(v[j]), f.eps);
    value[j] = plus(times(value[j], f.shrink), times(-f.step_size, m[j]) / denominator);
  }
  store(args.m + i, m);
  store(args.v + i, v);
}

template <int kRun, class T>
__device__ __forceinline__ void step(const SgdStep<T>& args, const Factors& f, const float* gradient,
                                     int64_t i, float (&value)[kRun]) {
  float g[kRun];
  take_gradient(gradient, f, value, g);
  if (args.momentum_buffer != nullptr) {
    float b[kRun] = {};
    if (!f.first) load(b, args.momentum_buffer + i);
    for (int j = 0; j < kRun; ++j) {
      b[j] = f.first ? g[j] : plus(times(b[j], f.momentum), times(g[j], f.one_minus_dampening));
      g[j] = args.nesterov ? plus(g[j], times(b[j], f.momentum)) : b[j];
    }
    store(args.momentum_buffer + i, b);
  }
  for (int j = 0; j < kRun; ++j) value[j] = plus(value[j], times(g[j], -f.step_size));
}

// Budget: 64 registers, 56 bytes shared.
template <template <class> class Args, class T, int kRun>
__global__ void __launch_bounds__(kThreads) step_kernel(Args<T> args, PartTable table) {
  const StepSlice<T>& slice = args.slice;
  if (is_skipped(slice.gradient_norm)) return;
  auto& factors = simt::shared<Factors>();
  if (threadIdx.x == 0) {
    factors = Factors{};
    set_factors(factors, args);
  }
  __syncthreads();
  const Factors f = factors;
  for_each_run<kRun>(table, [&](const float* gradient, int64_t i) {
    float value[kRun];
    if (slice.master != nullptr)
      load(value, slice.master + i);
    else
      load(value, slice.value + i);
    step<kRun>(args, f, gradient, i, value);
    if (slice.master != nullptr) store(slice.master + i, value);
    store(slice.value + i, value);
  });
}

template <template <class> class Args, class T>
void run_steps(const char* what, const Args<T>& args, bool aligned) {
  const StepSlice<T>& slice = args.slice;
  const bool arenas_aligned =
      aligned && aligned_for<kWidth>(slice.value) && aligned_for<kWidth>(slice.master);
  Args<T> on_device = args;
  on_device.slice.gradients = {};  // the host's; a launch has its table
  for_each_table(slice.gradients, arenas_aligned, [&](const PartTable& table, bool vectors) {
    launch(what, vectors ? step_kernel<Args, T, kWidth> : step_kernel<Args, T, 1>, dim3(table.blocks()),
           dim3(kThreads), 0, on_device, table);
  });
}

}  // namespace

template <class A>
void gradient_norm(const kernels::GradientNorm<A>& args) {
  const size_t most_tables = args.gradients.size() / kParts + 2;
  const Scratch partials(most_tables * kMostBlocks * sizeof(double));
  unsigned blocks = 0;
  for_each_table(args.gradients, true, [&](const PartTable& table, bool vectors) {
    launch("gradient_norm", vectors ? norm_kernel<kWidth> : norm_kernel<1>, dim3(table.blocks()),
           dim3(kThreads), 0, table, partials.as<double>() + blocks);
    blocks += table.blocks();
  });
  launch("gradient_norm", join_norm_kernel, dim3(1), dim3(kThreads), 0, partials.as<double>(),
         static_cast<int>(blocks), args.norm);
}

void set_rate(const kernels::SetRate& args) {
  launch("set_rate", set_rate_kernel, dim3(1), dim3(1), 0, args.rate, args.value);
}

void advance_step(const kernels::AdvanceStep& args) {
  launch("advance_step", advance_step_kernel, dim3(1), dim3(1), 0, args.step, args.gradient_norm);
}

template <class T>
void adam_step(const AdamStep<T>& args) {
  run_steps("adam_step", args, aligned_for<4>(args.m) && aligned_for<4>(args.v));
}

template <class T>
void sgd_step(const SgdStep<T>& args) {
  run_steps("sgd_step", args, aligned_for<4>(args.momentum_buffer));
}

template void gradient_norm<float>(const kernels::GradientNorm<float>&);
#define HEED_INSTANTIATE(T)                       \
  template void adam_step<T>(const AdamStep<T>&); \
  template void sgd_step<T>(const SgdStep<T>&);
HEED_INSTANTIATE(float)
HEED_INSTANTIATE(bfloat16)
#undef HEED_INSTANTIATE

}  // namespace heed::cuda
