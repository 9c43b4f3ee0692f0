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

// Budget: 32 registers, 4096 bytes shared.
__global__ void __launch_bounds__(kCols* kSlices) add_partials_kernel(simt::Dependent<ColumnSums> arguments) {
  const ColumnSums& args = arguments.wait();
  auto& slices = simt::shared<SliceSums>();
  const PartialSums sums = blockIdx.y == 0 ? args.of[0] : args.of[1];
  if (sums.out == nullptr) return;
  const int64_t cols = args.cols, col = int64_t{blockIdx.x} * kCols + threadIdx.x;
  float total = col < cols ? sums.add_up(threadIdx.y, blockDim.y, args.count, cols, col) : 0.0f;
  slices.value[threadIdx.y][threadIdx.x] = total;
  __syncthreads();
  if (threadIdx.y != 0 || col >= cols) return;
  for (unsigned slice = 1; slice < blockDim.y; ++slice) total += slices.value[slice][threadIdx.x];
  sums.put(col, total);
}

}  // namespace

void add_partials(const char* what, const ColumnSums& sums) {
  const dim3 grid(static_cast<unsigned>(simt::ceil_div<int64_t>(sums.cols, kCols)), 2);
  const dim3 block(kCols, static_cast<unsigned>(std::clamp<int64_t>(sums.count, 1, kSlices)));
  launch(what, add_partials_kernel, grid, block, 0, sums);
}

}  // namespace heed::cuda
