#include <heed/kernels/cuda/device.cuh>
#include <heed/kernels/sampling.h>

namespace heed::cuda {
namespace {

constexpr int kSampleThreads = 32;

// A thread a row: its sums have one order.
// Budget: 64 registers, 0 bytes shared.
template <class T>
__global__ void __launch_bounds__(kSampleThreads) sample_kernel(kernels::Sample<T> args) {
  const int64_t row = int64_t{blockIdx.x} * kSampleThreads + threadIdx.x;
  if (row < args.rows) kernels::sample_row(args, row);
}

}  // namespace

template <class T>
void sample(const kernels::Sample<T>& args) {
  if (args.rows == 0) return;
  launch("sample", sample_kernel<T>,
         dim3(static_cast<unsigned>(simt::ceil_div<int64_t>(args.rows, kSampleThreads))),
         dim3(kSampleThreads), 0, args);
}

template void sample<float>(const kernels::Sample<float>&);
template void sample<bfloat16>(const kernels::Sample<bfloat16>&);

}  // namespace heed::cuda
