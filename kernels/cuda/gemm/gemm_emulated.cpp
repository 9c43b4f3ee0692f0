// The CPU's products behind gemm.h, for the emulated device: its memory is the host's.
#include <heed/kernels/cuda/device.cuh>
#include <heed/kernels/cuda/gemm/gemm.h>
#include <heed/kernels/linear.h>
#include <heed/kernels/simt/host/builtins.h>
#include <heed/kernels/simt/host/monitor.h>
#include <heed/kernels/simt/host/runtime/stream.h>

namespace heed::cuda {
namespace {

// What cuBLASLt refuses or a GPU traps at.
template <class T, class C>
void check_demands(const FusedGemm<T, C>& args) {
  const kernels::Gemm<T, C>& p = args.product;
  if (p.m < 1 || p.n < 1 || p.k < 1 || p.batch < 1) emulator::fail("a matrix of a product is empty", {});
  if (reinterpret_cast<uintptr_t>(args.bias) % kBiasAlignment != 0)
    emulator::fail("misaligned address: the bias of a product is read " + std::to_string(kBiasAlignment) +
                       " bytes at a time",
                   {});
}

// The race checker sees what kernels read and write, but not what the CPU's product does.
template <class T>
void tell_of(const T* matrix, int64_t rows, int64_t cols, int64_t stride, bool write) {
  for (int64_t i = 0; i < rows; ++i)
    emulator::monitor->range_used(matrix + i * stride, static_cast<size_t>(cols) * sizeof(T), write);
}

template <class T, class C>
void tell_of(const FusedGemm<T, C>& args) {
  if (emulator::monitor == nullptr) return;
  const kernels::Gemm<T, C>& p = args.product;
  if (args.bias != nullptr) tell_of(args.bias, 1, p.n, p.n, false);
  for (int64_t i = 0; i < p.batch; ++i) {
    tell_of(p.a + i * p.stride_a, p.transpose_a ? p.k : p.m, p.transpose_a ? p.m : p.k, p.lda, false);
    tell_of(p.b + i * p.stride_b, p.transpose_b ? p.n : p.k, p.transpose_b ? p.k : p.n, p.ldb, false);
    C* const c = p.c + i * p.stride_c;
    if (p.accumulate) tell_of(c, p.m, p.n, p.ldc, false);
    tell_of(c, p.m, p.n, p.ldc, true);
  }
}

template <class T, class C>
void run(const FusedGemm<T, C>& args) {
  tell_of(args);
  if constexpr (std::is_same_v<T, C>) {
    const kernels::Gemm<T>& p = args.product;
    if (args.bias != nullptr)
      return cpu::linear_forward(kernels::LinearForward<T>{.x = p.a,
                                                           .weight = p.b,
                                                           .copies = nullptr,
                                                           .bias = args.bias,
                                                           .activation = Activation::none,
                                                           .dropout = {},
                                                           .y = p.c,
                                                           .pre_activation = nullptr,
                                                           .rows = p.m,
                                                           .in = p.k,
                                                           .out = p.n});
  }
  cpu::gemm(args.product);
}

}  // namespace

template <class T, class C>
bool multiply_by_library(const char* what, const FusedGemm<T, C>& args) {
  check_demands(args);
  check(emulator::enqueue(current_stream(), [args] { run(args); }), what);
  return true;
}

template bool multiply_by_library<float, float>(const char*, const FusedGemm<float>&);
template bool multiply_by_library<bfloat16, bfloat16>(const char*, const FusedGemm<bfloat16>&);
template bool multiply_by_library<bfloat16, float>(const char*, const FusedGemm<bfloat16, float>&);

}  // namespace heed::cuda
