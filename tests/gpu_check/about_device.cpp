// Prints what the first CUDA device is as one JSON object; exit code 7 where there is none.
#include <cstdio>

#include <cuda_runtime.h>

int main() {
  int devices = 0, driver = 0, runtime = 0;
  cudaDeviceProp p;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0 ||
      cudaGetDeviceProperties(&p, 0) != cudaSuccess) {
    std::fprintf(stderr, "no CUDA device: %s\n", cudaGetErrorString(cudaGetLastError()));
    return 7;
  }
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  std::printf(
      "{\"name\": \"%s\", \"compute_capability\": %d, \"multiprocessors\": %d, \"memory_bytes\": %zu, "
      "\"l2_bytes\": %d, \"shared_bytes_per_block\": %zu, \"driver_cuda\": %d, \"runtime_cuda\": %d, "
      "\"devices\": %d}\n",
      p.name, p.major * 10 + p.minor, p.multiProcessorCount, p.totalGlobalMem, p.l2CacheSize,
      p.sharedMemPerBlockOptin, driver, runtime, devices);
  return 0;
}
