// Matrix products and linear layers of Transformer shapes. Every result is verified before it is timed; rates
// are in GFLOP/s, the benchmark `machine` being what the cores can do at all.
//
//   gemm_bench --benchmark_repetitions=5 --benchmark_enable_random_interleaving=true
#include <algorithm>
#include <cmath>
#include <new>
#include <random>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include <heed/core/base/threads/parallel_for.h>
#include <heed/kernels/cpu/gemm/gemm_path.h>
#include <heed/kernels/cpu/simd/isa.h>
#include <heed/kernels/gemm.h>
#include <heed/kernels/linear.h>

namespace heed {
namespace {

enum class Layout { nt, nn, tn };
const char* name(Layout layout) { return layout == Layout::nt ? "NT" : layout == Layout::nn ? "NN" : "TN"; }

struct Shape {
  Layout layout;
  int64_t m, n, k;
};

std::vector<Shape> shapes() {
  std::vector<Shape> all;
  const int64_t layers[][2] = {{128, 128}, {384, 128}, {256, 128}, {512, 128}, {128, 512}, {20, 128}};
  for (int64_t rows : {384, 672}) {
    for (const auto& [out, in] : layers) {
      all.push_back({Layout::nt, rows, out, in});  // y = x Wᵀ
      all.push_back({Layout::nn, rows, in, out});  // gx = gy W
      all.push_back({Layout::tn, out, in, rows});  // gW = gyᵀ x
    }
  }
  for (Layout layout : {Layout::nt, Layout::nn, Layout::tn}) {
    all.push_back({layout, 672, 2048, 512});
    all.push_back({layout, 672, 512, 2048});
    all.push_back({layout, 1024, 1024, 1024});
  }
  return all;
}

template <class T>
struct LineAllocator {
  using value_type = T;
  static constexpr std::align_val_t kLine{64};

  T* allocate(size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), kLine)); }
  void deallocate(T* p, size_t) { ::operator delete(p, kLine); }
  bool operator==(const LineAllocator&) const { return true; }
};
/// Begins with a line of memory, as tensors do.
template <class T>
using Values = std::vector<T, LineAllocator<T>>;

template <class T>
Values<T> random_values(int64_t count, uint32_t seed) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  Values<T> values(static_cast<size_t>(count));
  for (T& value : values) value = T(uniform(engine));
  return values;
}

