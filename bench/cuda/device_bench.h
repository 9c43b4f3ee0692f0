// How benchmarks of CUDA kernels are made: buffers in device memory, times by device events, results that are
// right before they are timed.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include <heed/core/base/dtype.h>

namespace heed::bench {

/// Device memory that holds random values around `mean`, or NaN patterns.
class DeviceArray {
 public:
  DeviceArray(int64_t count, DType dtype);
  DeviceArray(int64_t count, DType dtype, uint64_t seed, float mean = 0);
  ~DeviceArray();
  DeviceArray(DeviceArray&& other) noexcept;
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  /// The values on the host.
  template <class T>
  std::vector<T> get() const {
    std::vector<T> values(bytes_ / sizeof(T));
    read(values.data());
    return values;
  }

 private:
  void read(void* to) const;

  void* data_ = nullptr;
  size_t bytes_ = 0;
};

/// Whether the device is emulated: benchmarks are then tried on little data, since their times mean nothing.
bool emulated();

/// How many sets of buffers of `bytes` each to take turns with, so that none is found in the L2 cache.
int rotation(int64_t bytes);

/// Registers a benchmark whose function calls time_on_device, which takes all times in one iteration: Google
/// Benchmark would choose their number by the time of one call, and so take seconds for a call of
/// microseconds.
benchmark::internal::Benchmark* add(const std::string& name, std::function<void(benchmark::State&)> function);

/// Times run(0), run(1), … in the device's stream, in batches of about a millisecond, and reports the median
/// of the batches' time for one call, the least and the most, and bytes_per_second for `bytes` moved in each;
/// `run` is called with 0 to `sets` - 1 in turn.
void time_on_device(benchmark::State& state, int sets, int64_t bytes, const std::function<void(int)>& run);

/// ||got - want|| / ||want||; infinite where one is NaN.
template <class T, class U>
double relative_error(const std::vector<T>& got, const std::vector<U>& want) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double w = static_cast<double>(want[i]), d = static_cast<double>(static_cast<float>(got[i])) - w;
    error += d * d;
    norm += w * w;
  }
  const double ratio = std::sqrt(norm > 0 ? error / norm : error);
  return std::isnan(ratio) ? std::numeric_limits<double>::infinity() : ratio;
}

/// Runs the benchmarks; exit code 7 where there is no device. --batches=N says how many batches are timed
/// (10), beside Google Benchmark's own options.
int run_benchmarks(int argc, char** argv);

}  // namespace heed::bench
