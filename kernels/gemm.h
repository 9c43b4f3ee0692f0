// Matrix products. Contract for both devices.
#pragma once

#include <cstdint>

#include <heed/core/base/cost.h>
#include <heed/core/base/dtype.h>
#include <heed/kernels/declare.h>

namespace heed::kernels {

/// C = alpha * op(A) * op(B) (+ C if accumulate), for each of `batch` matrices; op transposes where asked.
/// Sums are kept in accumulator_t<T>, in an order over K that depends on the shape alone. k = 0 gives zeros
/// (or leaves C, if accumulate). A NaN or infinity in A or B reaches every element of C it belongs to.
/// Instances: f32, f64, bf16, and bf16 with an f32 result. With AMX the CPU takes elements of f32 to within
/// 2^-126, and subnormal ones as 0: below 2^-102 they have fewer digits than floats.
template <class T, class C = T>
struct Gemm {
  const T* a;  // [m, k] row-major with row stride lda, or [k, m] if transpose_a
  const T* b;  // [k, n] row-major with row stride ldb, or [n, k] if transpose_b
  C* c;        // [m, n] row-major with row stride ldc
  int64_t m, n, k;
  int64_t lda, ldb, ldc;  // elements between rows as stored; at least the row's length
  bool transpose_a = false, transpose_b = false;
  int64_t batch = 1;
  int64_t stride_a = 0, stride_b = 0, stride_c = 0;  // between a batch's matrices; 0 repeats an operand
  float alpha = 1;
  bool accumulate = false;

  Cost cost() const {
    const int64_t results = accumulate ? 2 : 1;
    return Cost{2.0 * static_cast<double>(batch * m * n * k), 0} + bytes_moved<T>(batch * (m + n) * k) +
           bytes_moved<C>(batch * m * n * results);
  }
};

}  // namespace heed::kernels

HEED_KERNEL_2(gemm, Gemm);