void report(benchmark::State& state, double operations) {
  state.counters["GFLOP/s"] =
      benchmark::Counter(operations * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

/// Whether a few elements of c agree with a plain sum in double.
template <class T>
bool verify(const kernels::Gemm<T>& g) {
  const double tolerance = sizeof(T) == 2 ? 0.01 : sizeof(T) == 4 ? 1e-4 : 1e-11;
  for (int64_t i = 0; i < g.m; i += std::max<int64_t>(g.m / 5, 1)) {
    for (int64_t j = 0; j < g.n; j += std::max<int64_t>(g.n / 7, 1)) {
      double sum = 0, size = 0;
      for (int64_t p = 0; p < g.k; ++p) {
        const double term = double(g.a[g.transpose_a ? p * g.lda + i : i * g.lda + p]) *
                            double(g.b[g.transpose_b ? j * g.ldb + p : p * g.ldb + j]);
        sum += term;
        size += std::fabs(term);
      }
      if (!(std::fabs(double(g.c[i * g.ldc + j]) - sum) <= tolerance * size)) return false;
    }
  }
  return true;
}

template <class T>
void gemm(benchmark::State& state, Shape s, cpu::GemmBackend backend) {
  const auto a = random_values<T>(s.m * s.k, 1), b = random_values<T>(s.k * s.n, 2);
  Values<T> c(static_cast<size_t>(s.m * s.n));
  const bool ta = s.layout == Layout::tn, tb = s.layout == Layout::nt;
  const kernels::Gemm<T> args{
      a.data(), b.data(), c.data(), s.m, s.n, s.k, ta ? s.m : s.k, tb ? s.k : s.n, s.n,
      ta,       tb,       1,        0,   0,   0,   1.0f,           false};
  cpu::set_gemm_backend(backend);
  cpu::gemm(args);
  if (!verify(args)) state.SkipWithError("wrong result");
  for (auto _ : state) cpu::gemm(args);
  cpu::set_gemm_backend(cpu::GemmBackend::automatic);
  report(state, 2.0 * double(s.m) * double(s.n) * double(s.k));
}

/// The feed-forward layer's first half, with all that is fused into it, and the pass that takes it back.
void linear(benchmark::State& state, bool backward) {
  const int64_t rows = 672, in = 128, out = 512;
  const auto x = random_values<float>(rows * in, 1), weight = random_values<float>(out * in, 2);
  const auto bias = random_values<float>(out, 3);
  Values<float> y(size_t(rows * out)), pre(size_t(rows * out)), gbias(static_cast<size_t>(out));
  const Dropout dropout = make_dropout(0.1, {1, nullptr, 0});
  const kernels::LinearForward<float> forward{.x = x.data(),
                                              .weight = weight.data(),
                                              .copies = nullptr,
                                              .bias = bias.data(),
                                              .activation = Activation::gelu,
                                              .dropout = dropout,
                                              .y = y.data(),
                                              .pre_activation = pre.data(),
                                              .rows = rows,
                                              .in = in,
                                              .out = out};
  cpu::linear_forward(forward);
  const Values<float> gy = random_values<float>(rows * out, 4);
  const kernels::LinearActivationBackward<float> args{
      gy.data(), pre.data(), Activation::gelu, dropout, y.data(), gbias.data(), false, rows, out};
  for (auto _ : state) {
    if (backward)
      cpu::linear_activation_backward(args);
    else
      cpu::linear_forward(forward);
  }
  if (backward) {
    state.counters["GB/s"] =
        benchmark::Counter(3.0 * 4e-9 * double(rows * out), benchmark::Counter::kIsIterationInvariantRate);
  } else {
    report(state, 2.0 * double(rows * out * in));
  }
}

/// As many independent multiply-adds as all cores can do: the machine's rate in f32 by vectors, which no
/// product by them exceeds. Two vectors of 96 columns stay in the first cache, so this is the GEMM at its
/// best size.
void machine(benchmark::State& state) {
  const int64_t m = 48, n = 96, k = 256, batch = 64;
  const auto a = random_values<float>(m * k, 1), b = random_values<float>(k * n, 2);
  Values<float> c(size_t(batch * m * n));
  const kernels::Gemm<float> args{a.data(), b.data(), c.data(), m, n, k,     k,    n,    n,
                                  false,    false,    batch,    0, 0, m * n, 1.0f, false};
  cpu::set_gemm_backend(cpu::GemmBackend::simd);
  for (auto _ : state) cpu::gemm(args);
  cpu::set_gemm_backend(cpu::GemmBackend::automatic);
  report(state, 2.0 * double(m * n * k * batch));
}

template <class T>
void add(const char* type, const char* suffix, cpu::GemmBackend backend) {
  for (const Shape& s : shapes()) {
    const std::string title = std::string("gemm/") + type + suffix + "/" + name(s.layout) +
                              "/m:" + std::to_string(s.m) + "/n:" + std::to_string(s.n) +
                              "/k:" + std::to_string(s.k);
    benchmark::RegisterBenchmark(title.c_str(), [=](benchmark::State& state) { gemm<T>(state, s, backend); })
        ->UseRealTime()
        ->Unit(benchmark::kMicrosecond);
  }
}

}  // namespace
}  // namespace heed

int main(int argc, char** argv) {
  using namespace heed;
  benchmark::AddCustomContext("heed_isa", cpu::name(cpu::isa()));
  benchmark::AddCustomContext("heed_threads", std::to_string(thread_count()));
  benchmark::RegisterBenchmark("machine", machine)->UseRealTime();
  add<float>("f32", "", cpu::GemmBackend::automatic);
  add<bfloat16>("bf16", "", cpu::GemmBackend::automatic);
  add<double>("f64", "", cpu::GemmBackend::automatic);
  add<float>("f32", "-simd", cpu::GemmBackend::simd);
  add<float>("f32", "-amx", cpu::GemmBackend::amx);
  add<float>("f32", "-onednn", cpu::GemmBackend::onednn);
  add<bfloat16>("bf16", "-simd", cpu::GemmBackend::simd);
  add<bfloat16>("bf16", "-amx", cpu::GemmBackend::amx);
  add<bfloat16>("bf16", "-onednn", cpu::GemmBackend::onednn);
  benchmark::RegisterBenchmark("linear_forward/gelu", linear, false)
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond);
  benchmark::RegisterBenchmark("linear_activation_backward/gelu", linear, true)
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
