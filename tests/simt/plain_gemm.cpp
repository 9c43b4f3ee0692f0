// Products in plain loops behind kernels/cuda/gemm.h, so that the kernels can be tested by themselves.
#include <cuda_runtime.h>

#include <heed/kernels/cuda/gemm.h>

namespace heed::cuda {

template <class T, class C>
bool multiply_by_library(const char*, const FusedGemm<T, C>& args) {
  const kernels::Gemm<T, C>& p = args.product;
  for (int64_t batch = 0; batch < p.batch; ++batch)
    for (int64_t i = 0; i < p.m; ++i)
      for (int64_t j = 0; j < p.n; ++j) {
        const T *a = p.a + batch * p.stride_a, *b = p.b + batch * p.stride_b;
        C* const to = p.c + batch * p.stride_c + i * p.ldc + j;
        float sum = 0;
        for (int64_t k = 0; k < p.k; ++k)
          sum += static_cast<float>(a[p.transpose_a ? k * p.lda + i : i * p.lda + k]) *
                 static_cast<float>(b[p.transpose_b ? j * p.ldb + k : k * p.ldb + j]);
        sum *= p.alpha;
        if (args.bias != nullptr) sum += static_cast<float>(args.bias[j]);
        const C c(p.accumulate ? static_cast<float>(*to) + sum : sum);
        // By a copy, so that the checks know of the write.
        cudaMemcpy(to, &c, sizeof c, cudaMemcpyHostToDevice);
      }
  return true;
}

template bool multiply_by_library<float, float>(const char*, const FusedGemm<float>&);
template bool multiply_by_library<bfloat16, bfloat16>(const char*, const FusedGemm<bfloat16>&);
template bool multiply_by_library<bfloat16, float>(const char*, const FusedGemm<bfloat16, float>&);

}  // namespace heed::cuda
