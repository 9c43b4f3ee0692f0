// Matrices of 8-bit integers with a scale for each row, and what linear layers and embeddings do with them,
// for inference (Dettmers et al., arXiv 2208.07339, section 2.1). Contract; the CPU alone has them.
#pragma once

#include <cstddef>
#include <cstdint>

#include <heed/core/base/cost.h>
#include <heed/kernels/declare.h>

namespace heed::kernels {

/// Element (i, j) is scale[i] q[i][j], q from -127 to 127 and scale[i] the row's largest magnitude / 127.
/// Rows lie in panels of kPanel, padded with zeros: their scales as floats, then for each kGroup columns
/// those of each row as bytes q + 128.
struct Int8Matrix {
  static constexpr int64_t kPanel = 16, kGroup = 4;
  /// Of sums of products that an int32 holds, whatever the values.
  static constexpr int64_t kMaxCols = int64_t{1} << 16;

  const std::byte* data;
  int64_t rows, cols;

  int64_t panels() const { return (rows + kPanel - 1) / kPanel; }
  int64_t groups() const { return (cols + kGroup - 1) / kGroup; }
  int64_t panel_bytes() const { return kPanel * (int64_t{sizeof(float)} + groups() * kGroup); }
  int64_t bytes() const { return panels() * panel_bytes(); }
};

struct Int8Pack {
  const float* values;  // [rows, cols]; a NaN or an infinity makes its row NaN
  Int8Matrix matrix;    // its data are not looked at
  std::byte* data;      // [matrix.bytes()]

  Cost cost() const { return bytes_moved<float>(matrix.rows * matrix.cols); }
};

/// Rows of the matrix as floats.
struct Int8Rows {
  Int8Matrix matrix;
  const int64_t* ids;  // [count], each in [0, matrix.rows)
  int64_t count;
  float* y;  // [count, matrix.cols]

  Cost cost() const { return bytes_moved<float>(count * matrix.cols); }
};

/// y = x Wᵀ + bias, W the rows [first, first + out) of the matrix. Each kInt8Block elements of a row of x are
/// made 8-bit integers too, by their largest magnitude; products of integers are exact, and blocks are added
/// as floats in their order. A NaN or an infinity in a row of x makes its row of y NaN.
struct Int8Linear {
  const float* x;  // [rows, matrix.cols]
  Int8Matrix matrix;
  int64_t first, out;
  const float* bias;  // [out] or null
  float* y;           // [rows, out]
  int64_t rows;

  Cost cost() const {
    return Cost{2.0 * static_cast<double>(rows * matrix.cols * out), 0} +
           bytes_moved<float>(rows * (matrix.cols + out) + matrix.cols * out / 4);
  }
};

inline constexpr int64_t kInt8Block = 64;  // a multiple of 64

}  // namespace heed::kernels

HEED_KERNEL_0(int8_pack, Int8Pack);
HEED_KERNEL_0(int8_rows, Int8Rows);
HEED_KERNEL_0(int8_linear, Int8Linear);
