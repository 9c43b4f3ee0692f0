#include <heed/kernels/cuda/elementwise.cuh>
#include <heed/kernels/pool.h>

namespace heed::cuda {
namespace {

using kernels::PoolBackward;
using kernels::PoolForward;

// Operands: an element of the result, its plane, row and column.
Strided<4> planes_of(int64_t planes, int64_t height, int64_t width) {
  Strided<4> index{};
  index.rank = 3;
  index.sizes[0] = planes, index.sizes[1] = height, index.sizes[2] = width;
  index.strides[0][0] = height * width, index.strides[0][1] = width, index.strides[0][2] = 1;
  for (int axis = 0; axis < 3; ++axis) index.strides[axis + 1][axis] = 1;
  return index;
}

template <class T>
struct ForwardOp {
  static constexpr int kOperands = 4, kWidth = 1;
  PoolForward<T> args;

  template <int>
  __device__ __forceinline__ void run(const int64_t (&at)[4], unsigned) const {
    const kernels::Window& w = args.sizes.window;
    const int64_t height = args.sizes.height, width = args.sizes.width;
    const T* const x = args.x + at[1] * height * width;
    const bool largest = args.sizes.kind == PoolKind::max;
    float value = largest ? -kInfinity : 0.0f;
    int32_t place = -1;
    for (int64_t k = 0; k < w.kernel[0]; ++k) {
      const int64_t row = at[2] * w.stride[0] - w.padding[0] + k * w.dilation[0];
      if (row < 0 || row >= height) continue;
      for (int64_t l = 0; l < w.kernel[1]; ++l) {
        const int64_t col = at[3] * w.stride[1] - w.padding[1] + l * w.dilation[1];
        if (col < 0 || col >= width) continue;
        const float v = static_cast<float>(x[row * width + col]);
        if (!largest) {
          value += v;
        } else if (place < 0 || v > value || (v != v && value == value)) {
          value = v;
          place = static_cast<int32_t>(row * width + col);
        }
      }
    }
    if (!largest) value *= 1.0f / static_cast<float>(w.kernel[0] * w.kernel[1]);
    args.y[at[0]] = T(value);
    if (args.index != nullptr) args.index[at[0]] = place;
  }
};

// Gathers: each element adds up the windows that it lies under, in fixed order.
template <class T>
struct BackwardOp {
  static constexpr int kOperands = 4, kWidth = 1;
  PoolBackward<T> args;
  int64_t out_height, out_width;

  template <int>
  __device__ __forceinline__ void run(const int64_t (&at)[4], unsigned) const {
    const kernels::Window& w = args.sizes.window;
    const bool largest = args.sizes.kind == PoolKind::max;
    const int64_t plane = at[1] * out_height * out_width;
    const int32_t place = static_cast<int32_t>(at[2] * args.sizes.width + at[3]);
    float sum = 0.0f;
    for (int64_t k = 0; k < w.kernel[0]; ++k) {
      const int64_t row = at[2] + w.padding[0] - k * w.dilation[0], i = row / w.stride[0];
      if (row < 0 || i >= out_height || i * w.stride[0] != row) continue;
      for (int64_t l = 0; l < w.kernel[1]; ++l) {
        const int64_t col = at[3] + w.padding[1] - l * w.dilation[1], j = col / w.stride[1];
        if (col < 0 || j >= out_width || j * w.stride[1] != col) continue;
        const int64_t from = plane + i * out_width + j;
        if (!largest || args.index[from] == place) sum += static_cast<float>(args.gy[from]);
      }
    }
    if (!largest) sum *= 1.0f / static_cast<float>(w.kernel[0] * w.kernel[1]);
    if (args.accumulate) sum += static_cast<float>(args.gx[at[0]]);
    args.gx[at[0]] = T(sum);
  }
};

}  // namespace

template <class T>
void pool_forward(const PoolForward<T>& args) {
  elementwise("pool_forward", ForwardOp<T>{args},
              planes_of(args.sizes.planes, args.sizes.out_height(), args.sizes.out_width()));
}

template <class T>
void pool_backward(const PoolBackward<T>& args) {
  elementwise("pool_backward", BackwardOp<T>{args, args.sizes.out_height(), args.sizes.out_width()},
              planes_of(args.sizes.planes, args.sizes.height, args.sizes.width));
}

#define HEED_INSTANTIATE(T)                             \
  template void pool_forward<T>(const PoolForward<T>&); \
  template void pool_backward<T>(const PoolBackward<T>&);
HEED_INSTANTIATE(float)
HEED_INSTANTIATE(bfloat16)
#undef HEED_INSTANTIATE

}  // namespace heed::cuda
