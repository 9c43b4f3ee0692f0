// The one way to matrix products on the device: cuBLASLt on a GPU (gemm_cublas.cu), the CPU's kernels on the
// emulated device (gemm_emulated.cpp).
#pragma once

#include <heed/kernels/gemm.h>

namespace heed::cuda {

/// A product and what is done with it before it is rounded and stored.
template <class T, class C = T>
struct FusedGemm {
  kernels::Gemm<T, C> product;
  const T* bias;  // [n], added to every row; null: none. Given, C is T, A [m, k], B [n, k], C [m, n] have no
                  // gaps, b is transposed, and there is neither a batch nor an accumulation
};

/// On the current stream. `what` names the operation for messages. Instances: those of cuda::gemm.
template <class T, class C>
void multiply(const char* what, const FusedGemm<T, C>& args);

}  // namespace heed::cuda
