#include <cmath>
#include <optional>

#include <heed/kernels/cuda/block_sum.cuh>
#include <heed/kernels/cuda/device.cuh>
#include <heed/kernels/cuda/last_block.cuh>
#include <heed/kernels/cuda/optimizer_parts.cuh>
#include <heed/kernels/cuda/vector.cuh>
#include <heed/kernels/optimizer.h>

namespace heed::cuda {
namespace {

using kernels::AdamStep;
using kernels::GradientPart;
using kernels::LionStep;
using kernels::SgdStep;
using kernels::StepPart;
using kernels::StepSlice;

constexpr int kThreads = kPartThreads, kWidth = kPartWidth;

// ---- the norm

struct NormWork {
  PartTable<GradientPart<float>> table;
  double* partials;  // of this launch from `first` on
  int first;
  double* norm;
  unsigned*
      counter;  // of launch_counter() in the last launch, whose last block joins all partials; else null
};
static_assert(sizeof(NormWork) <= kArgumentBytes);

// Budget: 40 registers, 72 bytes shared.
template <int kRun>
__global__ void __launch_bounds__(kThreads) norm_kernel(simt::Dependent<NormWork> arguments) {
  const NormWork& work = arguments.wait();
  double sum = 0;
  for_each_run<kRun>(
      work.table, [](const GradientPart<float>&) {},
      [&](const GradientPart<float>& part, int64_t i) {
        float v[kRun];
        load(v, part.g + i);
        for (int j = 0; j < kRun; ++j) sum += double(v[j]) * double(v[j]);
      });
  sum = block_sum<kThreads>(sum);
  if (threadIdx.x == 0) work.partials[work.first + static_cast<int>(blockIdx.x)] = sum;
  if (work.counter == nullptr || !is_last_block(work.counter)) return;
  sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < work.first + static_cast<int>(gridDim.x); i += kThreads)
    sum += work.partials[i];
  sum = block_sum<kThreads>(sum);
  if (threadIdx.x == 0) *work.norm = sqrt(sum);
}

// ---- what a step reads

// Budget: 8 registers, 0 bytes shared.
__global__ void set_rate_kernel(double* lr, double value) { *lr = value; }

// Nothing but the gradients is changed where the norm is not finite.
__device__ __forceinline__ bool is_skipped(const double* norm) {
  return norm != nullptr && !(*norm < HUGE_VAL);
}

constexpr int kSteps = 512;

struct StepTable {
  int64_t *step, *steps;
  const double* norm;
  int32_t stepped[kSteps];
  int size;
};

// Budget: 24 registers, 0 bytes shared.
__global__ void __launch_bounds__(kThreads) advance_steps_kernel(simt::Dependent<StepTable> arguments) {
  const StepTable& table = arguments.wait();
  if (is_skipped(table.norm)) return;
  if (threadIdx.x == 0 && table.step != nullptr) ++*table.step;
  for (int i = threadIdx.x; i < table.size; i += kThreads) ++table.steps[table.stepped[i]];
}

// ---- steps
// Every product and sum is rounded on its own, as on the CPU: nvcc may not fuse these.

__device__ __forceinline__ float times(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ float plus(float a, float b) { return __fadd_rn(a, b); }

// The numbers of a step, computed in double and rounded.
struct Factors {
  float clip, shrink, decay;  // of the gradient; of the value, decoupled; of the value into the gradient
  int has_decay;
  float step_size, beta1, beta2, one_minus_beta1, one_minus_beta2, eps;  // Adam, Lion
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
  const double lr = *slice.lr * slice.lr_factor;
  f.clip = static_cast<float>(clip);
  f.shrink = static_cast<float>(decoupled ? 1 - lr * slice.weight_decay : 1);
  f.decay = static_cast<float>(slice.weight_decay);
  f.has_decay = !decoupled && slice.weight_decay != 0;
}

template <class T>
__device__ void set_factors(Factors& f, const AdamStep<T>& args, int64_t number) {
  set_common(f, args.slice, args.decoupled);
  const double step = static_cast<double>(number);
  f.beta2 = static_cast<float>(args.beta2);
  f.one_minus_beta1 = static_cast<float>(1 - args.beta1);
  f.one_minus_beta2 = static_cast<float>(1 - args.beta2);
  const double root = sqrt(1 - pow(args.beta2, step));
  f.eps = static_cast<float>(args.eps * root);
  f.step_size =
      static_cast<float>(*args.slice.lr * args.slice.lr_factor * root / (1 - pow(args.beta1, step)));
  f.lerp_from_gradient = 1 - args.beta1 >= 0.5;
}

template <class T>
__device__ void set_factors(Factors& f, const SgdStep<T>& args, int64_t number) {
  set_common(f, args.slice, false);
  f.momentum = static_cast<float>(args.momentum);
  f.one_minus_dampening = static_cast<float>(1 - args.dampening);
  f.step_size = static_cast<float>(*args.slice.lr * args.slice.lr_factor);
  f.first = number == 1;
}

template <class T>
__device__ void set_factors(Factors& f, const LionStep<T>& args, int64_t) {
  set_common(f, args.slice, true);
  f.beta1 = static_cast<float>(args.beta1);
  f.beta2 = static_cast<float>(args.beta2);
  f.one_minus_beta1 = static_cast<float>(1 - args.beta1);
  f.one_minus_beta2 = static_cast<float>(1 - args.beta2);
  f.step_size = static_cast<float>(*args.slice.lr * args.slice.lr_factor);
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
__device__ __forceinline__ void step(const AdamStep<T>& args, const Factors& f, const StepPart<T>& part,
                                     int64_t i, float (&value)[kRun]) {
  float g[kRun], m[kRun], v[kRun];
  take_gradient(part.g + i, f, value, g);
  load(m, args.m + part.state + i);
  load(v, args.v + part.state + i);
  for (int j = 0; j < kRun; ++j) {
    const float difference = plus(g[j], -m[j]);
    m[j] = f.lerp_from_gradient ? plus(g[j], -times(difference, plus(1.0f, -f.one_minus_beta1)))
                                : plus(m[j], times(f.one_minus_beta1, difference));
    v[j] = plus(times(v[j], f.beta2), times(times(f.one_minus_beta2, g[j]), g[j]));
    const float denominator = plus(sqrtf(v[j]), f.eps);
    value[j] = plus(times(value[j], f.shrink), times(-f.step_size, m[j]) / denominator);
  }
  store(args.m + part.state + i, m);
  store(args.v + part.state + i, v);
}

template <int kRun, class T>
__device__ __forceinline__ void step(const SgdStep<T>& args, const Factors& f, const StepPart<T>& part,
                                     int64_t i, float (&value)[kRun]) {
  float g[kRun];
  take_gradient(part.g + i, f, value, g);
  if (args.momentum_buffer != nullptr) {
    float* const buffer = args.momentum_buffer + part.state + i;
    float b[kRun] = {};
    if (!f.first) load(b, buffer);
    for (int j = 0; j < kRun; ++j) {
      b[j] = f.first ? g[j] : plus(times(b[j], f.momentum), times(g[j], f.one_minus_dampening));
      g[j] = args.nesterov ? plus(g[j], times(b[j], f.momentum)) : b[j];
    }
    store(buffer, b);
  }
  for (int j = 0; j < kRun; ++j) value[j] = plus(value[j], times(g[j], -f.step_size));
}

template <int kRun, class T>
__device__ __forceinline__ void step(const LionStep<T>& args, const Factors& f, const StepPart<T>& part,
                                     int64_t i, float (&value)[kRun]) {
  float g[kRun], m[kRun];
  take_gradient(part.g + i, f, value, g);
  load(m, args.m + part.state + i);
  for (int j = 0; j < kRun; ++j) {
    const float direction = plus(times(m[j], f.beta1), times(g[j], f.one_minus_beta1));
    // lr * sign(direction); a NaN stays one
    const float move = direction > 0 ? f.step_size : direction < 0 ? -f.step_size : direction;
    value[j] = plus(times(value[j], f.shrink), -move);
    m[j] = plus(times(m[j], f.beta2), times(g[j], f.one_minus_beta2));
  }
  store(args.m + part.state + i, m);
}

template <int kRun, class T>
__device__ __forceinline__ void load_value(float (&value)[kRun], const StepSlice<T>& slice,
                                           const StepPart<T>& part, int64_t i) {
  if (slice.master == nullptr) return load(value, part.value + i);
  load(value, slice.master + part.state + i);
  if (!slice.written) return;
  float now[kRun];
  load(now, part.value + i);
  for (int j = 0; j < kRun; ++j)
    if (static_cast<float>(T(value[j])) != now[j]) value[j] = now[j];
}

template <template <class> class Args, class T>
struct StepWork {
  Args<T> args;
  PartTable<StepPart<T>> table;
};

// Budget: 64 registers, 56 bytes shared.
template <template <class> class Args, class T, int kRun>
__global__ void __launch_bounds__(kThreads, 4) step_kernel(simt::Dependent<StepWork<Args, T>> arguments) {
  const StepWork<Args, T>& work = arguments.wait();
  const Args<T>& args = work.args;
  const StepSlice<T>& slice = args.slice;
  if (is_skipped(slice.gradient_norm)) return;
  auto& shared = simt::shared<Factors>();
  Factors f{};
  int64_t number = 0;  // of the step that f is for
  for_each_run<kRun>(
      work.table,
      [&](const StepPart<T>& part) {
        const int64_t now = slice.steps[part.index];
        if (now == number) return;
        number = now;
        __syncthreads();  // the last factors have been read
        if (threadIdx.x == 0) {
          shared = Factors{};
          set_factors(shared, args, number);
        }
        __syncthreads();
        f = shared;
      },
      [&](const StepPart<T>& part, int64_t i) {
        float value[kRun];
        load_value(value, slice, part, i);
        step<kRun>(args, f, part, i, value);
        if (slice.master != nullptr) store(slice.master + part.state + i, value);
        store(part.value + i, value);
      });
}

template <template <class> class Args, class T>
void run_steps(const char* what, const Args<T>& args, bool aligned) {
  static_assert(sizeof(StepWork<Args, T>) <= kArgumentBytes);
  Args<T> on_device = args;
  on_device.slice.parts = {};  // the host's; a launch has its table
  for_each_table(args.slice.parts, aligned && aligned_for<kWidth>(args.slice.master),
                 [&](const PartTable<StepPart<T>>& table, bool vectors) {
                   launch(what, vectors ? step_kernel<Args, T, kWidth> : step_kernel<Args, T, 1>,
                          dim3(table.blocks()), dim3(kThreads), 0, StepWork<Args, T>{on_device, table});
                 });
}

}  // namespace

template <class A>
void gradient_norm(const kernels::GradientNorm<A>& args) {
  using Table = PartTable<GradientPart<float>>;
  constexpr const char* kWhat = "gradient_norm";
  const size_t most_tables = args.gradients.size() / kParts<GradientPart<float>> + 2;
  const Scratch partials(most_tables * kMaxPartBlocks * sizeof(double));
  int blocks = 0;
  std::optional<Table> table;  // to be launched next
  bool vectors = false;
  const auto run = [&](bool is_last) {
    launch(kWhat, vectors ? norm_kernel<kWidth> : norm_kernel<1>, dim3(table->blocks()), dim3(kThreads), 0,
           NormWork{*table, partials.as<double>(), blocks, args.norm, is_last ? launch_counter() : nullptr});
    blocks += static_cast<int>(table->blocks());
  };
  for_each_table(args.gradients, true, [&](const Table& next, bool next_vectors) {
    if (table) run(false);
    table = next;
    vectors = next_vectors;
  });
  if (table)
    run(true);
  else
    check(cudaMemsetAsync(args.norm, 0, sizeof(double), current_stream()), kWhat);
}

void set_lr(const kernels::SetLr& args) {
  launch("set_lr", set_rate_kernel, dim3(1), dim3(1), 0, args.lr, args.value);
}

void advance_steps(const kernels::AdvanceSteps& args) {
  size_t done = 0;
  do {
    StepTable table{.step = done == 0 ? args.step : nullptr,
                    .steps = args.steps,
                    .norm = args.gradient_norm,
                    .stepped = {},
                    .size = 0};
    for (; done < args.stepped.size() && table.size < kSteps; ++done)
      table.stepped[table.size++] = static_cast<int32_t>(args.stepped[done]);
    launch("advance_steps", advance_steps_kernel, dim3(1), dim3(kThreads), 0, table);
  } while (done < args.stepped.size());
}

template <class T>
void adam_step(const AdamStep<T>& args) {
  run_steps("adam_step", args, aligned_for<4>(args.m) && aligned_for<4>(args.v));
}

template <class T>
void sgd_step(const SgdStep<T>& args) {
  run_steps("sgd_step", args, aligned_for<4>(args.momentum_buffer));
}

template <class T>
void lion_step(const LionStep<T>& args) {
  run_steps("lion_step", args, aligned_for<4>(args.m));
}

template void gradient_norm<float>(const kernels::GradientNorm<float>&);
#define HEED_INSTANTIATE(T)                       \
  template void adam_step<T>(const AdamStep<T>&); \
  template void sgd_step<T>(const SgdStep<T>&);   \
  template void lion_step<T>(const LionStep<T>&);
HEED_INSTANTIATE(float)
HEED_INSTANTIATE(bfloat16)
#undef HEED_INSTANTIATE

}  // namespace heed::cuda
