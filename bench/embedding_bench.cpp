// Embedding with positions and dropout, in GB/s of table rows read and output written, and its gradient.
#include <vector>

#include <benchmark/benchmark.h>

#include <heed/kernels/embedding.h>

namespace {

struct Ids {
  std::vector<int64_t> ids, positions;
  heed::Dropout dropout;

  explicit Ids(const benchmark::State& state) {
    uint64_t random = 1;
    for (int64_t r = 0; r < state.range(0); ++r) {
      random = random * 6364136223846793005ull + 1442695040888963407ull;
      ids.push_back(static_cast<int64_t>(random >> 33) % state.range(2));
      positions.push_back(r % 64);
    }
    dropout = heed::make_dropout(static_cast<double>(state.range(3)) / 100, {1, nullptr, 0});
  }
};

void embedding_forward(benchmark::State& state) {
  const int64_t rows = state.range(0), cols = state.range(1), vocabulary = state.range(2);
  const Ids ids(state);
  const std::vector<float> weight(vocabulary * cols, 0.5f), position(64 * cols, 0.25f);
  std::vector<float> y(rows * cols);
  for (auto _ : state) {
    heed::cpu::embedding_forward<float>({.ids = ids.ids.data(),
                                         .weight = weight.data(),
                                         .position = position.data(),
                                         .position_ids = ids.positions.data(),
                                         .dropout = ids.dropout,
                                         .scale = 22.6f,
                                         .y = y.data(),
                                         .rows = rows,
                                         .cols = cols,
                                         .vocabulary = vocabulary,
                                         .positions = 64});
  }
  state.SetBytesProcessed(state.iterations() * rows * cols * 3 * 4);
}

void embedding_backward(benchmark::State& state) {
  const int64_t rows = state.range(0), cols = state.range(1), vocabulary = state.range(2);
  const Ids ids(state);
  const std::vector<float> gy(rows * cols, 0.5f);
  std::vector<float> gweight(vocabulary * cols), gposition(64 * cols);
  for (auto _ : state) {
    heed::cpu::embedding_backward<float>({.gy = gy.data(),
                                          .ids = ids.ids.data(),
                                          .position_ids = ids.positions.data(),
                                          .dropout = ids.dropout,
                                          .scale = 22.6f,
                                          .padding_id = heed::kNoToken,
                                          .gweight = gweight.data(),
                                          .gposition = gposition.data(),
                                          .accumulate_weight = true,
                                          .accumulate_position = true,
                                          .rows = rows,
                                          .cols = cols,
                                          .vocabulary = vocabulary,
                                          .positions = 64});
  }
  state.SetBytesProcessed(state.iterations() * rows * cols * 2 * 4);
}

void shapes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"rows", "cols", "vocabulary", "dropout%"})->UseRealTime();
  for (const int64_t rate : {0, 10}) b->Args({1280, 128, 13, rate})->Args({8192, 512, 32000, rate});
}

BENCHMARK(embedding_forward)->Apply(shapes);
BENCHMARK(embedding_backward)->Apply(shapes);

}  // namespace

BENCHMARK_MAIN();
