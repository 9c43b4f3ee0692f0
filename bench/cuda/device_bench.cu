#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

#include <heed/core/base/bfloat16.h>
#include <heed/kernels/cuda/device.cuh>
#include <heed/kernels/runtime.h>

#include "device_bench.h"

namespace heed::bench {
namespace {

__device__ uint32_t hash(uint64_t i, uint64_t seed) {
  uint64_t x = (i + 1) * 0x9e3779b97f4a7c15u ^ seed * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return static_cast<uint32_t>(x >> 32);
}

// The sum of four uniform values, which is near enough to normal.
template <class T>
__global__ void fill_kernel(T* out, int64_t count, uint64_t seed, float mean) {
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    float sum = mean - 2.0f;
    for (uint64_t part = 0; part < 4; ++part)
      sum += static_cast<float>(hash(static_cast<uint64_t>(i), 4 * seed + part) >> 8) * 0x1p-24f;
    out[i] = static_cast<T>(sum);
  }
}

void check(cudaError_t error) { cuda::check(error, "benchmark"); }

class Event {
 public:
  Event() { check(cudaEventCreate(&event_)); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record() { check(cudaEventRecord(event_, cuda::current_stream())); }
  double seconds_since(const Event& start) const {
    float milliseconds = 0;
    check(cudaEventSynchronize(event_));
    check(cudaEventElapsedTime(&milliseconds, start.event_, event_));
    return 1e-3 * static_cast<double>(milliseconds);
  }

 private:
  cudaEvent_t event_;
};

constexpr int kFillThreads = 256;

int batches = 10;  // of calls, timed one after another

}  // namespace

DeviceArray::DeviceArray(int64_t count, DType dtype) : bytes_(static_cast<size_t>(count) * size_of(dtype)) {
  check(cudaMalloc(&data_, bytes_));
  check(cudaMemsetAsync(data_, 0xff, bytes_, cuda::current_stream()));
}

DeviceArray::DeviceArray(int64_t count, DType dtype, uint64_t seed, float mean) : DeviceArray(count, dtype) {
  const dim3 grid(
      static_cast<unsigned>(std::min<int64_t>(simt::ceil_div<int64_t>(count, kFillThreads), 4096)));
  const auto fill = [&]<class T>(T* out) {
    cuda::launch("benchmark", fill_kernel<T>, grid, dim3(kFillThreads), 0, out, count, seed, mean);
  };
  dtype == DType::bf16 ? fill(as<bfloat16>()) : fill(as<float>());
}

DeviceArray::DeviceArray(DeviceArray&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

DeviceArray::~DeviceArray() { cudaFree(data_); }

void DeviceArray::read(void* to) const { cuda::copy_to_host(0, to, data_, bytes_); }

bool emulated() { return cuda::device_count() > 0 && cuda::device_name(0).rfind("emulated", 0) == 0; }

int rotation(int64_t bytes) {
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, 0));
  return static_cast<int>(std::clamp<int64_t>(4 * int64_t{properties.l2CacheSize} / bytes + 1, 1, 64));
}

void time_on_device(benchmark::State& state, int sets, int64_t bytes, const std::function<void(int)>& run) {
  Event start, end;
  int turn = 0;
  const auto seconds = [&](int calls) {
    start.record();
    for (int i = 0; i < calls; ++i) run(turn++ % sets);
    end.record();
    return end.seconds_since(start);
  };
  seconds(sets + 3);  // warms up
  // Batches of about a millisecond: one launch alone is not longer than the events' resolution.
  const int calls = static_cast<int>(std::clamp(1e-3 * 8 / std::max(seconds(8), 1e-9), 1.0, 200.0));
  for (auto _ : state) {
    std::vector<double> times;
    for (int i = 0; i < batches; ++i) times.push_back(seconds(calls) / calls);
    std::sort(times.begin(), times.end());
    state.SetIterationTime(times[times.size() / 2]);
    state.counters["least_us"] = 1e6 * times.front();
    state.counters["most_us"] = 1e6 * times.back();
  }
  state.counters["batches"] = batches;
  if (bytes > 0) state.SetBytesProcessed(state.iterations() * bytes);
}

benchmark::internal::Benchmark* add(const std::string& name,
                                    std::function<void(benchmark::State&)> function) {
  return benchmark::RegisterBenchmark(name.c_str(), std::move(function))
      ->Iterations(1)
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond);
}

int run_benchmarks(int argc, char** argv) {
  if (cuda::device_count() == 0) {
    std::fprintf(stderr, "no CUDA device: nothing was timed\n");
    return 7;
  }
  std::vector<char*> rest;
  for (int i = 0; i < argc; ++i) {
    constexpr std::string_view kFlag = "--batches=";
    const std::string_view argument = argv[i];
    if (argument.starts_with(kFlag))
      batches = std::clamp(std::atoi(argv[i] + kFlag.size()), 1, 1000);
    else
      rest.push_back(argv[i]);
  }
  argc = static_cast<int>(rest.size());
  rest.push_back(nullptr);
  argv = rest.data();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

}  // namespace heed::bench
