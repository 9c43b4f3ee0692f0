// Convolution as a product with the image under the window's taps (im2col), for some images at a time. The
// gradient of x gathers (col2im): each element adds up the taps that reach it in fixed order, without
// atomics.
#include <algorithm>

#include <heed/kernels/convolution.h>
#include <heed/kernels/cuda/elementwise.cuh>
#include <heed/kernels/cuda/gemm/gemm.h>

namespace heed::cuda {
namespace {

using kernels::ConvolutionBackward;
using kernels::ConvolutionForward;
using kernels::ConvolutionSizes;

constexpr int64_t kColumnElements = int64_t{1} << 26;  // at once

// Operands: columns [images, channels, taps, pixels]; the tap's element of x; its row and column.
template <class T>
struct ColumnsOp {
  static constexpr int kOperands = 4, kWidth = 1;
  const T* x;
  T* columns;
  int64_t height, width, top, left;  // padding

  template <int>
  __device__ __forceinline__ void run(const int64_t (&at)[4], unsigned) const {
    const int64_t row = at[2] - top, col = at[3] - left;
    const bool inside = row >= 0 && row < height && col >= 0 && col < width;
    columns[at[0]] = inside ? x[at[1] - top * width - left] : T(0.0f);
  }
};

template <class T>
void make_columns(const char* what, const ConvolutionSizes& s, const T* x, int64_t images, T* columns) {
  const kernels::Window& w = s.window;
  const int64_t plane = s.height * s.width, out_width = s.out_width(), out_height = s.out_height();
  const int64_t axes[5][4] = {{images * s.channels, plane, 0, 0},
                              {w.kernel[0], w.dilation[0] * s.width, w.dilation[0], 0},
                              {w.kernel[1], w.dilation[1], 0, w.dilation[1]},
                              {out_height, w.stride[0] * s.width, w.stride[0], 0},
                              {out_width, w.stride[1], 0, w.stride[1]}};
  Strided<4> index{};
  index.rank = 5;
  int64_t stride = 1;
  for (int axis = 4; axis >= 0; --axis) {
    index.sizes[axis] = axes[axis][0];
    index.strides[0][axis] = stride;
    stride *= axes[axis][0];
    for (int k = 1; k < 4; ++k) index.strides[k][axis] = axes[axis][k];
  }
  elementwise(what, ColumnsOp<T>{x, columns, s.height, s.width, w.padding[0], w.padding[1]}, index);
}

// Operands: gx; the first tap of its channel in the columns; row and column.
template <class T>
struct GatherOp {
  static constexpr int kOperands = 4, kWidth = 1;
  const T* columns;
  T* gx;
  kernels::Window window;
  int64_t out_height, out_width;
  bool accumulate;

  template <int>
  __device__ __forceinline__ void run(const int64_t (&at)[4], unsigned) const {
    const int64_t pixels = out_height * out_width;
    const T* tap = columns + at[1];
    float sum = accumulate ? static_cast<float>(gx[at[0]]) : 0.0f;
    for (int64_t k = 0; k < window.kernel[0]; ++k) {
      const int64_t row = at[2] + window.padding[0] - k * window.dilation[0], i = row / window.stride[0];
      const bool reached = row >= 0 && i < out_height && i * window.stride[0] == row;
      for (int64_t l = 0; l < window.kernel[1]; ++l, tap += pixels) {
        const int64_t col = at[3] + window.padding[1] - l * window.dilation[1], j = col / window.stride[1];
        if (reached && col >= 0 && j < out_width && j * window.stride[1] == col)
          sum += static_cast<float>(tap[i * out_width + j]);
      }
    }
    gx[at[0]] = T(sum);
  }
};

template <class T>
void gather_columns(const char* what, const ConvolutionSizes& s, const T* columns, int64_t images, T* gx,
                    bool accumulate) {
  Strided<4> index{};
  index.rank = 3;
  index.sizes[0] = images * s.channels, index.sizes[1] = s.height, index.sizes[2] = s.width;
  index.strides[0][0] = s.height * s.width, index.strides[0][1] = s.width, index.strides[0][2] = 1;
  index.strides[1][0] = s.taps() * s.pixels();
  index.strides[2][1] = 1;
  index.strides[3][2] = 1;
  elementwise(what, GatherOp<T>{columns, gx, s.window, s.out_height(), s.out_width(), accumulate}, index);
}

// Operands: y; the channel.
template <class T>
struct AddBiasOp {
  static constexpr int kOperands = 2, kWidth = 1;
  const T* bias;
  T* y;

