// The one way from an op to its kernels. Private to core: not installed.
#pragma once

#include <type_traits>

#include <heed/core/base/check.h>
#include <heed/core/base/device.h>
#include <heed/core/base/float_mode.h>
#include <heed/core/profile.h>
#include <heed/kernels/elementwise.h>
#include <heed/kernels/indexing.h>
#include <heed/kernels/reduce.h>
#include <heed/kernels/runtime.h>

#ifndef HEED_CUDA_AVAILABLE  // 1 where kernels/cuda is compiled, for a GPU or emulated
#error "link heed_cuda_flags: whether there is a CUDA device is not known here"
#endif

namespace heed::detail {

inline constexpr bool kCudaBuilt = HEED_CUDA_AVAILABLE != 0;

[[noreturn]] void fail_without_cuda(const char* kernel);
[[noreturn]] void fail_f64_on_cuda(const char* kernel);

/// True for argument structs with double among their template arguments: f64 has no CUDA kernels.
template <class Args>
inline constexpr bool kIsF64 = false;
template <template <class...> class Struct, class... Types>
inline constexpr bool kIsF64<Struct<Types...>> = (std::is_same_v<Types, double> || ...);

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

template <class OnCpu, class OnCuda, class Args>
void dispatch(Device device, const char* kernel, OnCpu on_cpu, OnCuda on_cuda, const Args& args) {
  ProfileScope scope(kernel);
  if (device.is_cpu()) {
    if constexpr (requires { args.work(); }) {
      if (scope.recorded()) scope.note(args.work());
    }
    const NoSubnormals mode(!kReadsSubnormals<Args>);
    return on_cpu(args);
  }
  if constexpr (!kCudaBuilt)
    fail_without_cuda(kernel);
  else if constexpr (kIsF64<Args>)
    fail_f64_on_cuda(kernel);
  else {
    cuda::set_device(device.index);
    on_cuda(args);
  }
}

}  // namespace heed::detail

/// Calls cpu::kernel(args) or cuda::kernel(args) by the device; a missing device or dtype is a clear error.
#define HEED_DISPATCH(device, kernel, ...)                                  \
  ::heed::detail::dispatch(                                                 \
      device, #kernel, [](const auto& args) { ::heed::cpu::kernel(args); }, \
      [](const auto& args) { ::heed::cuda::kernel(args); }, __VA_ARGS__)
