// The tiles of Winograd's convolution and their pixels, channels last. Not installed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <type_traits>

#include <heed/core/base/dtype.h>
#include <heed/core/base/int_math.h>
#include <heed/kernels/convolution.h>
#include <heed/kernels/cpu/convolution/convolution_product.h>
#include <heed/kernels/cpu/convolution/convolution_winograd_transforms.h>
#include <heed/kernels/cpu/tasks/workspace.h>

namespace heed::cpu {

constexpr int64_t kElements = 16;  // of a tile that is transformed
constexpr int64_t kTaps = 9;

/// A panel has the vectors in which a product reads its right side: of `count` columns, these many with zeros
/// behind them.
template <class A>
int64_t panel_width(int64_t count) {
  const int64_t nr = gemm_functions<A>().geometry.nr;
  return count > nr / 2 ? nr : nr / 2;
}

/// Calls f(first, count, width) for each panel of `count` columns.
template <class A, class F>
void for_each_panel(int64_t count, const F& f) {
  const int64_t nr = gemm_functions<A>().geometry.nr;
  for (int64_t i = 0; i < count; i += nr) {
    const int64_t columns = std::min(nr, count - i);
    f(i, columns, panel_width<A>(columns));
  }
}

/// The columns of all panels.
template <class A>
int64_t padded_columns(int64_t count) {
  return round_up(count, gemm_functions<A>().geometry.nr / 2);
}

/// A matrix [rows, columns] whose rows are `width` apart to `to`, transposed, whose rows are `stride` apart.
template <class T>
void store_transposed(const accumulator_t<T>* from, int64_t width, int64_t rows, int64_t columns, T* to,
                      int64_t stride, bool accumulate) {
  using A = accumulator_t<T>;
  if constexpr (std::is_same_v<T, A>) {
    if (!accumulate) return store_transposed_rows(from, width, rows, columns, to, stride);
  }
  const Workspace<A> lines(rows * columns);
  store_transposed_rows(from, width, rows, columns, lines.data(), rows);
  for (int64_t c = 0; c < columns; ++c)
    store_run(lines.data() + c * rows, rows, to + c * stride, 1, accumulate);
}

/// The rows [row, row + rows) and columns [col, col + cols) of the planes of some images, which may lie
/// beyond the planes in part. Its pixels that do not are kept channels last, in panels: the pixels of some
/// images one after the other, and behind them one more, which stands for all beyond.
class PixelWindow {
 public:
  PixelWindow(int64_t images, int64_t height, int64_t width, int64_t row, int64_t rows, int64_t col,
              int64_t cols)
      : images_(images),
        plane_(height * width),
        width_(width),
        row_(std::clamp<int64_t>(row, 0, height)),
        col_(std::clamp<int64_t>(col, 0, width)),
        rows_(std::clamp<int64_t>(row + rows, 0, height) - row_),
        cols_(std::clamp<int64_t>(col + cols, 0, width) - col_),
        places_(images * rows * cols),
        place_rows_(rows),
        place_cols_(cols) {
    int32_t* out = places_.data();
    const int32_t beyond = static_cast<int32_t>(pixels());
    for (int64_t n = 0; n < images; ++n)
      for (int64_t i = row; i < row + rows; ++i, out += cols) {
        std::fill_n(out, cols, beyond);
        if (i >= row_ && i < row_ + rows_)
          std::iota(out + (col_ - col), out + (col_ - col) + cols_,
                    static_cast<int32_t>((n * rows_ + i - row_) * cols_));
      }
  }

  int64_t pixels() const { return images_ * rows_ * cols_; }
  /// Elements that it has in panels of so many columns altogether.
  int64_t size(int64_t columns) const { return (pixels() + 1) * columns; }

  /// As squares that lie two rows and columns apart.
  template <class E>
  SquarePixels<E> squares(E* pixels) const {
    return {pixels, places_.data(), place_rows_, place_cols_};
  }

  /// Panels of the channels of the planes that begin at `planes`; zeros beyond.
  template <class T>
  void read(const T* planes, int64_t image_stride, int64_t channels, accumulator_t<T>* out) const {
    using A = accumulator_t<T>;
    for_each_panel<A>(channels, [&](int64_t first, int64_t count, int64_t width) {
      for_each_run([&](int64_t image, int64_t pixel, int64_t offset, int64_t length) {
        const Widened<T> run(planes + image * image_stride + first * plane_ + offset, count, length, plane_);
        gemm_functions<A>().pack_b({run.data(), 1, run.stride()}, length, count, out + pixel * width);
      });
      std::fill_n(out + pixels() * width, width, A(0));
      out += size(width);
    });
  }

  /// Writes a panel of channels to planes.
  template <class T>
  void write(const accumulator_t<T>* panel, int64_t width, int64_t channels, T* planes, int64_t image_stride,
             bool accumulate) const {
    for_each_run([&](int64_t image, int64_t pixel, int64_t offset, int64_t length) {
      store_transposed(panel + pixel * width, width, length, channels, planes + image * image_stride + offset,
                       plane_, accumulate);
    });
  }

