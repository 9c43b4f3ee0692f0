// One thread per element, or per vector of neighbouring elements, of an index space.
//
// An operation is a struct with
//   static constexpr int kOperands, kWidth;     the output is operand 0; elements of a vector
//   bool aligned() const;                       whether the pointers allow vectors
//   template <int kWidth> __device__ void run(const int64_t (&at)[kOperands], unsigned repeated) const;
// run computes kWidth elements from the offsets `at` on; bit k of `repeated` says that operand k has the same
// element for all of them.
#pragma once

#include <cstdint>

#include <heed/kernels/cuda/device.cuh>
#include <heed/kernels/cuda/index_space.cuh>
#include <heed/kernels/cuda/vector.cuh>

namespace heed::cuda {

inline constexpr int kElementThreads = 256;

/// kWidth elements of one operand.
template <int kWidth, class T>
__device__ __forceinline__ void read(math_t<T> (&out)[kWidth], const T* from, bool repeated) {
  if (repeated) {
    const math_t<T> value = *from;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) out[j] = value;
  } else {
    load(out, from);
  }
}

template <class Op>
struct ElementwiseWork {
  Op op;
  IndexSpace<Op::kOperands> space;
};

/// With vectors the innermost axis of the space counts them; single elements follow after `vectors` of them,
/// where the space is a single run.
// The stack is that of sinf and cosf for large arguments.
// Budget: 56 registers, 0 bytes shared, 32 bytes stack.
template <class Op, int kWidth>
__global__ void __launch_bounds__(kElementThreads)
    elementwise_kernel(simt::Dependent<ElementwiseWork<Op>> arguments, unsigned repeated, int64_t vectors,
                       int64_t items) {
  const ElementwiseWork<Op>& work = arguments.wait();
  const int64_t item = int64_t{blockIdx.x} * kElementThreads + threadIdx.x;
  if (item >= items) return;
  int64_t at[Op::kOperands];
  if (kWidth > 1 && item >= vectors) {
    for (int k = 0; k < Op::kOperands; ++k)
      at[k] = repeated >> k & 1 ? 0 : vectors * kWidth + (item - vectors);
    work.op.template run<1>(at, repeated);
  } else {
    work.space.locate(at, item);
    work.op.template run<kWidth>(at, repeated);
  }
}

/// Whether vectors of `width` elements cover the space, which may end with single ones if it is one run.
template <int kOperands>
bool has_vectors(const Strided<kOperands>& index, int64_t width) {
  const int inner = index.rank - 1;
  if (inner < 0 || index.strides[0][inner] != 1) return false;
  if (index.rank > 1 && index.sizes[inner] % width != 0) return false;
  for (int k = 0; k < kOperands; ++k) {
    if (index.strides[k][inner] != 1 && index.strides[k][inner] != 0) return false;
    for (int axis = 0; axis < inner; ++axis)
      if (index.strides[k][inner] == 1 && index.strides[k][axis] % width != 0) return false;
  }
  return true;
}

/// Runs `op` over `index`.
template <class Op>
void elementwise(const char* what, const Op& op, Strided<Op::kOperands> index) {
  const int64_t count = index.count();
  if (count == 0) return;
  const auto run = [&](auto kernel, unsigned repeated, int64_t vectors, int64_t items) {
    launch(what, kernel, dim3(static_cast<unsigned>(simt::ceil_div<int64_t>(items, kElementThreads))),
           dim3(kElementThreads), 0, ElementwiseWork<Op>{op, IndexSpace<Op::kOperands>(index)}, repeated,
           vectors, items);
  };
  if constexpr (Op::kWidth > 1) {
    if (count >= Op::kWidth && op.aligned() && has_vectors(index, Op::kWidth)) {
      const int inner = index.rank - 1;
      unsigned repeated = 0;
      index.sizes[inner] /= Op::kWidth;
      for (int k = 0; k < Op::kOperands; ++k) {
        if (index.strides[k][inner] == 0) repeated |= 1u << k;
        index.strides[k][inner] *= Op::kWidth;
      }
      const int64_t vectors = count / Op::kWidth;
      return run(elementwise_kernel<Op, Op::kWidth>, repeated, vectors, vectors + count % Op::kWidth);
    }
  }
  run(elementwise_kernel<Op, 1>, 0, count, count);
}

/// The space of operands that all have `count` elements side by side.
template <int kOperands>
Strided<kOperands> single_run(int64_t count) {
  Strided<kOperands> index{};
  index.rank = 1;
  index.sizes[0] = count;
  for (int k = 0; k < kOperands; ++k) index.strides[k][0] = 1;
  return index;
}

/// A space of rows: operand 0 lies in memory, row after row; operands 1 and 2 are the row and the column.
inline Strided<3> rows_and_columns(int64_t rows, int64_t cols) {
  Strided<3> index{};
  index.rank = 2;
  index.sizes[0] = rows, index.sizes[1] = cols;
  index.strides[0][0] = cols, index.strides[0][1] = 1;
  index.strides[1][0] = 1;
  index.strides[2][1] = 1;
  return index;
}

}  // namespace heed::cuda
