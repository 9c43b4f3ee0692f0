#include <heed/kernels/activation.h>
#include <heed/kernels/cuda/activation.cuh>
#include <heed/kernels/cuda/elementwise.cuh>

namespace heed::cuda {
namespace {

using kernels::ActivationBackward;
using kernels::ActivationForward;
using kernels::GatedBackward;
using kernels::GatedForward;

// Activations of neighbouring elements: what a thread reads, as it is, and what it does with it.
template <class T>
struct ForwardOp {
  ActivationForward<T> args;

  template <int kWidth>
  struct Input {
    T x[kWidth];
  };

  bool aligned() const {
    return aligned_for<kVectorWidth<T>>(args.x) && aligned_for<kVectorWidth<T>>(args.y);
  }

  template <int kWidth>
  __device__ __forceinline__ void read(Input<kWidth>& in, int64_t at) const {
    load_raw(in.x, args.x + at);
  }

  template <int kWidth>
  __device__ __forceinline__ void write(const Input<kWidth>& in, int64_t at) const {
    float v[kWidth];
    widen(v, in.x);
    activate(args.activation, v);
    store(args.y + at, v);
  }
};

template <class T>
struct BackwardOp {
  ActivationBackward<T> args;

  template <int kWidth>
  struct Input {
    T x[kWidth], gy[kWidth];
  };

  bool aligned() const {
    constexpr int kWidth = kVectorWidth<T>;
    return aligned_for<kWidth>(args.x) && aligned_for<kWidth>(args.gy) && aligned_for<kWidth>(args.gx);
  }

  template <int kWidth>
  __device__ __forceinline__ void read(Input<kWidth>& in, int64_t at) const {
    load_raw(in.x, args.x + at);
    load_raw(in.gy, args.gy + at);
  }

  template <int kWidth>
  __device__ __forceinline__ void write(const Input<kWidth>& in, int64_t at) const {
    float slope[kWidth], gy[kWidth], gx[kWidth] = {};
    widen(slope, in.x);
    widen(gy, in.gy);
    if (args.accumulate) load(gx, args.gx + at);
    activation_slope(args.activation, slope);
    for (int j = 0; j < kWidth; ++j) gx[j] += slope[j] * gy[j];
    store(args.gx + at, gx);
  }
};

constexpr int kVectors = 2;  // of a thread, read before it works on the first

// Budget: 64 registers, 0 bytes shared.
template <class Op, int kWidth>
__global__ void __launch_bounds__(kElementThreads)
    vectors_kernel(simt::Dependent<Op> arguments, int64_t count) {
  const Op& op = arguments.wait();
  typename Op::template Input<kWidth> in[kVectors];
  const auto each_vector = [&](auto f) {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const int64_t vector = (int64_t{blockIdx.x} * kVectors + i) * kElementThreads + threadIdx.x;
      if ((vector + 1) * kWidth <= count) f(in[i], vector * kWidth);
    }
  };
  each_vector([&](auto& values, int64_t at) { op.read(values, at); });
  each_vector([&](const auto& values, int64_t at) { op.write(values, at); });
  if (const int64_t last = count - count % kWidth + threadIdx.x; blockIdx.x == 0 && last < count) {
    typename Op::template Input<1> single;
    op.read(single, last);
    op.write(single, last);
  }
}

template <class T, class Op>
void each_element(const char* what, const Op& op, int64_t count) {
  const auto run = [&]<int kWidth>() {
    const int64_t blocks = simt::ceil_div<int64_t>(count, kElementThreads * kVectors * kWidth);
    launch(what, vectors_kernel<Op, kWidth>, dim3(static_cast<unsigned>(blocks)), dim3(kElementThreads), 0,
           op, count);
  };
  if (count == 0) return;
  if (op.aligned())
    run.template operator()<kVectorWidth<T>>();
  else
    run.template operator()<1>();
}

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
  each_element<T>("activation_forward", ForwardOp<T>{args}, args.count);
}

template <class T>
void activation_backward(const ActivationBackward<T>& args) {
  each_element<T>("activation_backward", BackwardOp<T>{args}, args.count);
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
