#include <heed/kernels/batch_norm.h>
#include <heed/kernels/cuda/block_sum.cuh>
#include <heed/kernels/cuda/device.cuh>
#include <heed/kernels/cuda/vector.cuh>

namespace heed::cuda {
namespace {

using kernels::BatchNormBackward;
using kernels::BatchNormForward;

constexpr int kChannelThreads = 256;  // of a channel's block

// f(offset) for this thread's elements of the block's channel.
template <class Args, class F>
__device__ __forceinline__ void for_elements(const Args& args, F f) {
  const uint32_t pixels = static_cast<uint32_t>(args.pixels),
                 count = static_cast<uint32_t>(args.batch) * pixels;
  for (uint32_t i = threadIdx.x; i < count; i += kChannelThreads) {
    const uint32_t n = i / pixels;
    f((n * args.channels + blockIdx.x) * args.pixels + (i - n * pixels));
  }
}

// Budget: 40 registers, 32 bytes shared.
template <class T>
__global__ void __launch_bounds__(kChannelThreads) forward_kernel(BatchNormForward<T> args) {
  const int64_t c = blockIdx.x;
  const float count = static_cast<float>(args.batch * args.pixels);
  float sum = 0.0f;
  for_elements(args, [&](int64_t at) { sum += static_cast<float>(args.x[at]); });
  const float mean = block_sum<kChannelThreads>(sum) / count;
  float square = 0.0f;
  for_elements(args, [&](int64_t at) {
    const float v = static_cast<float>(args.x[at]) - mean;
    square += v * v;
  });
  const float variance = block_sum<kChannelThreads>(square) / count;
  if (threadIdx.x == 0) {
    args.mean[c] = mean;
    args.variance[c] = variance;
  }
  const float weight = args.weight == nullptr ? 1.0f : static_cast<float>(args.weight[c]);
  const float bias = args.bias == nullptr ? 0.0f : static_cast<float>(args.bias[c]);
  const float scale = weight / sqrtf(variance + static_cast<float>(args.eps));
  for_elements(args,
               [&](int64_t at) { args.y[at] = T((static_cast<float>(args.x[at]) - mean) * scale + bias); });
}

// Budget: 40 registers, 32 bytes shared.
template <class T>
__global__ void __launch_bounds__(kChannelThreads) backward_kernel(BatchNormBackward<T> args) {
  const int64_t c = blockIdx.x;
  const float count = static_cast<float>(args.batch * args.pixels), mean = args.mean[c];
  const float rstd = 1.0f / sqrtf(args.variance[c] + static_cast<float>(args.eps));
  float sum = 0.0f, product = 0.0f;
  for_elements(args, [&](int64_t at) {
    const float g = static_cast<float>(args.gy[at]);
    sum += g;
    product += g * (static_cast<float>(args.x[at]) - mean);
  });
  sum = block_sum<kChannelThreads>(sum);
  product = block_sum<kChannelThreads>(product) * rstd;
  if (threadIdx.x == 0) {
    if (args.gweight != nullptr)
      args.gweight[c] = product + (args.accumulate_weight ? args.gweight[c] : 0.0f);
    if (args.gbias != nullptr) args.gbias[c] = sum + (args.accumulate_bias ? args.gbias[c] : 0.0f);
  }
  if (args.gx == nullptr) return;
  const float scale = rstd * (args.weight == nullptr ? 1.0f : static_cast<float>(args.weight[c]));
  for_elements(args, [&](int64_t at) {
    const float normed = (static_cast<float>(args.x[at]) - mean) * rstd;
    const float g = (static_cast<float>(args.gy[at]) - sum / count - normed * product / count) * scale;
    args.gx[at] = T(args.accumulate_x ? g + static_cast<float>(args.gx[at]) : g);
  });
}

template <class Args>
void run(const char* what, void (*kernel)(Args), const Args& args) {
  if (args.channels == 0) return;
  launch(what, kernel, dim3(static_cast<unsigned>(args.channels)), dim3(kChannelThreads), 0, args);
}

}  // namespace

template <class T>
void batch_norm_forward(const BatchNormForward<T>& args) {
  run("batch_norm_forward", forward_kernel<T>, args);
}

template <class T>
void batch_norm_backward(const BatchNormBackward<T>& args) {
  run("batch_norm_backward", backward_kernel<T>, args);
}

#define HEED_INSTANTIATE(T)                                        \
  template void batch_norm_forward<T>(const BatchNormForward<T>&); \
  template void batch_norm_backward<T>(const BatchNormBackward<T>&);
HEED_INSTANTIATE(float)
HEED_INSTANTIATE(bfloat16)
#undef HEED_INSTANTIATE

}  // namespace heed::cuda
