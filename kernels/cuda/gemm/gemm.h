// The one way to matrix products on the device. gemm.cu leaves to the library what it can do: to cuBLASLt on
// a GPU (gemm_cublas.cu), to the CPU's kernels on the emulated device (gemm_emulated.cpp).
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

/// Bytes of which a bias in the library's products must begin at a multiple: it is read so many at a time.
inline constexpr size_t kBiasAlignment = 16;

/// The same by the library, which takes neither empty matrices nor a bias off its alignment. False if it
/// knows no way to add the bias, and then nothing was enqueued; DeviceError if it knows none to multiply.
template <class T, class C>
bool multiply_by_library(const char* what, const FusedGemm<T, C>& args);

}  // namespace heed::cuda
