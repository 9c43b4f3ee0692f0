// What kernels may leave with an operand's memory: copies of it in layouts of their own.
#pragma once

#include <cstddef>
#include <cstdint>

#include <heed/core/base/dtype.h>
#include <heed/core/base/function_ref.h>

namespace heed::kernels {

/// Copies of matrices that lie in one block of memory, in layouts that only the kernel knows which made them.
/// Each is kept until the memory is next written to. Threads may call at the same time.
class PackedCopies {
 public:
  struct Matrix {
    const void* data;
    int64_t rows, cols;
    DType dtype;

    friend bool operator==(const Matrix&, const Matrix&) = default;
  };

  /// Null if there is none. Neither waits for another thread nor writes to memory that several share.
  virtual const std::byte* find(const Matrix& matrix) const = 0;
  /// Keeps `bytes` that `pack` writes. Returns what is kept: another thread's copy, if that came first.
  virtual const std::byte* keep(const Matrix& matrix, int64_t bytes, FunctionRef<void(std::byte*)> pack) = 0;

 protected:
  ~PackedCopies() = default;
};

}  // namespace heed::kernels
