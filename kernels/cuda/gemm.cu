#include <heed/kernels/cuda/gemm.h>

namespace heed::cuda {

template <class T, class C>
void gemm(const kernels::Gemm<T, C>& args) {
  if (args.m > 0 && args.n > 0 && args.batch > 0) multiply("gemm", FusedGemm<T, C>{args, nullptr});
}

template void gemm<float, float>(const kernels::Gemm<float>&);
template void gemm<bfloat16, bfloat16>(const kernels::Gemm<bfloat16>&);
template void gemm<bfloat16, float>(const kernels::Gemm<bfloat16, float>&);

}  // namespace heed::cuda
