// Choosing, adding and ordering elements by position. Contract for both devices. On
// the CPU every index has been checked to lie in its range. On CUDA one that does not is a WrongIndex; what
// it would have chosen is poisoned, what it would have changed stays as it is.
#pragma once

#include <cstdint>
#include <type_traits>

#include <heed/core/base/dtype.h>
#include <heed/core/base/strided.h>
#include <heed/kernels/declare.h>
#include <heed/kernels/wrong_index.h>

namespace heed {

/// What scatter() does with the element that is there and the source's.
enum class ScatterOp : uint8_t { replace, add, multiply, max, min };

}  // namespace heed

namespace heed::kernels {

/// y = x[…, index, …]. With a use of index_select an index of kNoToken gives 0.
template <class T>
struct Gather {
  IndexUse use;
  T* y;  // without gaps
  const int64_t* index;
  const T* x;
  Strided<3> space;  // y, index, x; x has stride 0 along the axis
  int64_t entries;   // of x along the axis
  int64_t stride_x;  // of x along the axis
};

/// y[…, index, …] = source, or y[…, index, …] op= source, for each line along an axis, in the order of the
/// index. With a use of index_select an index of kNoToken changes nothing. NaN wins over numbers.
template <class T>
struct Scatter {
  IndexUse use;
  ScatterOp op;
  math_t<T>* y;
  const int64_t* index;  // its place in memory is that of a WrongIndex
  const T* source;
  Strided<3> lines;  // y, index, source, without the axis
  int64_t n;         // elements of index along the axis
  int64_t entries;   // of y along the axis
  int64_t stride_y, stride_index, stride_source;
};

template <class T>
struct IndexSelect {  // y[i] = x[index[i]]; an index of kNoToken gives zeros
  T* y;               // [count, width]
  const T* x;         // [rows, width]
  const int64_t* index;
  int64_t count, width, rows;
};

template <class T>
struct IndexSelectBackward {  // gx[index[i]] += gy[i] in the order of i, but for kNoToken
  math_t<T>* gx;              // [rows, width]
  const T* gy;                // [count, width]
  const int64_t* index;
  int64_t count, width, rows;
};

/// The first k of the n elements of each line in order: ascending or descending, the earlier of equals first,
/// NaN above everything.
template <class T>
struct Sort {
  T* values;
  int64_t* indices;
  const T* x;
  Strided<3> lines;  // values, indices, x, without the axis
  int64_t n, k;
  int64_t stride_values, stride_indices, stride_x;
  bool descending;
};

template <class T>
struct Triangle {  // y = x where column - row <= diagonal (lower), or >= diagonal (upper); else 0
  T* y;            // [matrices, rows, cols]
  const T* x;
  int64_t matrices, rows, cols;
  int64_t diagonal;
  bool lower;
};

/// y[place[i] - 1] = i where mask[i]: with running counts as places the positions of what is true.
struct Compact {
  int64_t* y;
  const bool* mask;      // [count]
  const int64_t* place;  // [count]
  int64_t count;
};

template <class T>
struct OneHot {  // y[i, c] = (ids[i] == c)
  T* y;          // [count, classes]
  const int64_t* ids;
  int64_t count, classes;
};

}  // namespace heed::kernels

HEED_KERNEL(gather, Gather);
HEED_KERNEL(scatter, Scatter);
HEED_KERNEL(index_select, IndexSelect);
HEED_KERNEL(index_select_backward, IndexSelectBackward);
HEED_KERNEL(sort, Sort);
HEED_KERNEL(triangle, Triangle);
HEED_KERNEL_0(compact, Compact);
HEED_KERNEL(one_hot, OneHot);
