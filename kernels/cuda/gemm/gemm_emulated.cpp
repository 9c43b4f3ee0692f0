// The CPU's products behind gemm.h, for the emulated device: its memory is the host's.
#include <heed/kernels/cuda/device.cuh>
#include <heed/kernels/cuda/gemm/gemm.h>
#include <heed/kernels/linear.h>
#include <heed/kernels/simt/host/builtins.h>
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

template <class T, class C>
void run(const FusedGemm<T, C>& args) {
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
