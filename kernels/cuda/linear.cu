#include <algorithm>

#include <heed/kernels/cuda/activation.cuh>
#include <heed/kernels/cuda/column_sums.cuh>
#include <heed/kernels/cuda/dropout_mask.cuh>
#include <heed/kernels/cuda/elementwise.cuh>
#include <heed/kernels/cuda/gemm/gemm.h>
#include <heed/kernels/linear.h>

namespace heed::cuda {
namespace {

using kernels::LinearActivationBackward;
using kernels::LinearBackward;
using kernels::LinearForward;

// y = dropout(f(x)), x being the product with its bias.
template <class T>
struct FinishOp {
  static constexpr int kOperands = 1, kWidth = kVectorWidth<T>;
  Activation activation;
  Dropout dropout;
  const T* x;
  T* y;

  bool aligned() const { return aligned_for<kWidth>(x) && aligned_for<kWidth>(y); }

  template <int kWidth>
  __device__ __forceinline__ void run(const int64_t (&at)[1], unsigned) const {
    float v[kWidth];
    load(v, x + at[0]);
    activate(activation, v);
    apply_dropout(v, dropout, at[0]);
    store(y + at[0], v);
  }
};

constexpr int kColumnThreads = 32;  // side by side
constexpr int kRowThreads = 8;
constexpr int64_t kMaxSlices = 64;  // of the rows: a constant, so that the bits depend on the shape alone

template <int kWidth>
struct TileSums {
  float value[kRowThreads][kColumnThreads * kWidth];
};

template <class T>
struct BackwardWork {
  LinearActivationBackward<T> args;
  float* partials;  // [gridDim.y, out], the sums over a block's rows; null if they are not wanted
};

// A block takes kColumnThreads * kWidth columns of every gridDim.y-th stretch of kRowThreads rows.
// Budget: 64 registers, 8192 bytes shared.
template <class T, int kWidth>
__global__ void __launch_bounds__(kColumnThreads* kRowThreads)
    backward_kernel(simt::Dependent<BackwardWork<T>> arguments) {
  const BackwardWork<T>& work = arguments.wait();
  const LinearActivationBackward<T>& args = work.args;
  auto& tile = simt::shared<TileSums<kWidth>>();
  const int64_t col = (int64_t{blockIdx.x} * kColumnThreads + threadIdx.x) * kWidth;
  const bool inside = col < args.out;
  float sum[kWidth] = {};
  for (int64_t row = int64_t{blockIdx.y} * kRowThreads + threadIdx.y; inside && row < args.rows;
       row += int64_t{gridDim.y} * kRowThreads) {
    const int64_t at = row * args.out + col;
    float g[kWidth];
    load(g, args.gy + at);
    if (args.activation == Activation::relu) {  // y also tells what was dropped
      const float scale = args.dropout.active() ? args.dropout.scale : 1.0f;
      float y[kWidth];
      load(y, args.saved + at);
      for (int j = 0; j < kWidth; ++j) g[j] = y[j] <= 0.0f ? 0.0f : g[j] * scale;
    } else {
      apply_dropout(g, args.dropout, at);
      if (args.activation != Activation::none) {
        float slope[kWidth];
        load(slope, args.saved + at);
        activation_slope(args.activation, slope);
        for (int j = 0; j < kWidth; ++j) g[j] *= slope[j];
      }
    }
    if (args.gpre != nullptr) store(args.gpre + at, g);
    for (int j = 0; j < kWidth; ++j) sum[j] += g[j];
  }
  if (work.partials == nullptr) return;
  for (int j = 0; j < kWidth; ++j) tile.value[threadIdx.y][threadIdx.x * kWidth + j] = sum[j];
  __syncthreads();
  const int thread = static_cast<int>(threadIdx.y) * kColumnThreads + static_cast<int>(threadIdx.x);
  const int64_t first = int64_t{blockIdx.x} * kColumnThreads * kWidth;
  for (int c = thread; c < kColumnThreads * kWidth && first + c < args.out;
       c += kColumnThreads * kRowThreads) {
    float total = 0.0f;
    for (int row = 0; row < kRowThreads; ++row) total += tile.value[row][c];
    work.partials[blockIdx.y * args.out + first + c] = total;
  }
}

// `what` is the operation that launches.
template <class T>
void backward_rows(const char* what, const LinearActivationBackward<T>& args) {
  const int64_t stretches = simt::ceil_div<int64_t>(args.rows, kRowThreads);
  const int64_t slices =
      args.gbias == nullptr ? std::min<int64_t>(stretches, 65535) : std::min(stretches, kMaxSlices);
  const Scratch scratch(args.gbias == nullptr ? 0 : static_cast<size_t>(slices * args.out) * sizeof(float));
  float* const partials = args.gbias == nullptr ? nullptr : scratch.as<float>();
  const auto run = [&]<int kWidth>() {
    const dim3 grid(static_cast<unsigned>(simt::ceil_div<int64_t>(args.out, kColumnThreads * kWidth)),
                    static_cast<unsigned>(slices));
    launch(what, backward_kernel<T, kWidth>, grid, dim3(kColumnThreads, kRowThreads), 0,
           BackwardWork<T>{args, partials});
  };
  if (args.rows > 0) {
    if (vectorizable<T>(args.out, args.gy, args.saved, args.gpre))
      run.template operator()<kVectorWidth<T>>();
    else
      run.template operator()<1>();
  }
  if (args.gbias != nullptr)
    add_partials(what, {{{partials, args.gbias, args.accumulate_bias}, {}}, slices, args.out});
}

}  // namespace

template <class T>
void linear_forward(const LinearForward<T>& args) {
  constexpr const char* kWhat = "linear_forward";
  if (args.rows == 0 || args.out == 0) return;
  T* const product = args.pre_activation != nullptr ? args.pre_activation : args.y;
  multiply(kWhat, FusedGemm<T>{.product = {.a = args.x,
                                           .b = args.weight,
                                           .c = product,
                                           .m = args.rows,
                                           .n = args.out,
                                           .k = args.in,
                                           .lda = std::max<int64_t>(args.in, 1),
                                           .ldb = std::max<int64_t>(args.in, 1),
                                           .ldc = args.out,
                                           .transpose_b = true},
                               .bias = args.bias});
  if (product != args.y || args.activation != Activation::none || args.dropout.active())
    elementwise(kWhat, FinishOp<T>{args.activation, args.dropout, product, args.y},
                single_run<1>(args.rows * args.out));
}

template <class T>
void linear_activation_backward(const LinearActivationBackward<T>& args) {
  if (args.out > 0 && (args.gpre != nullptr || args.gbias != nullptr))
    backward_rows("linear_activation_backward", args);
}

template <class T>
void linear_backward(const LinearBackward<T>& args) {
  if (args.out > 0 && args.gbias != nullptr) backward_rows("linear_backward", args.bias_sums());
  if (args.gweight != nullptr) gemm(args.weight_product());
  if (args.gx != nullptr) gemm(args.input_product());
}

#define HEED_INSTANTIATE(T)                                                        \
  template void linear_forward<T>(const LinearForward<T>&);                        \
  template void linear_activation_backward<T>(const LinearActivationBackward<T>&); \
  template void linear_backward<T>(const LinearBackward<T>&);
HEED_INSTANTIATE(float)
HEED_INSTANTIATE(bfloat16)
#undef HEED_INSTANTIATE

}  // namespace heed::cuda
