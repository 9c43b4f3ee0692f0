// Matrix products by cuBLASLt: the rate that the other kernels' are a share of. (On the emulated device the
// CPU's products take its place.)
#include <string>
#include <vector>

#include <heed/core/base/bfloat16.h>
#include <heed/kernels/gemm.h>
#include <heed/kernels/runtime.h>

#include "device_bench.h"

namespace {

using namespace heed;
using bench::DeviceArray;

/// C = A Bᵀ, as a linear layer has it.
template <class T>
class Product {
 public:
  Product(int64_t m, int64_t n, int64_t k)
      : m_(m), n_(n), k_(k), a_(m * k, kType, 1), b_(n * k, kType, 2), c_(m * n, kType) {
    (*this)();
    wrong_ = compare();
  }

  void operator()() const {
    cuda::gemm(kernels::Gemm<T>{.a = a_.template as<T>(),
                                .b = b_.template as<T>(),
                                .c = c_.template as<T>(),
                                .m = m_,
                                .n = n_,
                                .k = k_,
                                .lda = k_,
                                .ldb = k_,
                                .ldc = n_,
                                .transpose_b = true});
  }
  const std::string& wrong() const { return wrong_; }

 private:
  static constexpr DType kType = dtype_of<T>();

  // Some elements, spread over all, against sums in f64; empty if all is right.
  std::string compare() const {
    const std::vector<T> a = a_.template get<T>(), b = b_.template get<T>(), c = c_.template get<T>();
    std::vector<T> got;
    std::vector<double> want;
    constexpr int64_t kLooked = 1000;
    for (int64_t i = 0; i < kLooked; ++i) {
      const int64_t place = i * (m_ * n_ - 1) / (kLooked - 1), row = place / n_, col = place % n_;
      double sum = 0;
      for (int64_t j = 0; j < k_; ++j)
        sum += static_cast<double>(static_cast<float>(a[static_cast<size_t>(row * k_ + j)])) *
               static_cast<double>(static_cast<float>(b[static_cast<size_t>(col * k_ + j)]));
      got.push_back(c[static_cast<size_t>(place)]);
      want.push_back(sum);
    }
    const double error = bench::relative_error(got, want);
    return error <= (sizeof(T) == 2 ? 0x1p-8 : 0x1p-18) ? "" : "c is off by " + std::to_string(error);
  }

  int64_t m_, n_, k_;
  DeviceArray a_, b_, c_;
  std::string wrong_;
};

template <class T>
void product(benchmark::State& state) {
  const int64_t m = state.range(0), n = state.range(1), k = state.range(2);
  const Product<T> p(m, n, k);
  if (!p.wrong().empty()) return state.SkipWithError(p.wrong().c_str());
  bench::time_on_device(state, 1, (m * k + n * k + m * n) * static_cast<int64_t>(sizeof(T)),
                        [&](int) { p(); });
  state.counters["flops_per_second"] =
      benchmark::Counter(2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k),
                         benchmark::Counter::kIsIterationInvariantRate);
}

struct Shape {
  int64_t m, n, k;
};

void add(const char* name, void (*function)(benchmark::State&), const std::vector<Shape>& shapes) {
  auto* bench = bench::add(name, function);
  if (bench::emulated()) {
    bench->Args({33, 48, 40});
    return;
  }
  for (const Shape& s : shapes) bench->Args({s.m, s.n, s.k});
}

}  // namespace

int main(int argc, char** argv) {
  add("cublaslt/bf16", product<bfloat16>, {{8192, 8192, 8192}, {16384, 4096, 1024}});
  add("cublaslt/f32", product<float>, {{4096, 4096, 4096}});
  return bench::run_benchmarks(argc, argv);
}
