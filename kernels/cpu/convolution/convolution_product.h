// The products of a convolution, on one core. Not installed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <heed/core/base/dtype.h>
#include <heed/core/base/threads/parallel_for.h>
#include <heed/kernels/cpu/gemm/gemm_block.h>
#include <heed/kernels/cpu/tasks/grain.h>
#include <heed/kernels/cpu/tasks/workspace.h>

namespace heed::cpu {

constexpr int64_t kMaxPositions = 512;  // of a task
constexpr int64_t kTasks = 8;           // of a convolution, at least, where the shape allows

/// c [rows, cols] = a [rows, k] by packed columns (+ c if `added`), by as many rows as stay in the cache. A
/// transposed a is packed unless it is read `in_place`.
template <class A>
void multiply_columns(MatrixView<A> a, const A* columns, A* c, int64_t ldc, int64_t rows, int64_t cols,
                      int64_t k, bool added, bool in_place = false) {
  const GemmFunctions<A>& functions = gemm_functions<A>();
  const EvenSplit blocks(rows, functions.geometry.mr, kMC);
  for (int64_t i = 0; i < blocks.parts; ++i) {
    const int64_t row = blocks.begin(i), height = blocks.size(i);
    A* const first = c + row * ldc;
    const bool copies = !in_place && copies_a(a.at(row, 0), height, k, 1);
    const Workspace<A> buffer(copies ? functions.geometry.a_buffer(height, k) : 0);
    functions.block({.a = a.at(row, 0),
                     .a_rows = rows - row,
                     .b = columns,
                     .b_stride = 0,
                     .c = first,
                     .ldc = ldc,
                     .rows = height,
                     .cols = cols,
                     .k = k,
                     .added = {added ? first : nullptr, ldc},
                     .a_buffer = buffer.data()});
  }
}

/// to[i * stride] (+)= from[i]
template <class A, class T>
void store_run(const A* from, int64_t count, T* to, int64_t stride, bool accumulate) {
  if constexpr (std::is_same_v<T, A>) {
    if (stride == 1 && !accumulate) {
      std::copy_n(from, count, to);
      return;
    }
  }
  for (int64_t i = 0; i < count; ++i, to += stride)
    *to = static_cast<T>(accumulate ? static_cast<A>(*to) + from[i] : from[i]);
}

/// out[i] += the sum of sums[part, i] over the parts, in order.
template <class A>
void add_parts(const A* sums, int64_t parts, int64_t elements, A* out) {
  if (parts == 0) return;
  parallel_for(elements, elements_per_task(elements), [&](int64_t begin, int64_t end) {
    for (int64_t part = 0; part < parts; ++part) {
      const A* const more = sums + part * elements;
      for (int64_t i = begin; i < end; ++i) out[i] += more[i];
    }
  });
}

/// A matrix [rows, cols], or a copy of it in the type of computation.
template <class T>
class Widened {
 public:
  using A = accumulator_t<T>;

  Widened(const T* x, int64_t rows, int64_t cols, int64_t stride)
      : stride_(std::is_same_v<T, A> ? stride : cols), copy_(std::is_same_v<T, A> ? 0 : rows * cols) {
    if constexpr (std::is_same_v<T, A>) {
      data_ = x;
    } else {
      for (int64_t i = 0; i < rows; ++i) std::copy_n(x + i * stride, cols, copy_.data() + i * cols);
      data_ = copy_.data();
    }
  }

  const A* data() const { return data_; }
  int64_t stride() const { return stride_; }

 private:
  int64_t stride_;
  Workspace<A> copy_;
  const A* data_;
};

}  // namespace heed::cpu
