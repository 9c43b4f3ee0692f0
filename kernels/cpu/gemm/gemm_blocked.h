// The blocked matrix product behind gemm and linear. gemm_path.h has the map of how it is computed.
#pragma once

#include <cstdint>
#include <type_traits>

#include <heed/core/base/dtype.h>
#include <heed/core/base/function_ref.h>
#include <heed/kernels/gemm.h>
#include <heed/kernels/packed_copies.h>

namespace heed::cpu {

constexpr int64_t kLineBytes = 64;    // of a cache line
constexpr int64_t kPackedPanels = 4;  // of B, packed together

/// Elements of a weight that stays in a core's cache with the tokens of a step.
constexpr int64_t kSmallWeight = 1 << 17;

/// op(X): element (i, j) is data[i * row_stride + j * column_stride]. One of the strides is 1.
template <class T>
struct MatrixView {
  const T* data;
  int64_t row_stride, column_stride;

  MatrixView at(int64_t row, int64_t column) const {
    return {data + row * row_stride + column * column_stride, row_stride, column_stride};
  }
};

template <class T>
MatrixView<T> matrix_view(const T* data, int64_t ld, bool transposed) {
  return transposed ? MatrixView<T>{data, 1, ld} : MatrixView<T>{data, ld, 1};
}

/// What is added to a product: a matrix with its row stride, or with 0 a row to each row; null for nothing.
template <class A>
struct Addend {
  const A* data = nullptr;
  int64_t stride = 0;

  Addend at(int64_t row, int64_t col) const { return {data ? data + row * stride + col : nullptr, stride}; }
};

/// A block of the product, complete and still in the cache: its elements [rows, cols] at row stride ld, which
/// begin at (row, col) of the product.
template <class A>
struct FinishedBlock {
  const A* data;
  int64_t ld, row, col, rows, cols;
};

/// Where the product goes. Without c its blocks are handed to the epilogue alone, in a buffer.
template <class T>
struct GemmOutput {
  using A = accumulator_t<T>;
  A* c = nullptr;  // [m, n] or null
  int64_t ldc = 0;
  A alpha = A(1);
  Addend<A> added = {};  // c = alpha * product + added, which may be c; only with c
  /// Called for each finished block, from the thread that made it. May be empty if c is not null.
  FunctionRef<void(const FinishedBlock<A>&)> epilogue = {};
};

/// The product of a [m, k] and b [k, n] in accumulator_t<T>; m, n and k at least 1.
template <class T>
struct BlockedGemm {
  int64_t m, n, k;
  MatrixView<T> a, b;
  GemmOutput<T> output;
  kernels::PackedCopies* b_copies = nullptr;  // where B's packed copy may be kept for later products
};

/// A single product. Where C is not what sums are kept in, the output is the caller's to complete.
template <class T, class C>
BlockedGemm<T> blocked(const kernels::Gemm<T, C>& args) {
  using A = accumulator_t<T>;
  GemmOutput<T> output{.alpha = A(args.alpha)};
  if constexpr (std::is_same_v<C, A>) {
    output.c = args.c;
    output.ldc = args.ldc;
    if (args.accumulate) output.added = {args.c, args.ldc};
  }
  return {args.m,
          args.n,
          args.k,
          matrix_view(args.a, args.lda, args.transpose_a),
          matrix_view(args.b, args.ldb, args.transpose_b),
          output};
}

template <class T>
void gemm_blocked(const BlockedGemm<T>& args);

/// Two products that do not depend on each other, and task(i) for each i below `tasks`, as one parallel job.
/// False, and nothing is done, if a product has operands to pack first.
template <class T>
bool gemm_blocked_pair(const BlockedGemm<T>& first, const BlockedGemm<T>& second, int64_t tasks,
                       FunctionRef<void(int64_t)> task);

/// The same for single products as `gemm` takes them, with m, n and k of at least 1.
template <class T>
bool gemm_pair(const kernels::Gemm<T, accumulator_t<T>>& first, const kernels::Gemm<T>& second, int64_t tasks,
               FunctionRef<void(int64_t)> task);

}  // namespace heed::cpu
