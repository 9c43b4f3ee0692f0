// The one way from an op to its kernels. Private to core: not installed.
#pragma once

#include <type_traits>

#include <heed/core/base/check.h>
#include <heed/core/base/device.h>
#include <heed/core/base/dtype.h>
#include <heed/core/base/float_mode.h>
#include <heed/core/runtime/backend.h>
#include <heed/core/runtime/profile.h>
#include <heed/kernels/elementwise.h>
#include <heed/kernels/indexing.h>
#include <heed/kernels/int8.h>
#include <heed/kernels/linear.h>
#include <heed/kernels/reduce.h>
#include <heed/kernels/runtime.h>

#ifndef HEED_CUDA_AVAILABLE  // 1 where kernels/cuda is compiled, for a GPU or emulated
#error "link heed_cuda_flags: whether there is a CUDA device is not known here"
#endif

namespace heed::detail {

inline constexpr bool kCudaBuilt = HEED_CUDA_AVAILABLE != 0;

[[noreturn]] void fail_without_cuda(const char* kernel);
[[noreturn]] void fail_without_kernel(const char* kernel, Device device, bool f64);

/// Whether a kind of device has the kernel that takes Args: of f64 only the CPU. Specialised for a kernel
/// that a device lacks.
template <DeviceType device, class Args>
inline constexpr bool kHasKernel = true;
template <template <class...> class Struct, class... Types>
inline constexpr bool kHasKernel<DeviceType::cuda, Struct<Types...>> =
    !(std::is_same_v<Types, double> || ...);

template <class T>
inline constexpr bool kHasKernel<DeviceType::cpu, kernels::WeightProducts<T>> = false;
template <>
inline constexpr bool kHasKernel<DeviceType::cuda, kernels::Int8Pack> = false;
template <>
inline constexpr bool kHasKernel<DeviceType::cuda, kernels::Int8Rows> = false;
template <>
inline constexpr bool kHasKernel<DeviceType::cuda, kernels::Int8Linear> = false;

/// Whether an operation with a plain composition calls the kernel that takes Args<T>, T for `dtype`: not
/// where the device lacks it, nor under NoFusedKernels.
template <template <class> class Args>
bool has_kernel(Device device, DType dtype) {
  if (NoFusedKernels::active()) return false;
  const auto has = [&]<class T>() {
    if (device.type == DeviceType::cpu) return kHasKernel<DeviceType::cpu, Args<T>>;
    return kHasKernel<DeviceType::cuda, Args<T>>;
  };
  switch (dtype) {
    case DType::f32:
      return has.template operator()<float>();
    case DType::bf16:
      return has.template operator()<bfloat16>();
    default:
      return has.template operator()<double>();
  }
}

/// Whether a subnormal operand is the number it is to a kernel, by its arguments. To other kernels it is 0.
template <class Args>
inline constexpr bool kReadsSubnormals = false;
template <class To, class From>
inline constexpr bool kReadsSubnormals<kernels::Copy<To, From>> = true;
template <class T>
inline constexpr bool kReadsSubnormals<kernels::Unary<T>> = true;
template <class T>
inline constexpr bool kReadsSubnormals<kernels::Binary<T>> = true;
template <class T>
inline constexpr bool kReadsSubnormals<kernels::Compare<T>> = true;
template <class T>
inline constexpr bool kReadsSubnormals<kernels::Clamp<T>> = true;
template <class T>
inline constexpr bool kReadsSubnormals<kernels::Reduce<T>> = true;
template <class T>
inline constexpr bool kReadsSubnormals<kernels::ArgReduce<T>> = true;
template <class T>
inline constexpr bool kReadsSubnormals<kernels::Sort<T>> = true;

/// f64 among the types of the arguments.
template <class Args>
inline constexpr bool kIsF64 = false;
template <template <class...> class Struct, class... Types>
inline constexpr bool kIsF64<Struct<Types...>> = (std::is_same_v<Types, double> || ...);

template <class OnCpu, class OnCuda, class Args>
void dispatch(Device device, const char* kernel, OnCpu on_cpu, OnCuda on_cuda, const Args& args) {
  ProfileScope scope(kernel);
  if (device.type == DeviceType::cpu) {
    if constexpr (requires { args.cost(); }) {
      if (scope.recorded()) scope.note(args.cost());
    }
    if constexpr (!kHasKernel<DeviceType::cpu, Args>) {
      fail_without_kernel(kernel, device, kIsF64<Args>);
    } else {
      const NoSubnormals mode(!kReadsSubnormals<Args>);
      on_cpu(args);
    }
  } else if constexpr (kCudaBuilt && kHasKernel<DeviceType::cuda, Args>) {
    cuda::set_device(device.index);
    on_cuda(args);
  } else {
    if (!kCudaBuilt) fail_without_cuda(kernel);
    fail_without_kernel(kernel, device, kIsF64<Args>);
  }
}

}  // namespace heed::detail

/// Calls cpu::kernel(args) or cuda::kernel(args) by the device. DeviceError for a device that the build lacks
/// or a kernel that the device lacks, DTypeError for f64 where the device has none: each names the kernel and
/// what to do.
#define HEED_DISPATCH(device, kernel, ...)                                  \
  ::heed::detail::dispatch(                                                 \
      device, #kernel, [](const auto& args) { ::heed::cpu::kernel(args); }, \
      [](const auto& args) { ::heed::cuda::kernel(args); }, __VA_ARGS__)
