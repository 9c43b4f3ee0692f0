// The device's copy bandwidth, bytes read plus bytes written: what the other figures are a share of.
#include <heed/kernels/runtime.h>

#include "device_bench.h"

namespace {

void copy(benchmark::State& state) {
  using namespace heed;
  const int64_t count = state.range(0) << 18;  // MiB of f32
  const bench::DeviceArray from(count, DType::f32, 1), to(count, DType::f32);
  const auto bytes = static_cast<size_t>(count) * sizeof(float);
  bench::time_on_device(state, 1, 2 * static_cast<int64_t>(bytes),
                        [&](int) { cuda::copy_on_device(0, to.as<float>(), from.as<float>(), bytes); });
}

}  // namespace

int main(int argc, char** argv) {
  heed::bench::add("copy", copy)->Arg(heed::bench::emulated() ? 1 : 1024);
  return heed::bench::run_benchmarks(argc, argv);
}
