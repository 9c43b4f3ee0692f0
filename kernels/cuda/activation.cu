#include <heed/kernels/activation.h>
#include <heed/kernels/cuda/activation.cuh>
#include <heed/kernels/cuda/elementwise.cuh>

namespace heed::cuda {
namespace {

using kernels::ActivationBackward;
using kernels::ActivationForward;
using kernels::GatedBackward;
using kernels::GatedForward;

template <class T>
struct ForwardOp {
  static constexpr int kOperands = 1, kWidth = kVectorWidth<T>;
  ActivationForward<T> args;

  bool aligned() const { return aligned_for<kWidth>(args.x) && aligned_for<kWidth>(args.y); }

  template <int kWidth>
  __device__ __forceinline__ void run(const int64_t (&at)[1], unsigned) const {
    float v[kWidth];
    load(v, args.x + at[0]);
    activate(args.activation, v);
    store(args.y + at[0], v);
  }
};

template <class T>
struct BackwardOp {
  static constexpr int kOperands = 1, kWidth = kVectorWidth<T>;
  ActivationBackward<T> args;

  bool aligned() const {
    return aligned_for<kWidth>(args.x) && aligned_for<kWidth>(args.gy) && aligned_for<kWidth>(args.gx);
  }

  template <int kWidth>
  __device__ __forceinline__ void run(const int64_t (&at)[1], unsigned) const {
    float slope[kWidth], gy[kWidth], gx[kWidth] = {};
    load(slope, args.x + at[0]);
    load(gy, args.gy + at[0]);
    if (args.accumulate) load(gx, args.gx + at[0]);
    activation_slope(args.activation, slope);
    for (int j = 0; j < kWidth; ++j) gx[j] += slope[j] * gy[j];
    store(args.gx + at[0], gx);
  }
};

template <class T>
struct GatedForwardOp {  // operands: y; gate and up
  static constexpr int kOperands = 2, kWidth = kVectorWidth<T>;
  GatedForward<T> args;

  bool aligned() const {
    return aligned_for<kWidth>(args.gate) && aligned_for<kWidth>(args.up) && aligned_for<kWidth>(args.y);
  }

  template <int kWidth>
  __device__ __forceinline__ void run(const int64_t (&at)[2], unsigned) const {
    float v[kWidth], up[kWidth];
    load(v, args.gate + at[1]);
    load(up, args.up + at[1]);
    activate(args.activation, v);
    for (int j = 0; j < kWidth; ++j) v[j] *= up[j];
    store(args.y + at[0], v);
  }
};

template <class T>
struct GatedBackwardOp {  // operands: gy; gate and up; ggate and gup
  static constexpr int kOperands = 3, kWidth = kVectorWidth<T>;
  GatedBackward<T> args;

  bool aligned() const {
    return aligned_for<kWidth>(args.gate) && aligned_for<kWidth>(args.up) && aligned_for<kWidth>(args.gy) &&
           aligned_for<kWidth>(args.ggate) && aligned_for<kWidth>(args.gup);
  }

  template <int kWidth>
  __device__ __forceinline__ void run(const int64_t (&at)[3], unsigned) const {
    float gate[kWidth], gy[kWidth];
    load(gate, args.gate + at[1]);
    load(gy, args.gy + at[0]);
    if (args.ggate != nullptr) {
      float up[kWidth], slope[kWidth], out[kWidth] = {};
      load(up, args.up + at[1]);
      if (args.accumulate_gate) load(out, args.ggate + at[2]);
      for (int j = 0; j < kWidth; ++j) slope[j] = gate[j];
      activation_slope(args.activation, slope);
      for (int j = 0; j < kWidth; ++j) out[j] += slope[j] * (gy[j] * up[j]);
      store(args.ggate + at[2], out);
    }
    if (args.gup != nullptr) {
      float out[kWidth] = {};
      if (args.accumulate_up) load(out, args.gup + at[2]);
      activate(args.activation, gate);
      for (int j = 0; j < kWidth; ++j) out[j] += gate[j] * gy[j];
      store(args.gup + at[2], out);
    }
  }
};

// [rows, cols] with a row stride for each operand; a single run where rows touch in all.
template <int kOperands>
Strided<kOperands> rows_with_strides(int64_t rows, int64_t cols, const int64_t (&row_strides)[kOperands]) {
  bool touching = true;
  for (int64_t stride : row_strides) touching = touching && stride == cols;
  if (touching) return single_run<kOperands>(rows * cols);
  Strided<kOperands> index{};
  index.rank = 2;
  index.sizes[0] = rows, index.sizes[1] = cols;
  for (int k = 0; k < kOperands; ++k) index.strides[k][0] = row_strides[k], index.strides[k][1] = 1;
  return index;
}

}  // namespace

template <class T>
void activation_forward(const ActivationForward<T>& args) {
  elementwise("activation_forward", ForwardOp<T>{args}, single_run<1>(args.count));
}

template <class T>
void activation_backward(const ActivationBackward<T>& args) {
  elementwise("activation_backward", BackwardOp<T>{args}, single_run<1>(args.count));
}

template <class T>
void gated_forward(const GatedForward<T>& args) {
  elementwise("gated_forward", GatedForwardOp<T>{args},
              rows_with_strides<2>(args.rows, args.cols, {args.cols, args.ld}));
}

template <class T>
void gated_backward(const GatedBackward<T>& args) {
  elementwise("gated_backward", GatedBackwardOp<T>{args},
              rows_with_strides<3>(args.rows, args.cols, {args.cols, args.ld, args.gld}));
}

#define HEED_INSTANTIATE(T)                                           \
  template void activation_forward<T>(const ActivationForward<T>&);   \
  template void activation_backward<T>(const ActivationBackward<T>&); \
  template void gated_forward<T>(const GatedForward<T>&);             \
  template void gated_backward<T>(const GatedBackward<T>&);
HEED_INSTANTIATE(float)
HEED_INSTANTIATE(bfloat16)
#undef HEED_INSTANTIATE

}  // namespace heed::cuda
