// Softmax and its gradient, in GB/s of what must be read and written once.
#include <vector>

#include <benchmark/benchmark.h>

#include <heed/kernels/softmax.h>

namespace {

using heed::bfloat16;

template <class T>
std::vector<T> ramp(int64_t count) {
  std::vector<T> values(count);
  for (int64_t i = 0; i < count; ++i) values[i] = T(static_cast<float>(i * 37 % 101) * 0.05f);
  return values;
}

template <class T>
void softmax_forward(benchmark::State& state) {
  const int64_t rows = state.range(0), cols = state.range(1);
  const auto x = ramp<T>(rows * cols);
  std::vector<T> y(x.size());
  for (auto _ : state) heed::cpu::softmax_forward<T>({x.data(), y.data(), rows, cols, state.range(2) != 0});
  state.SetBytesProcessed(state.iterations() * rows * cols * 2 * static_cast<int64_t>(sizeof(T)));
}

template <class T>
void softmax_backward(benchmark::State& state) {
  const int64_t rows = state.range(0), cols = state.range(1);
  const auto y = ramp<T>(rows * cols), gy = y;
  std::vector<T> gx(y.size());
  for (auto _ : state)
    heed::cpu::softmax_backward<T>({y.data(), gy.data(), gx.data(), rows, cols, state.range(2) != 0, false});
  state.SetBytesProcessed(state.iterations() * rows * cols * 3 * static_cast<int64_t>(sizeof(T)));
}

void shapes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"rows", "cols", "log"})->UseRealTime();
  for (const int64_t log : {0, 1}) b->Args({8192, 13, log})->Args({4096, 128, log})->Args({256, 32000, log});
}

BENCHMARK(softmax_forward<float>)->Apply(shapes);
BENCHMARK(softmax_forward<bfloat16>)->Apply(shapes);
BENCHMARK(softmax_backward<float>)->Apply(shapes);
BENCHMARK(softmax_backward<bfloat16>)->Apply(shapes);

}  // namespace

BENCHMARK_MAIN();