  template <int>
  __device__ __forceinline__ void run(const int64_t (&at)[2], unsigned) const {
    y[at[0]] = T(static_cast<float>(y[at[0]]) + static_cast<float>(bias[at[1]]));
  }
};

template <class T>
void add_bias(const char* what, const ConvolutionForward<T>& args) {
  const ConvolutionSizes& s = args.sizes;
  Strided<2> index{};
  index.rank = 3;
  index.sizes[0] = s.batch, index.sizes[1] = s.outputs, index.sizes[2] = s.pixels();
  index.strides[0][0] = s.outputs * s.pixels(), index.strides[0][1] = s.pixels(), index.strides[0][2] = 1;
  index.strides[1][1] = 1;
  elementwise(what, AddBiasOp<T>{args.bias, args.y}, index);
}

int64_t images_at_once(const ConvolutionSizes& s) {
  const int64_t each = std::max<int64_t>(s.channels * s.taps() * s.pixels(), 1);
  return std::clamp<int64_t>(kColumnElements / each, 1, s.batch);
}

// f(image, group, count, images): products of `count` images of one group, or of `count` groups of one image,
// whichever makes fewer calls.
template <class F>
void for_products(int64_t images, int64_t groups, const F& f) {
  if (groups <= images) {
    for (int64_t group = 0; group < groups; ++group) f(int64_t{0}, group, images, true);
  } else {
    for (int64_t image = 0; image < images; ++image) f(image, int64_t{0}, groups, false);
  }
}

}  // namespace

template <class T>
void convolution_forward(const ConvolutionForward<T>& args) {
  constexpr const char* kWhat = "convolution_forward";
  const ConvolutionSizes& s = args.sizes;
  const int64_t pixels = s.pixels(), depth = s.depth(), outputs = s.group_outputs();
  if (s.batch * s.outputs * pixels == 0) return;
  const int64_t chunk = images_at_once(s);
  const Scratch scratch(static_cast<size_t>(chunk * s.groups * depth * pixels) * sizeof(T));
  T* const columns = scratch.as<T>();
  for (int64_t first = 0; first < s.batch; first += chunk) {
    const int64_t images = std::min(chunk, s.batch - first);
    make_columns(kWhat, s, args.x + first * s.channels * s.height * s.width, images, columns);
    for_products(images, s.groups, [&](int64_t image, int64_t group, int64_t count, bool of_images) {
      const int64_t at = image * s.groups + group, step = of_images ? s.groups : 1;
      multiply(kWhat, FusedGemm<T>{.product = {.a = args.weight + group * outputs * depth,
                                               .b = columns + at * depth * pixels,
                                               .c = args.y + (first * s.groups + at) * outputs * pixels,
                                               .m = outputs,
                                               .n = pixels,
                                               .k = depth,
                                               .lda = std::max<int64_t>(depth, 1),
                                               .ldb = pixels,
                                               .ldc = pixels,
                                               .batch = count,
                                               .stride_a = of_images ? 0 : outputs * depth,
                                               .stride_b = step * depth * pixels,
                                               .stride_c = step * outputs * pixels},
                                   .bias = nullptr});
    });
  }
  if (args.bias != nullptr) add_bias(kWhat, args);
}

template <class T>
void backward_input(const ConvolutionBackward<T>& args) {
  constexpr const char* kWhat = "convolution_backward";
  const ConvolutionSizes& s = args.sizes;
  const int64_t pixels = s.pixels(), depth = s.depth(), outputs = s.group_outputs();
  const int64_t chunk = images_at_once(s), plane = s.channels * s.height * s.width;
  if (s.batch * plane == 0) return;
  const Scratch scratch(static_cast<size_t>(chunk * s.groups * depth * pixels) * sizeof(T));
  T* const columns = scratch.as<T>();
  for (int64_t first = 0; first < s.batch; first += chunk) {
    const int64_t images = std::min(chunk, s.batch - first);
    for_products(images, s.groups, [&](int64_t image, int64_t group, int64_t count, bool of_images) {
      const int64_t at = image * s.groups + group, step = of_images ? s.groups : 1;
      multiply(kWhat, FusedGemm<T>{.product = {.a = args.weight + group * outputs * depth,
                                               .b = args.gy + (first * s.groups + at) * outputs * pixels,
                                               .c = columns + at * depth * pixels,
                                               .m = depth,
                                               .n = pixels,
                                               .k = outputs,
                                               .lda = depth,
                                               .ldb = std::max<int64_t>(pixels, 1),
                                               .ldc = std::max<int64_t>(pixels, 1),
                                               .transpose_a = true,
                                               .batch = count,
                                               .stride_a = of_images ? 0 : outputs * depth,
                                               .stride_b = step * outputs * pixels,
                                               .stride_c = step * depth * pixels},
                                   .bias = nullptr});
    });
    gather_columns(kWhat, s, columns, images, args.gx + first * plane, args.accumulate_x);
  }
}

// Image after image is added, all groups of one at once.
template <class T>
void backward_weight(const ConvolutionBackward<T>& args) {
  constexpr const char* kWhat = "convolution_backward";
  const ConvolutionSizes& s = args.sizes;
  const int64_t pixels = s.pixels(), depth = s.depth(), outputs = s.group_outputs();
  const int64_t chunk = images_at_once(s), size = s.groups * depth * pixels;
  if (s.outputs * depth == 0) return;
  if (s.batch * pixels == 0) {
    if (!args.accumulate_weight)
      check(cudaMemsetAsync(args.gweight, 0, static_cast<size_t>(s.outputs * depth) * sizeof(float),
                            current_stream()),
            kWhat);
    return;
  }
  const Scratch scratch(static_cast<size_t>(chunk * size) * sizeof(T));
  T* const columns = scratch.as<T>();
  for (int64_t image = 0; image < s.batch; ++image) {
    const int64_t place = image % chunk;
    if (place == 0)
      make_columns(kWhat, s, args.x + image * s.channels * s.height * s.width,
                   std::min(chunk, s.batch - image), columns);
    multiply(kWhat, FusedGemm<T, float>{.product = {.a = args.gy + image * s.outputs * pixels,
                                                    .b = columns + place * size,
                                                    .c = args.gweight,
                                                    .m = outputs,
                                                    .n = depth,
                                                    .k = pixels,
                                                    .lda = pixels,
                                                    .ldb = pixels,
                                                    .ldc = depth,
                                                    .transpose_b = true,
                                                    .batch = s.groups,
                                                    .stride_a = outputs * pixels,
                                                    .stride_b = depth * pixels,
                                                    .stride_c = outputs * depth,
                                                    .accumulate = args.accumulate_weight || image > 0},
                                        .bias = nullptr});
  }
}

template <class T>
void convolution_backward(const ConvolutionBackward<T>& args) {
  if (args.gx != nullptr) backward_input(args);
  if (args.gweight != nullptr) backward_weight(args);
}

#define HEED_INSTANTIATE(T)                                           \
  template void convolution_forward<T>(const ConvolutionForward<T>&); \
  template void convolution_backward<T>(const ConvolutionBackward<T>&);
HEED_INSTANTIATE(float)
HEED_INSTANTIATE(bfloat16)
#undef HEED_INSTANTIATE

}  // namespace heed::cuda
