// scale.cu: nvcc and the emulator take the same file.
#include <heed/kernels/simt/simt.h>

namespace simt = heed::simt;

__global__ void scale_kernel(float* values, float factor, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) values[i] *= factor;
}

cudaError_t scale(float* values, float factor, int count, cudaStream_t stream) {
  return simt::launch(scale_kernel, dim3(simt::ceil_div(count, 128)), dim3(128), 0, stream, values, factor,
                      count);
}
