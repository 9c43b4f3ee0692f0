// Rows that are written in place by index. Contract for both devices. On the CPU every index has been checked
// to lie in its range; on CUDA one that does not is a WrongIndex, and its row is not written.
#pragma once

#include <cstdint>

#include <heed/kernels/declare.h>

namespace heed::kernels {

/// y[index[i]] = x[i]; an index of kNoToken writes nothing. No two indices are equal.
template <class T>
struct IndexPut {
  T* y;        // [rows, width]
  const T* x;  // [count, width], a row every stride_x elements; not in y's memory
  const int64_t* index;
  int64_t count, width, rows;
  int64_t stride_x;
};

}  // namespace heed::kernels

HEED_KERNEL(index_put, IndexPut);
