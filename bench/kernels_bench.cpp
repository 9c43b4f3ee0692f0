// Operations with autograd in GB/s and GFLOP/s, beside what the machine reaches in the same run: each case
// comes with the rate of its floor, a copy of as many elements or a large product, and its own share of that.
//
//   kernels_bench [--dtype=f32|bf16] [--tiny] [Google Benchmark's options]
#include <algorithm>
#include <chrono>
#include <map>
#include <string_view>

#include <benchmark/benchmark.h>

#include <heed/core/base/threads/parallel_for.h>
#include <heed/kernels/cpu/simd/isa.h>

#include "bench/kernel_cases.h"

namespace {

using heed::bench::KernelCase;

void measure(benchmark::State& state, const KernelCase& c, const KernelCase& floor,
             heed::bench::Kernels& kernels) {
  kernels(c.name).run();
  for (auto _ : state) kernels(c.name).run();
  const auto rate = [](double units) {
    return benchmark::Counter(units, benchmark::Counter::kIsIterationInvariantRate);
  };
  const bool moves = c.bytes > 0;
  const double units = moves ? c.bytes : c.operations, most = moves ? floor.bytes : floor.operations;
  const double machine = most / median_seconds(kernels(floor.name));
  state.counters[moves ? "GB/s" : "GFLOP/s"] = rate(units * 1e-9);
  state.counters[moves ? "copy GB/s" : "GEMM GFLOP/s"] = machine * 1e-9;
  state.counters["share"] = rate(units / machine);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace heed;
  benchmark::Initialize(&argc, argv);
  bool tiny = false;
  DType dtype = DType::f32;
  for (int i = 1; i < argc; ++i) {
    const std::string_view option = argv[i];
    if (option == "--tiny") {
      tiny = true;
    } else if (option == "--dtype=bf16" || option == "--dtype=f32") {
      dtype = option == "--dtype=bf16" ? DType::bf16 : DType::f32;
    } else {
      return benchmark::ReportUnrecognizedArguments(argc, argv), 1;
    }
  }
  benchmark::AddCustomContext("heed_isa", cpu::name(cpu::isa()));
  benchmark::AddCustomContext("heed_threads", std::to_string(thread_count()));
  const std::vector<KernelCase> cases = bench::kernel_cases(tiny, dtype);
  bench::Kernels kernels(dtype);
  for (const KernelCase& c : cases) {
    benchmark::RegisterBenchmark(c.name.c_str(),
                                 [&kernels, c, floor = bench::floor_of(c, cases)](benchmark::State& state) {
                                   measure(state, c, floor, kernels);
                                 })
        ->UseRealTime()
        ->Unit(benchmark::kMicrosecond);
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
