// Layer norm, and residual + dropout + layer norm as of a post-norm block, on the device; the bytes are those
// that must be read and written once.
#include <memory>
#include <string>

#include <heed/core/base/bfloat16.h>
#include <heed/kernels/norm.h>
#include <heed/kernels/runtime.h>

#include "device_bench.h"

namespace {

using namespace heed;
using bench::DeviceArray;

constexpr double kEps = 1e-5;

/// The operands of one call, on the device or on the host. Without a residual only x, gy, y and gx of the
/// first line are used.
template <class T>
struct Operands {
  T *x, *gy, *y, *gx, *residual, *sum, *gresidual;
  const T *weight, *bias;
  float *mean, *rstd, *gweight, *gbias;
  bool* invertible;
  int64_t rows, cols;

  static Dropout dropout() { return make_dropout(0.1, {.seed = 5, .base = nullptr, .offset = 9}); }

  kernels::NormForward<T> forward(bool with_residual) const {
    return {.kind = NormKind::layer,
            .residual = with_residual ? residual : nullptr,
            .x = x,
            .weight = weight,
            .bias = bias,
            .dropout = with_residual ? dropout() : Dropout(),
            .sum = with_residual ? sum : nullptr,
            .y = y,
            .mean = mean,
            .rstd = rstd,
            .keep_mask = nullptr,
            .again = false,
            .rows = rows,
            .cols = cols,
            .eps = kEps,
            .post = with_residual,
            .invertible = with_residual ? invertible : nullptr};
  }
  kernels::NormBackward<T> backward(bool with_residual) const {
    return {.kind = NormKind::layer,
            .residual = with_residual,
            .gy = gy,
            .gsum = nullptr,
            .sum = with_residual ? sum : x,
            .weight = weight,
            .mean = mean,
            .rstd = rstd,
            .dropout = with_residual ? dropout() : Dropout(),
            .keep_mask = nullptr,
            .gresidual = with_residual ? gresidual : nullptr,
            .gx = gx,
            .gweight = gweight,
            .gbias = gbias,
            .accumulate_residual = false,
            .accumulate_x = false,
            .accumulate_weight = false,
            .accumulate_bias = false,
            .rows = rows,
            .cols = cols,
            .y = with_residual ? y : nullptr,
            .bias = with_residual ? bias : nullptr,
            .invertible = with_residual ? invertible : nullptr};
  }
};

template <class T, bool kResidual>
class Problem {
 public:
  Problem(int64_t rows, int64_t cols)
      : rows_(rows),
        cols_(cols),
        weight_(cols, kType, 3, 3),
        bias_(cols, kType, 4),
        mean_(rows, DType::f32),
        rstd_(rows, DType::f32),
        gweight_(cols, DType::f32),
        gbias_(cols, DType::f32),
        invertible_(1, DType::boolean) {
    const int64_t count = rows * cols, of_residual = kResidual ? count : 1;
    const int sets = bench::rotation((kResidual ? 4 : 2) * count * static_cast<int64_t>(sizeof(T)));
    for (int i = 0; i < sets; ++i) {
      const auto seed = static_cast<uint64_t>(10 * i);
      sets_.push_back({DeviceArray(count, kType, seed + 1, 0.5f), DeviceArray(count, kType, seed + 2),
                       DeviceArray(count, kType), DeviceArray(count, kType),
                       DeviceArray(of_residual, kType, seed + 5), DeviceArray(of_residual, kType),
                       DeviceArray(of_residual, kType)});
    }
    for (int i = sets - 1; i >= 0; --i) forward(i);
    backward(0);
    wrong_ = compare();
  }

  int sets() const { return static_cast<int>(sets_.size()); }
  const std::string& wrong() const { return wrong_; }

  void forward(int i) const { cuda::norm_forward(on_device(i).forward(kResidual)); }
  void backward(int i) const { cuda::norm_backward(on_device(i).backward(kResidual)); }

 private:
  static constexpr DType kType = dtype_of<T>();

  struct Set {
    DeviceArray x, gy, y, gx, residual, sum, gresidual;
  };

  Operands<T> on_device(int i) const {
    const Set& s = sets_[static_cast<size_t>(i)];
    const auto values = [](const DeviceArray& array) { return array.as<T>(); };
    const auto floats = [](const DeviceArray& array) { return array.as<float>(); };
    return {values(s.x),   values(s.gy),        values(s.y),     values(s.gx),           values(s.residual),
            values(s.sum), values(s.gresidual), values(weight_), values(bias_),          floats(mean_),
            floats(rstd_), floats(gweight_),    floats(gbias_),  invertible_.as<bool>(), rows_,
            cols_};
  }

