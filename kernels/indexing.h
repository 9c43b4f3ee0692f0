// Choosing, adding and ordering elements by position. Contract for both devices. On
// the CPU every index has been checked to lie in its range. On CUDA one that does not is a WrongIndex; what
// it would have chosen is poisoned, what it would have changed stays as it is.
#pragma once

#include <cstdint>
#include <type_traits>

#include <heed/core/base/dtype.h>
#include <heed/core/base/strided.h>
#include <heed/kernels/wrong_index.h>

namespace heed::kernels {

template <class T>
struct Gather {  // y = x[…, index, …]
  T* y;          // without gaps
  const int64_t* index;
  const T* x;
  Strided<3> space;  // y, index, x; x has stride 0 along the axis
  int64_t entries;   // of x along the axis
  int64_t stride_x;  // of x along the axis
};

/// y[…, index, …] += source for each line along an axis, in the order of the index.
template <class T>
struct ScatterAdd {
  math_t<T>* y;
  const int64_t* index;  // without gaps
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

template <class T>
struct OneHot {  // y[i, c] = (ids[i] == c)
  T* y;          // [count, classes]
  const int64_t* ids;
  int64_t count, classes;
};

}  // namespace heed::kernels

#define HEED_DECLARE(device)                                               \
  namespace heed::device {                                                 \
  template <class T>                                                       \
  void gather(const kernels::Gather<T>& args);                             \
  template <class T>                                                       \
  void scatter_add(const kernels::ScatterAdd<T>& args);                    \
  template <class T>                                                       \
  void index_select(const kernels::IndexSelect<T>& args);                  \
  template <class T>                                                       \
  void index_select_backward(const kernels::IndexSelectBackward<T>& args); \
  template <class T>                                                       \
  void sort(const kernels::Sort<T>& args);                                 \
  template <class T>                                                       \
  void triangle(const kernels::Triangle<T>& args);                         \
  template <class T>                                                       \
  void one_hot(const kernels::OneHot<T>& args);                            \
  }
HEED_DECLARE(cpu)
HEED_DECLARE(cuda)
#undef HEED_DECLARE
