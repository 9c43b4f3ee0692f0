#include <cmath>
#include <vector>

#include <heed/core/base/parallel_for.h>
#include <heed/kernels/layer_norm.h>

namespace heed::cpu {
namespace {
constexpr int64_t kRowsPerTask = 16;
}

template <class T>
void layer_norm_forward(const kernels::LayerNormForward<T>& args) {
  using A = accumulator_t<T>;
  parallel_for(args.rows, kRowsPerTask, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T* x = args.x + r * args.cols;
      T* y = args.y + r * args.cols;
      A mean = 0, variance = 0;
      for (int64_t c = 0; c < args.cols; ++c) mean += A(x[c]);
      mean /= A(args.cols);
      for (int64_t c = 0; c < args.cols; ++c) variance += (A(x[c]) - mean) * (A(x[c]) - mean);
      const A rstd = A(1) / std::sqrt(variance / A(args.cols) + A(args.eps));
      for (int64_t c = 0; c < args.cols; ++c) {
        const A normed = (A(x[c]) - mean) * rstd;
        y[c] = T(normed * (args.weight ? A(args.weight[c]) : A(1)) + (args.bias ? A(args.bias[c]) : A(0)));
      }
      args.mean[r] = mean;
      args.rstd[r] = rstd;
    }
  });
}

template <class T>
void layer_norm_backward(const kernels::LayerNormBackward<T>& args) {
  using A = accumulator_t<T>;
  std::vector<A> gweight(args.cols), gbias(args.cols);
  for (int64_t r = 0; r < args.rows; ++r) {
    const T* x = args.x + r * args.cols;
    const T* gy = args.gy + r * args.cols;
    A sum = 0, dot = 0;  // means of g and of g * normed, with g = gy * weight
    for (int64_t c = 0; c < args.cols; ++c) {
      const A normed = (A(x[c]) - args.mean[r]) * args.rstd[r];
      const A g = A(gy[c]) * (args.weight ? A(args.weight[c]) : A(1));
      sum += g;
      dot += g * normed;
      gweight[c] += A(gy[c]) * normed;
      gbias[c] += A(gy[c]);
    }
    sum /= A(args.cols);
    dot /= A(args.cols);
    if (args.gx == nullptr) continue;
    T* gx = args.gx + r * args.cols;
    for (int64_t c = 0; c < args.cols; ++c) {
      const A normed = (A(x[c]) - args.mean[r]) * args.rstd[r];
      const A g = A(gy[c]) * (args.weight ? A(args.weight[c]) : A(1));
      gx[c] = T((g - sum - normed * dot) * args.rstd[r] + (args.accumulate_x ? A(gx[c]) : A(0)));
    }
  }
  for (int64_t c = 0; c < args.cols; ++c) {
    if (args.gweight) args.gweight[c] = gweight[c] + (args.accumulate_weight ? args.gweight[c] : A(0));
    if (args.gbias) args.gbias[c] = gbias[c] + (args.accumulate_bias ? args.gbias[c] : A(0));
  }
}

#define HEED_INSTANTIATE(T)                                                 \
  template void layer_norm_forward<T>(const kernels::LayerNormForward<T>&); \
  template void layer_norm_backward<T>(const kernels::LayerNormBackward<T>&);
HEED_INSTANTIATE(float)
HEED_INSTANTIATE(bfloat16)
HEED_INSTANTIATE(double)
#undef HEED_INSTANTIATE

}  // namespace heed::cpu
