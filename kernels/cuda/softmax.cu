#include <heed/kernels/cuda/device.cuh>
#include <heed/kernels/cuda/rows.cuh>
#include <heed/kernels/softmax.h>

namespace heed::cuda {
namespace {

using kernels::SoftmaxBackward;
using kernels::SoftmaxForward;

// Budget: 72 registers, 256 bytes shared.
template <class T, class Layout>
__global__ void __launch_bounds__(RowGroup<Layout>::kBlock) forward_kernel(SoftmaxForward<T> args) {
  using Group = RowGroup<Layout>;
  constexpr int kWidth = Layout::kWidth;
  const int64_t row = Group::first_row();
  if (row >= args.rows) return;
  constexpr float kLowest = -kInfinity;
  const Layout layout(args.cols, Group::thread());
  RowPart<T, Layout> x(layout, args.x + row * args.cols);

  float most = kLowest;
  layout.each([&](int piece, auto col) {
    float v[kWidth];
    x.read(v, piece, col);
    for (int j = 0; j < kWidth; ++j) most = fmaxf(most, v[j]);
  });
  most = Group::max(most, 0);
  const float shift = most == kLowest ? 0.0f : most;
  float sum = 0.0f;
  layout.each([&](int piece, auto col) {
    float v[kWidth];
    x.read(v, piece, col);
    for (int j = 0; j < kWidth; ++j) {
      const float term = simt::exp2_approx((v[j] - shift) * kLog2OfE);
      sum += term;
      if constexpr (Layout::kKeep)
        if (!args.log) x.kept().value[piece][j] = term;
    }
  });
  sum = Group::sum(sum, 1);  // 0 only if every element is -inf
  const float inverse = sum == 0.0f ? 0.0f : 1.0f / sum, log_sum = sum == 0.0f ? 0.0f : logf(sum);
  T* y = args.y + row * args.cols;
  layout.each([&](int piece, auto col) {
    float v[kWidth];
    x.read(v, piece, col);
    for (int j = 0; j < kWidth; ++j) {
      if (args.log)
        v[j] = v[j] - shift - log_sum;
      else
        v[j] = (Layout::kKeep ? v[j] : simt::exp2_approx((v[j] - shift) * kLog2OfE)) * inverse;
    }
    store(y + col, v);
  });
}

// Budget: 104 registers, 512 bytes shared.
template <class T, class Layout>
__global__ void __launch_bounds__(RowGroup<Layout>::kBlock) backward_kernel(SoftmaxBackward<T> args) {
  using Group = RowGroup<Layout>;
  constexpr int kWidth = Layout::kWidth;
  const int64_t row = Group::first_row();
  if (row >= args.rows) return;
  constexpr float kLowest = -kInfinity;
  const Layout layout(args.cols, Group::thread());
  const RowPart<T, Layout> y(layout, args.y + row * args.cols);
  const RowPart<T, Layout> gy(layout, args.gy + row * args.cols);

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
  sums = Group::sum(sums);
  const bool constant = args.log && sums.y == 0.0f;  // -inf whatever x does
  T* gx = args.gx + row * args.cols;
  layout.each([&](int piece, auto col) {
    float out[kWidth], g[kWidth], v[kWidth];
    y.read(out, piece, col);
    gy.read(g, piece, col);
    load_or(v, args.accumulate ? gx : nullptr, col, 0.0f);
    for (int j = 0; j < kWidth; ++j)
      if (!constant)
        v[j] += args.log ? g[j] - simt::exp2_approx(kLog2OfE * out[j]) * sums.x : out[j] * (g[j] - sums.x);
    store(gx + col, v);
  });
}

}  // namespace

template <class T>
void softmax_forward(const SoftmaxForward<T>& args) {
  if (args.rows == 0 || args.cols == 0) return;
  with_row_layout<T, 32, 32>(args.cols, vectorizable<T>(args.cols, args.x, args.y), [&]<class Layout>() {
    launch("softmax_forward", forward_kernel<T, Layout>, blocks_of_rows<RowGroup<Layout>>(args.rows),
           dim3(RowGroup<Layout>::kBlock), 0, args);
  });
}

template <class T>
void softmax_backward(const SoftmaxBackward<T>& args) {
  if (args.rows == 0 || args.cols == 0) return;
  with_row_layout<T, 32, 32>(
      args.cols, vectorizable<T>(args.cols, args.y, args.gy, args.gx), [&]<class Layout>() {
        launch("softmax_backward", backward_kernel<T, Layout>, blocks_of_rows<RowGroup<Layout>>(args.rows),
               dim3(RowGroup<Layout>::kBlock), 0, args);
      });
}

#define HEED_INSTANTIATE(T)                                   \
  template void softmax_forward<T>(const SoftmaxForward<T>&); \
  template void softmax_backward<T>(const SoftmaxBackward<T>&);
HEED_INSTANTIATE(float)
HEED_INSTANTIATE(bfloat16)
#undef HEED_INSTANTIATE

}  // namespace heed::cuda
