// The seam to oneDNN, which multiplies one block on the calling thread. Without oneDNN in the build nothing
// is supported.
#pragma once

#include <cstdint>

#include <heed/kernels/cpu/gemm/gemm_blocked.h>

namespace heed::cpu {

/// Whether oneDNN can multiply this type here, and with this factor.
template <class T>
bool onednn_supports(accumulator_t<T> alpha);

/// c = a b (+ c if accumulate), for a [m, k], b [k, n] and c [m, n] with row stride ldc.
template <class T>
struct OnednnBlock {
  MatrixView<T> a, b;
  accumulator_t<T>* c;
  int64_t m, n, k, ldc;
  bool accumulate;
};

template <class T>
void onednn_block(const OnednnBlock<T>& block);

}  // namespace heed::cpu