 private:
  /// Calls f(image, pixel, offset, length) for pixels that lie side by side in a plane, from `offset` on:
  /// whole images where their rows are whole.
  template <class F>
  void for_each_run(const F& f) const {
    const int64_t image_pixels = rows_ * cols_, length = cols_ == width_ ? image_pixels : cols_;
    for (int64_t n = 0; n < images_; ++n)
      for (int64_t i = 0; i < image_pixels; i += length)
        f(n, n * image_pixels + i, (row_ + i / cols_) * width_ + col_, length);
  }

  const int64_t images_, plane_, width_;
  const int64_t row_, col_, rows_, cols_;  // of the planes
  const Workspace<int32_t> places_;        // of the pixels of the window, some of which are beyond
  const int64_t place_rows_, place_cols_;
};

/// Positions and what they read: position (i, j) reads the rows i - padding[0] … i - padding[0] + 2 of
/// planes, and columns likewise. A tile is 2 x 2 positions, the last of which may be beyond.
struct WinogradGrid {
  int64_t height, width;  // of the planes
  int64_t rows, cols;     // positions
  int64_t padding[2];

  int64_t tile_rows() const { return ceil_divide(rows, 2); }
  int64_t tile_cols() const { return ceil_divide(cols, 2); }
  int64_t tiles() const { return tile_rows() * tile_cols(); }
};

/// The tiles of y, for its sums and for the gradient of the weight, and those of x, for its gradient.
inline WinogradGrid output_tiles(const kernels::ConvolutionSizes& s) {
  return {s.height, s.width, s.out_height(), s.out_width(), {s.window.padding[0], s.window.padding[1]}};
}
inline WinogradGrid input_tiles(const kernels::ConvolutionSizes& s) {
  return {
      s.out_height(), s.out_width(), s.height, s.width, {2 - s.window.padding[0], 2 - s.window.padding[1]}};
}

/// Tiles of some images: those in some rows and columns of them.
struct WinogradTiles {
  int64_t image;  // the first
  int64_t row, col;
  SquareGrid count;

  /// The pixels that they read, and their positions.
  PixelWindow input(const WinogradGrid& grid) const {
    return {count.images,       grid.height,
            grid.width,         2 * row - grid.padding[0],
            2 * count.rows + 2, 2 * col - grid.padding[1],
            2 * count.cols + 2};
  }
  PixelWindow output(const WinogradGrid& grid) const {
    return {count.images, grid.rows, grid.cols, 2 * row, 2 * count.rows, 2 * col, 2 * count.cols};
  }
};

/// All tiles of a batch, at most `most` at a time: of several images, of some rows, or of a part of a row.
class WinogradCut {
 public:
  WinogradCut(const WinogradGrid& grid, int64_t batch, int64_t most)
      : images_(batch, 1, most / grid.tiles()),
        cols_(grid.tile_cols(), 1, most),
        rows_(grid.tile_rows(), 1, most / ceil_divide(grid.tile_cols(), cols_.parts)) {}

  int64_t count() const { return images_.parts * rows_.parts * cols_.parts; }
  WinogradTiles operator[](int64_t i) const {
    const int64_t col = i % cols_.parts, row = i / cols_.parts % rows_.parts,
                  image = i / cols_.parts / rows_.parts;
    return {images_.begin(image),
            rows_.begin(row),
            cols_.begin(col),
            {images_.size(image), rows_.size(row), cols_.size(col)}};
  }

 private:
  EvenSplit images_, cols_, rows_;
};

/// A matrix for each of the 16 elements of a transform. Their sizes are often powers of two, and without a
/// line between them they would compete for the same sets of the first-level cache.
template <class A>
struct Elements {
  A* data;
  int64_t rows, columns;

  /// The elements of all.
  static int64_t size(int64_t rows, int64_t columns) { return kElements * stride(rows, columns); }
  /// From a matrix to the next.
  static int64_t stride(int64_t rows, int64_t columns) {
    return rows * columns + kLineBytes / int64_t{sizeof(A)};
  }

  A* operator[](int64_t element) const { return data + element * stride(rows, columns); }
  /// A square for each row, from column `first` on.
  template <class E = A>
  SquareArray<E> row_squares(int64_t first) const {
    return {data + first, columns, stride(rows, columns)};
  }
  /// The same where panels of the columns, [rows, width] each, lie one after the other.
  SquareArray<A> panel_squares(int64_t first, int64_t width) const {
    return {data + first * rows, width, stride(rows, columns)};
  }
};

/// Transforms the pixels of some tiles, of planes that begin at `planes`: [tiles, padded channels], or panels
/// of these.
template <class T>
void transform_planes(WinogradTransform transform, const PixelWindow& window, const SquareGrid& tiles,
                      const T* planes, int64_t image_stride, int64_t channels, bool panels,
                      const Elements<accumulator_t<T>>& out) {
  using A = accumulator_t<T>;
  const Workspace<A> pixels(window.size(padded_columns<A>(channels)));
  window.read(planes, image_stride, channels, pixels.data());
  for_each_panel<A>(channels, [&](int64_t first, int64_t, int64_t width) {
    transform_pixels<A>(transform, window.squares<const A>(pixels.data() + window.size(first)),
                        panels ? out.panel_squares(first, width) : out.row_squares(first), tiles, width);
  });
}

}  // namespace heed::cpu
