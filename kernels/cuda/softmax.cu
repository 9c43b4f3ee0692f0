#include <heed/kernels/cuda/device.cuh>
#include <heed/kernels/cuda/rows.cuh>
#include <heed/kernels/softmax.h>

namespace heed::cuda {
namespace {

using kernels::SoftmaxBackward;
using kernels::SoftmaxForward;

// Budget: 104 registers, 96 bytes shared.
template <class T, int kThreads, int kWidth, bool kKeep>
__global__ void __launch_bounds__(kThreadsPerBlock<kThreads>) forward_kernel(SoftmaxForward<T> args) {
  const int64_t row = int64_t{blockIdx.x} * kGroupsPerBlock<kThreads> + threadIdx.x / kThreads;
  if (row >= args.rows) return;
  constexpr float kLowest = -kInfinity;
  const RowLayout<kThreads, kWidth, kKeep> layout(args.cols, threadIdx.x % kThreads);
  const RowPart<T, kThreads, kWidth, kKeep> x(layout, args.x + row * args.cols);

  float most = kLowest;
  layout.each([&](int piece, auto col) {
    float v[kWidth];
    x.read(v, piece, col);
    for (int j = 0; j < kWidth; ++j) most = fmaxf(most, v[j]);
  });
  most = group_max<kThreads>(most);
  const float shift = most == kLowest ? 0.0f : most;
  float sum = 0.0f;
  layout.each([&](int piece, auto col) {
    float v[kWidth];
    x.read(v, piece, col);
    for (int j = 0; j < kWidth; ++j) sum += expf(v[j] - shift);
  });
  sum = group_sum<kThreads>(sum);  // 0 only if every element is -inf
  const float inverse = sum == 0.0f ? 0.0f : 1.0f / sum, log_sum = sum == 0.0f ? 0.0f : logf(sum);
  T* y = args.y + row * args.cols;
  layout.each([&](int piece, auto col) {
    float v[kWidth];
    x.read(v, piece, col);
    for (int j = 0; j < kWidth; ++j) v[j] = args.log ? v[j] - shift - log_sum : expf(v[j] - shift) * inverse;
    store(y + col, v);
  });
}

// Budget: 152 registers, 64 bytes shared.
template <class T, int kThreads, int kWidth, bool kKeep>
__global__ void __launch_bounds__(kThreadsPerBlock<kThreads>) backward_kernel(SoftmaxBackward<T> args) {
  const int64_t row = int64_t{blockIdx.x} * kGroupsPerBlock<kThreads> + threadIdx.x / kThreads;
  if (row >= args.rows) return;
  constexpr float kLowest = -kInfinity;
  const RowLayout<kThreads, kWidth, kKeep> layout(args.cols, threadIdx.x % kThreads);
  const RowPart<T, kThreads, kWidth, kKeep> y(layout, args.y + row * args.cols);
  const RowPart<T, kThreads, kWidth, kKeep> gy(layout, args.gy + row * args.cols);

  float2 sums{0.0f, 0.0f};  // Σ gy y, or of the logarithm Σ gy; elements that are not -inf
  layout.each([&](int piece, auto col) {
    float out[kWidth], g[kWidth];
    y.read(out, piece, col);
    gy.read(g, piece, col);
    for (int j = 0; j < kWidth; ++j) {
      sums.x += args.log ? g[j] : g[j] * out[j];
      sums.y += out[j] != kLowest ? 1.0f : 0.0f;
    }
  });
  sums = group_sum<kThreads>(sums);
  const bool constant = args.log && sums.y == 0.0f;  // -inf whatever x does
  T* gx = args.gx + row * args.cols;
  layout.each([&](int piece, auto col) {
    float out[kWidth], g[kWidth], v[kWidth];
    y.read(out, piece, col);
    gy.read(g, piece, col);
    load_or(v, args.accumulate ? gx : nullptr, col, 0.0f);
    for (int j = 0; j < kWidth; ++j)
      if (!constant) v[j] += args.log ? g[j] - expf(out[j]) * sums.x : out[j] * (g[j] - sums.x);
    store(gx + col, v);
  });
}

}  // namespace

template <class T>
void softmax_forward(const SoftmaxForward<T>& args) {
  if (args.rows == 0 || args.cols == 0) return;
  with_row_layout<T>(args.cols, vectorizable<T>(args.cols, args.x, args.y),
                     [&]<int kThreads, int kWidth, bool kKeep>() {
                       launch("softmax_forward", forward_kernel<T, kThreads, kWidth, kKeep>,
                              blocks_of_rows<kThreads>(args.rows), dim3(kThreadsPerBlock<kThreads>), 0, args);
                     });
}

template <class T>
void softmax_backward(const SoftmaxBackward<T>& args) {
  if (args.rows == 0 || args.cols == 0) return;
  with_row_layout<T>(args.cols, vectorizable<T>(args.cols, args.y, args.gy, args.gx),
                     [&]<int kThreads, int kWidth, bool kKeep>() {
                       launch("softmax_backward", backward_kernel<T, kThreads, kWidth, kKeep>,
                              blocks_of_rows<kThreads>(args.rows), dim3(kThreadsPerBlock<kThreads>), 0, args);
                     });
}

#define HEED_INSTANTIATE(T)                                   \
  template void softmax_forward<T>(const SoftmaxForward<T>&); \
  template void softmax_backward<T>(const SoftmaxBackward<T>&);
HEED_INSTANTIATE(float)
HEED_INSTANTIATE(bfloat16)
#undef HEED_INSTANTIATE

}  // namespace heed::cuda