  // The first set against the CPU's kernels; empty if all is right.
  std::string compare() const {
    const Set& s = sets_[0];
    const auto host = [](const DeviceArray& array) { return array.template get<T>(); };
    std::vector<T> x = host(s.x), gy = host(s.gy), residual = host(s.residual), y(x.size()), gx(x.size()),
                   sum(residual.size()), gresidual(residual.size());
    const std::vector<T> weight = host(weight_), bias = host(bias_);
    std::vector<float> mean(static_cast<size_t>(rows_)), rstd(mean.size()),
        gweight(static_cast<size_t>(cols_)), gbias(gweight.size());
    const Operands<T> operands{x.data(),    gy.data(),        y.data(),      gx.data(),   residual.data(),
                               sum.data(),  gresidual.data(), weight.data(), bias.data(), mean.data(),
                               rstd.data(), gweight.data(),   gbias.data(),  nullptr,     rows_,
                               cols_};
    cpu::norm_forward(operands.forward(kResidual));
    cpu::norm_backward(operands.backward(kResidual));
    const double unit = sizeof(T) == 2 ? 0x1p-8 : 0x1p-20;
    std::string wrong;
    const auto expect = [&](const char* name, double error, double bound) {
      if (!(error <= bound))
        wrong += std::string(wrong.empty() ? "" : ", ") + name + " is off by " + std::to_string(error);
    };
    expect("y", bench::relative_error(host(s.y), y), unit);
    expect("gx", bench::relative_error(host(s.gx), gx), unit);
    if (kResidual) {
      expect("gresidual", bench::relative_error(host(s.gresidual), gresidual), unit);
      expect("whether y is taken", 1.0 - invertible_.template get<uint8_t>()[0], 0);
    }
    const bool from_y = kResidual && sizeof(T) == 2;  // which is rounded
    expect("gweight", bench::relative_error(gweight_.template get<float>(), gweight),
           from_y ? unit : 0x1p-14);
    expect("gbias", bench::relative_error(gbias_.template get<float>(), gbias), 0x1p-14);
    return wrong;
  }

  int64_t rows_, cols_;
  DeviceArray weight_, bias_, mean_, rstd_, gweight_, gbias_, invertible_;
  std::vector<Set> sets_;
  std::string wrong_;
};

// Google Benchmark calls a function several times: the problem is kept until another shape is asked for.
template <class T, bool kResidual>
const Problem<T, kResidual>& problem(int64_t rows, int64_t cols) {
  static std::unique_ptr<Problem<T, kResidual>> kept;
  static int64_t kept_rows = 0, kept_cols = 0;
  if (!kept || kept_rows != rows || kept_cols != cols) {
    kept.reset();
    kept = std::make_unique<Problem<T, kResidual>>(rows, cols);
    kept_rows = rows;
    kept_cols = cols;
  }
  return *kept;
}

template <class T, bool kResidual, bool kBackward>
void layer_norm(benchmark::State& state) {
  const int64_t rows = state.range(0), cols = state.range(1), count = rows * cols;
  const Problem<T, kResidual>& p = problem<T, kResidual>(rows, cols);
  if (!p.wrong().empty()) return state.SkipWithError(p.wrong().c_str());
  const int64_t passes = 2 + kBackward + kResidual;  // of an element from or to memory
  const int64_t moved = passes * count * static_cast<int64_t>(sizeof(T)) + 8 * rows;
  bench::time_on_device(state, p.sets(), moved, [&](int i) { kBackward ? p.backward(i) : p.forward(i); });
}

struct Shape {
  int64_t rows, cols;
};
constexpr Shape kShapes[] = {{131072, 128}, {16384, 1024}, {16384, 4096}, {4096, 8192}, {1024, 12288}};
constexpr Shape kResidualShapes[] = {{131072, 128}, {16384, 1024}};

template <class T>
void add(const std::string& dtype) {
  const auto each = [&](const char* name, void (*function)(benchmark::State&), const auto& shapes) {
    auto* bench = bench::add(name + dtype, function);
    if (bench::emulated()) {
      bench->Args({37, 96});
      return;
    }
    for (const Shape& shape : shapes) bench->Args({shape.rows, shape.cols});
  };
  each("residual_layer_norm_forward/", layer_norm<T, true, false>, kResidualShapes);
  each("residual_layer_norm_backward/", layer_norm<T, true, true>, kResidualShapes);
  each("layer_norm_forward/", layer_norm<T, false, false>, kShapes);
  each("layer_norm_backward/", layer_norm<T, false, true>, kShapes);
}

}  // namespace

int main(int argc, char** argv) {
  add<float>("f32");
  add<bfloat16>("bf16");
  return bench::run_benchmarks(argc, argv);
}
