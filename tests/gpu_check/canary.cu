// Kernels with one deliberate mistake each, which compute-sanitizer must find before its silence about the
// others means anything: canary memcheck|racecheck|initcheck|synccheck|none.
#include <cstdio>
#include <cstring>

#include <heed/kernels/simt/simt.h>

namespace simt = heed::simt;

namespace {

constexpr int kThreads = 128;

struct Row {
  int value[kThreads];
};

__global__ void out_of_bounds(int* out, const int* in) { out[threadIdx.x] = in[threadIdx.x + 1]; }

__global__ void race(int* out, const int* in) {
  auto& row = simt::shared<Row>();
  row.value[threadIdx.x] = in[threadIdx.x];
  out[threadIdx.x] = row.value[kThreads - 1 - threadIdx.x];  // no barrier before
}

__global__ void uninitialised(int* out, const int* in) { out[threadIdx.x] += in[threadIdx.x]; }

__global__ void wrong_barriers(int* out, const int* in) {
  if (threadIdx.x < 40) __syncthreads();  // not for the others of the block
  out[threadIdx.x] = in[threadIdx.x];
  __syncwarp(0xffffu);  // by lanes outside of the mask too
}

__global__ void correct(int* out, const int* in) {
  auto& row = simt::shared<Row>();
  row.value[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = row.value[kThreads - 1 - threadIdx.x];
}

struct Canary {
  const char* tool;
  void (*kernel)(int*, const int*);
  bool write_out;  // before the kernel reads it
};
constexpr Canary kCanaries[] = {{"memcheck", out_of_bounds, true},
                                {"racecheck", race, true},
                                {"initcheck", uninitialised, false},
                                {"synccheck", wrong_barriers, true},
                                {"none", correct, true}};

bool run(const Canary& canary) {
  int *in = nullptr, *out = nullptr;
  const size_t bytes = kThreads * sizeof(int);
  bool good = cudaMalloc(reinterpret_cast<void**>(&in), bytes) == cudaSuccess &&
              cudaMalloc(reinterpret_cast<void**>(&out), bytes) == cudaSuccess &&
              cudaMemset(in, 1, bytes) == cudaSuccess;
  if (good && canary.write_out) good = cudaMemset(out, 2, bytes) == cudaSuccess;
  good = good && simt::launch(canary.kernel, dim3(1), dim3(kThreads), 0, nullptr, out, in) == cudaSuccess &&
         cudaDeviceSynchronize() == cudaSuccess;
  cudaFree(in);
  cudaFree(out);
  return good;
}

}  // namespace

int main(int argc, char** argv) {
  int devices = 0;
  for (const Canary& canary : kCanaries) {
    if (argc != 2 || std::strcmp(argv[1], canary.tool) != 0) continue;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return 7;
    return run(canary) ? 0 : 1;
  }
  std::fprintf(stderr, "usage: canary memcheck|racecheck|initcheck|synccheck|none\n");
  return 2;
}
