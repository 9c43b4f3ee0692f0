// Products in plain loops behind kernels/cuda/gemm.h, so that the kernels can be tested by themselves.
#include <heed/kernels/cuda/gemm.h>

namespace heed::cuda {

template <class T, class C>
void multiply(const char*, const FusedGemm<T, C>& args) {
  const kernels::Gemm<T, C>& p = args.product;
  for (int64_t batch = 0; batch < p.batch; ++batch)
    for (int64_t i = 0; i < p.m; ++i)
      for (int64_t j = 0; j < p.n; ++j) {
        const T *a = p.a + batch * p.stride_a, *b = p.b + batch * p.stride_b;
        C& c = p.c[batch * p.stride_c + i * p.ldc + j];
        float sum = 0;
        for (int64_t k = 0; k < p.k; ++k)
          sum += static_cast<float>(a[p.transpose_a ? k * p.lda + i : i * p.lda + k]) *
                 static_cast<float>(b[p.transpose_b ? j * p.ldb + k : k * p.ldb + j]);
        sum *= p.alpha;
        if (args.bias != nullptr) sum += static_cast<float>(args.bias[j]);
        c = C(p.accumulate ? static_cast<float>(c) + sum : sum);
      }
}

template void multiply<float, float>(const char*, const FusedGemm<float>&);
template void multiply<bfloat16, bfloat16>(const char*, const FusedGemm<bfloat16>&);
template void multiply<bfloat16, float>(const char*, const FusedGemm<bfloat16, float>&);

}  // namespace heed::cuda
