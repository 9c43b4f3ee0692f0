// The transforms of Winograd's convolution F(2 x 2, 3 x 3). Not installed.
#pragma once

#include <cstdint>

namespace heed::cpu {

/// The 2 x 2 sums of a 3 x 3 window w over a tile x of 4 x 4 pixels are A' [(G w G') * (B' x B)] A, which
/// takes 16 multiplications in place of 36 (Lavin and Gray, 2016). Gradients take the transposed transforms:
/// that of w is G' [(A gy A') * (B' x B)] G.
enum class WinogradTransform : uint8_t {
  image,            // 4 x 4 pixels to 4 x 4: B' x B
  output_gradient,  // 2 x 2 pixels to 4 x 4: A gy A'
  output,           // 4 x 4 to 2 x 2 pixels: A' m A
  weight,           // 3 x 3 to 4 x 4: G w G'
  weight_gradient   // 4 x 4 to 3 x 3: G' m G
};

/// Squares whose elements are vectors of channels: element (i, j) of n x n in square s is at data + s *
/// square
/// + (i * n + j) * element.
template <class E>
struct SquareArray {
  E* data;
  int64_t square, element;
};

/// Squares of pixels, two rows and columns from one to the next, each pixel a vector of channels: element (i,
/// j) of the square at (r, c) is the pixel number place[(2 * r + i) * cols + 2 * c + j] of those that follow
/// each other in `data`.
template <class E>
struct SquarePixels {
  E* data;
  const int32_t* place;  // [images, rows, cols]
  int64_t rows, cols;
};

/// Numbers of squares side by side in images.
struct SquareGrid {
  int64_t images, rows, cols;

  int64_t squares() const { return images * rows * cols; }
};

/// image or output_gradient of `width` channels, which are whole vectors.
template <class A>
void transform_pixels(WinogradTransform transform, const SquarePixels<const A>& from,
                      const SquareArray<A>& to, const SquareGrid& grid, int64_t width);

/// output, plus bias [width] if it is not null.
template <class A>
void transform_to_pixels(const SquareArray<const A>& from, const A* bias, const SquarePixels<A>& to,
                         const SquareGrid& grid, int64_t width);

/// weight or weight_gradient.
template <class A>
void transform_squares(WinogradTransform transform, const SquareArray<const A>& from,
                       const SquareArray<A>& to, int64_t squares, int64_t width);

/// to[c * stride + r] = from[r * width + c]
template <class A>
void store_transposed_rows(const A* from, int64_t width, int64_t rows, int64_t columns, A* to,
                           int64_t stride);

}  // namespace heed::cpu
