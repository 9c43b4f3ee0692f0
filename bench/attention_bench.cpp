// Attention forward and backward, in GFLOP/s of the products it needs (2 of them forward, 5 backward).
#include <cmath>
#include <random>
#include <vector>

#include <benchmark/benchmark.h>

#include <heed/kernels/attention.h>

namespace {

using heed::bfloat16;

/// Self-attention over columns of a fused [rows, 3 D] matrix.
template <class T>
struct Problem {
  int64_t batch, length, heads, width, model, rows;
  std::vector<T> qkv, out, gout, gqkv;
  std::vector<float> lse;
  std::vector<int64_t> first;
  std::vector<int32_t> lengths;
  heed::Visibility visibility;
  heed::Dropout dropout;

  explicit Problem(const benchmark::State& state)
      : batch(state.range(0)),
        length(state.range(1)),
        heads(state.range(2)),
        width(state.range(3)),
        model(heads * width),
        rows(batch * length),
        qkv(rows * 3 * model),
        out(rows * model),
        gout(rows * model),
        gqkv(rows * 3 * model),
        lse(rows * heads),
        lengths(batch, static_cast<int32_t>(length)) {
    std::mt19937 engine(1);
    std::normal_distribution<float> normal;
    for (T& value : qkv) value = T(normal(engine));
    for (T& value : gout) value = T(normal(engine));
    for (int64_t i = 0; i < batch; ++i) first.push_back(i * length);
    if (state.range(4)) visibility.causal = heed::Causal::top_left;
    dropout = heed::make_dropout(static_cast<double>(state.range(5)) / 100, {1, nullptr, 0});
  }

  /// q, k or v in the rows of qkv.
  template <class U>
  heed::kernels::HeadsView<U> part(U* from, int64_t number) const {
    return {from + number * model, 3 * model, width};
  }
  template <class U>
  heed::kernels::HeadsView<U> whole(U* from) const {
    return {from, model, width};
  }

  heed::SegmentsView segments() const {
    const auto n = static_cast<int32_t>(length);
    return {batch, first.data(), first.data(), lengths.data(), lengths.data(), n, n, rows, rows};
  }

  heed::kernels::AttentionScores<T> scores() const {
    return {.q = part(qkv.data(), 0),
            .k = part(qkv.data(), 1),
            .segments = segments(),
            .query_rows = rows,
            .key_rows = rows,
            .heads = heads,
            .key_heads = heads,
            .width = width,
            .scale = 1 / std::sqrt(static_cast<double>(width)),
            .logit_cap = 0,
            .visibility = visibility,
            .bias = {}};
  }

  void forward() {
    heed::cpu::attention_forward<T>(
        {scores(), part<const T>(qkv.data(), 2), dropout, whole(out.data()), lse.data()});
  }

  void backward() {
    heed::cpu::attention_backward<T>({scores(), part<const T>(qkv.data(), 2), dropout,
                                      whole<const T>(out.data()), whole<const T>(gout.data()), lse.data(),
                                      part(gqkv.data(), 0), part(gqkv.data(), 1), part(gqkv.data(), 2), false,
                                      false, false, nullptr, nullptr});
  }

  /// Multiply-adds count as two; of a causal triangle only the visible part does.
  void report(benchmark::State& state, int products) const {
    const double pairs = visibility.causal == heed::Causal::none ? double(length) * double(length)
                                                                 : double(length) * double(length + 1) / 2;
    const double flops = 2.0 * products * double(batch * heads) * pairs * double(width);
    state.counters["GFLOP/s"] =
        benchmark::Counter(flops * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
  }
};

template <class T>
void forward(benchmark::State& state) {
  Problem<T> problem(state);
  for (auto _ : state) problem.forward();
  problem.report(state, 2);
}

template <class T>
void backward(benchmark::State& state) {
  Problem<T> problem(state);
  problem.forward();
  for (auto _ : state) problem.backward();
  problem.report(state, 5);
}

void shapes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"batch", "length", "heads", "width", "causal", "dropout%"})->UseRealTime();
  for (const int64_t length : {12, 16, 20, 21}) b->Args({64, length, 8, 16, 0, 0});
  b->Args({64, 20, 8, 16, 1, 0})->Args({64, 20, 8, 16, 0, 10})->Args({4, 128, 8, 64, 0, 0});
  b->Args({1, 1024, 8, 64, 0, 0})->Args({1, 1024, 8, 64, 1, 0})->Args({1, 1024, 8, 64, 0, 10});
  b->Args({1, 4096, 8, 64, 0, 0})->Args({1, 16384, 1, 64, 0, 0});
}

BENCHMARK(forward<float>)->Apply(shapes);
BENCHMARK(backward<float>)->Apply(shapes);
BENCHMARK(forward<bfloat16>)->Apply(shapes);
BENCHMARK(backward<bfloat16>)->Apply(shapes);

}  // namespace

BENCHMARK_MAIN();
