#include <heed/kernels/cuda/elementwise.cuh>
#include <heed/kernels/pool.h>

namespace heed::cuda {
namespace {

using kernels::PoolBackward;
using kernels::PoolForward;

// A window and the sizes of a plane that it moves over, in 32 bits.
struct Plane {
  int kernel[2], stride[2], padding[2], dilation[2], height, width, out_height, out_width;

  explicit Plane(const kernels::PoolSizes& s)
      : height(static_cast<int>(s.height)),
        width(static_cast<int>(s.width)),
        out_height(static_cast<int>(s.out_height())),
        out_width(static_cast<int>(s.out_width())) {
    for (int axis = 0; axis < 2; ++axis) {
      kernel[axis] = static_cast<int>(s.window.kernel[axis]);
      stride[axis] = static_cast<int>(s.window.stride[axis]);
      padding[axis] = static_cast<int>(s.window.padding[axis]);
      dilation[axis] = static_cast<int>(s.window.dilation[axis]);
    }
  }

  __device__ __forceinline__ float mean_scale() const {
    return 1.0f / (static_cast<float>(kernel[0]) * static_cast<float>(kernel[1]));
  }
};

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
  const T* x;
  T* y;
  int32_t* index;
  Plane plane;
  bool largest;

  template <int>
  __device__ __forceinline__ void run(const int64_t (&at)[4], unsigned) const {
    const T* const image = x + at[1] * plane.height * plane.width;
    const int top = static_cast<int>(at[2]) * plane.stride[0] - plane.padding[0];
    const int left = static_cast<int>(at[3]) * plane.stride[1] - plane.padding[1];
    float value = largest ? -kInfinity : 0.0f;
    int place = -1;
    for (int k = 0; k < plane.kernel[0]; ++k) {
      const int row = top + k * plane.dilation[0];
      if (row < 0 || row >= plane.height) continue;
      for (int l = 0; l < plane.kernel[1]; ++l) {
        const int col = left + l * plane.dilation[1];
        if (col < 0 || col >= plane.width) continue;
        const float v = static_cast<float>(image[row * plane.width + col]);
        if (!largest) {
          value += v;
        } else if (place < 0 || v > value || (v != v && value == value)) {
          value = v;
          place = row * plane.width + col;
        }
      }
    }
    y[at[0]] = T(largest ? value : value * plane.mean_scale());
    if (index != nullptr) index[at[0]] = place;
  }
};

// Gathers: each element adds up the windows that it lies under, in fixed order.
template <class T>
struct BackwardOp {
  static constexpr int kOperands = 4, kWidth = 1;
  const T* gy;
  const int32_t* index;  // null for means
  T* gx;
  Plane plane;
  bool accumulate;

  template <int>
  __device__ __forceinline__ void run(const int64_t (&at)[4], unsigned) const {
    const int64_t first = at[1] * plane.out_height * plane.out_width;
    const int top = static_cast<int>(at[2]) + plane.padding[0],
              left = static_cast<int>(at[3]) + plane.padding[1];
    const int place = static_cast<int>(at[2]) * plane.width + static_cast<int>(at[3]);
    float sum = 0.0f;
    for (int k = 0; k < plane.kernel[0]; ++k) {
      const int row = top - k * plane.dilation[0], i = row / plane.stride[0];
      if (row < 0 || i >= plane.out_height || i * plane.stride[0] != row) continue;
      for (int l = 0; l < plane.kernel[1]; ++l) {
        const int col = left - l * plane.dilation[1], j = col / plane.stride[1];
        if (col < 0 || j >= plane.out_width || j * plane.stride[1] != col) continue;
        const int64_t from = first + i * plane.out_width + j;
        if (index == nullptr || index[from] == place) sum += static_cast<float>(gy[from]);
      }
    }
    if (index == nullptr) sum *= plane.mean_scale();
    if (accumulate) sum += static_cast<float>(gx[at[0]]);
    gx[at[0]] = T(sum);
  }
};

}  // namespace

template <class T>
void pool_forward(const PoolForward<T>& args) {
  elementwise("pool_forward",
              ForwardOp<T>{args.x, args.y, args.index, Plane(args.sizes), args.sizes.kind == PoolKind::max},
              planes_of(args.sizes.planes, args.sizes.out_height(), args.sizes.out_width()));
}

template <class T>
void pool_backward(const PoolBackward<T>& args) {
  elementwise("pool_backward",
              BackwardOp<T>{args.gy, args.index, args.gx, Plane(args.sizes), args.accumulate},
              planes_of(args.sizes.planes, args.sizes.height, args.sizes.width));
}

#define HEED_INSTANTIATE(T)                             \
  template void pool_forward<T>(const PoolForward<T>&); \
  template void pool_backward<T>(const PoolBackward<T>&);
HEED_INSTANTIATE(float)
HEED_INSTANTIATE(bfloat16)
#undef HEED_INSTANTIATE

}  // namespace heed::cuda
