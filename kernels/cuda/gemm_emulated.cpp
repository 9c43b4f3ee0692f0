// The CPU's products behind gemm.h, for the emulated device: its memory is the host's.
#include <heed/kernels/cuda/device.cuh>
#include <heed/kernels/cuda/gemm.h>
#include <heed/kernels/linear.h>
#include <heed/kernels/simt/host/runtime/stream.h>

namespace heed::cuda {
namespace {

template <class T, class C>
void run(const FusedGemm<T, C>& args) {
  if constexpr (std::is_same_v<T, C>) {
    const kernels::Gemm<T>& p = args.product;
    if (args.bias != nullptr)
      return cpu::linear_forward(kernels::LinearForward<T>{.x = p.a,
                                                           .weight = p.b,
                                                           .packed = nullptr,
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
void multiply(const char* what, const FusedGemm<T, C>& args) {
  check(emulator::enqueue(current_stream(), [args] { run(args); }), what);
}

template void multiply<float, float>(const char*, const FusedGemm<float>&);
template void multiply<bfloat16, bfloat16>(const char*, const FusedGemm<bfloat16>&);
template void multiply<bfloat16, float>(const char*, const FusedGemm<bfloat16, float>&);

}  // namespace heed::cuda
