// Products in plain loops behind kernels/cuda/gemm/gemm.h, so that the kernels can be tested by themselves.
#include <heed/kernels/cuda/device.cuh>
#include <heed/kernels/cuda/gemm/gemm.h>
#include <heed/kernels/simt/host/monitor.h>
#include <heed/kernels/simt/host/runtime/stream.h>

namespace heed::cuda {
namespace {

// So that the race checker knows of it.
template <class T>
void used(const T* element, bool write) {
  if (emulator::monitor != nullptr) emulator::monitor->range_used(element, sizeof *element, write);
}

template <class T>
float read(const T* element) {
  used(element, false);
  return static_cast<float>(*element);
}

template <class T, class C>
void run(const FusedGemm<T, C>& args) {
  const kernels::Gemm<T, C>& p = args.product;
  for (int64_t batch = 0; batch < p.batch; ++batch)
    for (int64_t i = 0; i < p.m; ++i)
      for (int64_t j = 0; j < p.n; ++j) {
        const T *a = p.a + batch * p.stride_a, *b = p.b + batch * p.stride_b;
        C* const to = p.c + batch * p.stride_c + i * p.ldc + j;
        float sum = 0;
        for (int64_t k = 0; k < p.k; ++k)
          sum += read(a + (p.transpose_a ? k * p.lda + i : i * p.lda + k)) *
                 read(b + (p.transpose_b ? j * p.ldb + k : k * p.ldb + j));
        sum *= p.alpha;
        if (args.bias != nullptr) sum += read(args.bias + j);
        *to = C(p.accumulate ? read(to) + sum : sum);
        used(to, true);
      }
}

}  // namespace

template <class T, class C>
bool multiply_by_library(const char* what, const FusedGemm<T, C>& args) {
  check(emulator::enqueue(current_stream(), [args] { run(args); }), what);
  return true;
}

template bool multiply_by_library<float, float>(const char*, const FusedGemm<float>&);
template bool multiply_by_library<bfloat16, bfloat16>(const char*, const FusedGemm<bfloat16>&);
template bool multiply_by_library<bfloat16, float>(const char*, const FusedGemm<bfloat16, float>&);

}  // namespace heed::cuda
