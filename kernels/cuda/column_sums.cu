#include <algorithm>

#include <heed/kernels/cuda/column_sums.cuh>
#include <heed/kernels/cuda/device.cuh>

namespace heed::cuda {
namespace {

constexpr int kCols = 32;    // of a block
constexpr int kSlices = 32;  // most threads of a column, each adding every blockDim.y-th partial

struct SliceSums {
  float value[kSlices][kCols];
};

struct Arguments {
  PartialSums sums[2];
};

// Budget: 32 registers, 4096 bytes shared.
__global__ void __launch_bounds__(kCols* kSlices)
    add_partials_kernel(simt::Dependent<Arguments> arguments, int64_t count, int64_t cols) {
  const Arguments& args = arguments.wait();
  auto& slices = simt::shared<SliceSums>();
  const PartialSums sums = blockIdx.y == 0 ? args.sums[0] : args.sums[1];
  if (sums.out == nullptr) return;
  const int64_t col = int64_t{blockIdx.x} * kCols + threadIdx.x;
  float total = 0.0f;
  if (col < cols)
#pragma unroll 8
    for (int64_t p = threadIdx.y; p < count; p += blockDim.y) total += sums.partials[p * cols + col];
  slices.value[threadIdx.y][threadIdx.x] = total;
  __syncthreads();
  if (threadIdx.y != 0 || col >= cols) return;
  for (unsigned slice = 1; slice < blockDim.y; ++slice) total += slices.value[slice][threadIdx.x];
  sums.out[col] = sums.accumulate ? sums.out[col] + total : total;
}

}  // namespace

void add_partials(const char* what, const PartialSums (&sums)[2], int64_t count, int64_t cols) {
  const dim3 grid(static_cast<unsigned>(simt::ceil_div<int64_t>(cols, kCols)), 2);
  const dim3 block(kCols, static_cast<unsigned>(std::clamp<int64_t>(count, 1, kSlices)));
  launch(what, add_partials_kernel, grid, block, 0, Arguments{{sums[0], sums[1]}}, count, cols);
}

}  // namespace heed::cuda
