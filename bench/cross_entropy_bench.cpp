// Cross-entropy with its gradient, in GB/s of logits read and gradients written.
#include <vector>

#include <benchmark/benchmark.h>

#include <heed/kernels/cross_entropy.h>

namespace {

using heed::bfloat16;

template <class T>
void cross_entropy(benchmark::State& state) {
  const int64_t rows = state.range(0), classes = state.range(1);
  std::vector<T> logits(rows * classes), glogits(rows * classes);
  for (int64_t i = 0; i < rows * classes; ++i) logits[i] = T(static_cast<float>(i * 37 % 101) * 0.05f);
  std::vector<int64_t> targets(rows);
  for (int64_t r = 0; r < rows; ++r) targets[r] = r * 7 % classes;
  heed::accumulator_t<T> loss;
  int64_t counted;
  for (auto _ : state) {
    heed::cpu::cross_entropy_forward<T>({logits.data(), targets.data(), -100,
                                         static_cast<double>(state.range(2)) / 100, true, &loss, &counted,
                                         glogits.data(), rows, classes});
  }
  state.SetBytesProcessed(state.iterations() * rows * classes * 2 * static_cast<int64_t>(sizeof(T)));
}

void shapes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"rows", "classes", "smoothing%"})->UseRealTime();
  for (const int64_t smoothing : {0, 10})
    b->Args({1280, 13, smoothing})->Args({4096, 1000, smoothing})->Args({256, 32000, smoothing});
}

BENCHMARK(cross_entropy<float>)->Apply(shapes);
BENCHMARK(cross_entropy<bfloat16>)->Apply(shapes);

}  // namespace

BENCHMARK_MAIN();
