// Layer norm on the device; the bytes are those that it must read and write once.
#include <memory>
#include <string>

#include <heed/core/base/bfloat16.h>
#include <heed/kernels/layer_norm.h>
#include <heed/kernels/runtime.h>

#include "device_bench.h"

namespace {

using namespace heed;
using bench::DeviceArray;

constexpr double kEps = 1e-5;

template <class T>
struct Set {
  DeviceArray x, gy, y, gx;
};

template <class T>
class Problem {
 public:
  Problem(int64_t rows, int64_t cols)
      : rows_(rows),
        cols_(cols),
        weight_(cols, kType, 3, 1),
        bias_(cols, kType, 4),
        mean_(rows, DType::f32),
        rstd_(rows, DType::f32),
        gweight_(cols, DType::f32),
        gbias_(cols, DType::f32) {
    const int64_t count = rows * cols;
    const int sets = bench::rotation(2 * count * static_cast<int64_t>(sizeof(T)));
    for (int i = 0; i < sets; ++i) {
      const auto seed = static_cast<uint64_t>(10 * i);
      sets_.push_back({DeviceArray(count, kType, seed + 1, 0.5f), DeviceArray(count, kType, seed + 2),
                       DeviceArray(count, kType), DeviceArray(count, kType)});
    }
    for (int i = sets - 1; i >= 0; --i) forward(i);
    backward(0);
    wrong_ = compare();
  }

  int sets() const { return static_cast<int>(sets_.size()); }
  const std::string& wrong() const { return wrong_; }

  void forward(int i) const {
    const Set<T>& s = sets_[static_cast<size_t>(i)];
    cuda::layer_norm_forward(forward_args(s.x, weight_, bias_, s.y, mean_, rstd_));
  }

  void backward(int i) const {
    const Set<T>& s = sets_[static_cast<size_t>(i)];
    cuda::layer_norm_backward(backward_args(s.gy, s.x, weight_, mean_, rstd_, s.gx, gweight_, gbias_));
  }

 private:
  static constexpr DType kType = dtype_of<T>();

  // Device arrays and host vectors alike.
  static T* values(const DeviceArray& a) { return a.as<T>(); }
  static T* values(std::vector<T>& v) { return v.data(); }
  static float* floats(const DeviceArray& a) { return a.as<float>(); }
  static float* floats(std::vector<float>& v) { return v.data(); }

  template <class X, class W, class Y, class S>
  kernels::LayerNormForward<T> forward_args(X& x, W& weight, W& bias, Y& y, S& mean, S& rstd) const {
    return {values(x),    values(weight), values(bias), values(y), floats(mean),
            floats(rstd), rows_,          cols_,        kEps};
  }

  template <class X, class W, class S>
  kernels::LayerNormBackward<T> backward_args(X& gy, X& x, W& weight, S& mean, S& rstd, X& gx, S& gweight,
                                              S& gbias) const {
    return {values(gy),    values(x), values(weight), floats(mean), floats(rstd), values(gx), floats(gweight),
            floats(gbias), false,     false,          false,        rows_,        cols_};
  }

  // The first set against the CPU's kernels; empty if all is right.
  std::string compare() const {
    const Set<T>& s = sets_[0];
    auto x = s.x.template get<T>(), gy = s.gy.template get<T>(), weight = weight_.template get<T>(),
         bias = bias_.template get<T>();
    std::vector<T> y(x.size()), gx(x.size());
    std::vector<float> mean(static_cast<size_t>(rows_)), rstd(mean.size()),
        gweight(static_cast<size_t>(cols_)), gbias(gweight.size());
    cpu::layer_norm_forward(forward_args(x, weight, bias, y, mean, rstd));
    cpu::layer_norm_backward(backward_args(gy, x, weight, mean, rstd, gx, gweight, gbias));
    const double unit = sizeof(T) == 2 ? 0x1p-8 : 0x1p-20;
    std::string wrong;
    const auto expect = [&](const char* name, double error, double bound) {
      if (!(error <= bound))
        wrong += std::string(wrong.empty() ? "" : ", ") + name + " is off by " + std::to_string(error);
    };
    expect("y", bench::relative_error(s.y.template get<T>(), y), unit);
    expect("gx", bench::relative_error(s.gx.template get<T>(), gx), unit);
    expect("gweight", bench::relative_error(gweight_.template get<float>(), gweight), 0x1p-14);
    expect("gbias", bench::relative_error(gbias_.template get<float>(), gbias), 0x1p-14);
    return wrong;
  }

  int64_t rows_, cols_;
  DeviceArray weight_, bias_, mean_, rstd_, gweight_, gbias_;
  std::vector<Set<T>> sets_;
  std::string wrong_;
};

// Google Benchmark calls a function several times: the problem is kept until another shape is asked for.
template <class T>
const Problem<T>& problem(int64_t rows, int64_t cols) {
  static std::unique_ptr<Problem<T>> kept;
  static int64_t kept_rows = 0, kept_cols = 0;
  if (!kept || kept_rows != rows || kept_cols != cols) {
    kept.reset();
    kept = std::make_unique<Problem<T>>(rows, cols);
    kept_rows = rows;
    kept_cols = cols;
  }
  return *kept;
}

template <class T, bool kBackward>
void layer_norm(benchmark::State& state) {
  const int64_t rows = state.range(0), cols = state.range(1), count = rows * cols;
  const Problem<T>& p = problem<T>(rows, cols);
  if (!p.wrong().empty()) return state.SkipWithError(p.wrong().c_str());
  const int64_t moved = (kBackward ? 3 : 2) * count * static_cast<int64_t>(sizeof(T)) + 8 * rows;
  bench::time_on_device(state, p.sets(), moved, [&](int i) { kBackward ? p.backward(i) : p.forward(i); });
}

struct Shape {
  int64_t rows, cols;
};
constexpr Shape kShapes[] = {{131072, 128}, {32768, 512}, {16384, 1024}, {16384, 4096}, {1024, 12288}};

void add(const char* name, void (*function)(benchmark::State&)) {
  auto* bench = benchmark::RegisterBenchmark(name, function)->UseManualTime()->Unit(benchmark::kMicrosecond);
  if (bench::emulated()) {
    bench->Args({37, 96});
    return;
  }
  for (const Shape& shape : kShapes) bench->Args({shape.rows, shape.cols});
}

}  // namespace

int main(int argc, char** argv) {
  add("layer_norm_forward/f32", layer_norm<float, false>);
  add("layer_norm_backward/f32", layer_norm<float, true>);
  add("layer_norm_forward/bf16", layer_norm<bfloat16, false>);
  add("layer_norm_backward/bf16", layer_norm<bfloat16, true>);
  return bench::run_benchmarks(argc, argv);
}
