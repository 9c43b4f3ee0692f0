#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/kernels/cpu/convolution/convolution_winograd_transforms.cpp"

#include <heed/kernels/cpu/convolution/convolution_winograd_transforms.h>
#include <heed/kernels/cpu/gemm/gemm_pack-inl.h>
#include <heed/kernels/cpu/simd/simd.h>

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

// Each transform multiplies a square by a matrix from the left and by its transpose from the right: this is
// the product of the matrix [kOut, kIn] and one column.
struct ImageMatrix {  // B', its last row negated as that of A is
  static constexpr int64_t kIn = 4, kOut = 4;
  template <class D, class V>
  static HWY_INLINE void multiply(D, const V* x, V* y) {
    y[0] = hn::Sub(x[0], x[2]);
    y[1] = hn::Add(x[1], x[2]);
    y[2] = hn::Sub(x[2], x[1]);
    y[3] = hn::Sub(x[3], x[1]);
  }
};

struct OutputGradientMatrix {  // A
  static constexpr int64_t kIn = 2, kOut = 4;
  template <class D, class V>
  static HWY_INLINE void multiply(D, const V* x, V* y) {
    y[0] = x[0];
    y[1] = hn::Add(x[0], x[1]);
    y[2] = hn::Sub(x[0], x[1]);
    y[3] = x[1];
  }
};

struct OutputMatrix {  // A'
  static constexpr int64_t kIn = 4, kOut = 2;
  template <class D, class V>
  static HWY_INLINE void multiply(D, const V* x, V* y) {
    y[0] = hn::Add(hn::Add(x[0], x[1]), x[2]);
    y[1] = hn::Add(hn::Sub(x[1], x[2]), x[3]);
  }
};

struct WeightMatrix {  // G
  static constexpr int64_t kIn = 3, kOut = 4;
  template <class D, class V>
  static HWY_INLINE void multiply(D d, const V* x, V* y) {
    const V half = hn::Set(d, hn::TFromD<D>(0.5)), ends = hn::Mul(half, hn::Add(x[0], x[2])),
            middle = hn::Mul(half, x[1]);
    y[0] = x[0];
    y[1] = hn::Add(ends, middle);
    y[2] = hn::Sub(ends, middle);
    y[3] = x[2];
  }
};

struct WeightGradientMatrix {  // G'
  static constexpr int64_t kIn = 4, kOut = 3;
  template <class D, class V>
  static HWY_INLINE void multiply(D d, const V* x, V* y) {
    const V half = hn::Set(d, hn::TFromD<D>(0.5)), ends = hn::Mul(half, hn::Add(x[1], x[2]));
    y[0] = hn::Add(x[0], ends);
    y[1] = hn::Mul(half, hn::Sub(x[1], x[2]));
    y[2] = hn::Add(ends, x[3]);
  }
};

/// One square: element e of it is at from + from_offset[e], and of the result at to + to_offset[e].
template <class Matrix, class A>
HWY_INLINE void transform_square(const A* HWY_RESTRICT from, const int64_t* from_offset, const A* bias,
                                 A* HWY_RESTRICT to, const int64_t* to_offset, int64_t width) {
  constexpr int64_t kIn = Matrix::kIn, kOut = Matrix::kOut;
  const Tag<A> d;
  using V = Vec<Tag<A>>;
  for (int64_t c = 0; c < width; c += static_cast<int64_t>(hn::Lanes(d))) {
    V columns[kIn][kOut];  // of the product from the left
    for (int64_t j = 0; j < kIn; ++j) {
      V column[kIn];
      for (int64_t i = 0; i < kIn; ++i) column[i] = hn::LoadU(d, from + from_offset[i * kIn + j] + c);
      Matrix::multiply(d, column, columns[j]);
    }
    const V added = bias ? hn::LoadU(d, bias + c) : hn::Zero(d);
    for (int64_t i = 0; i < kOut; ++i) {
      V row[kIn], result[kOut];
      for (int64_t j = 0; j < kIn; ++j) row[j] = columns[j][i];
      Matrix::multiply(d, row, result);
      for (int64_t j = 0; j < kOut; ++j) {
        if (bias) result[j] = hn::Add(result[j], added);
        hn::StoreU(result[j], d, to + to_offset[i * kOut + j] + c);
      }
    }
  }
}

/// Offsets of the elements of one square.
template <int64_t N, class E>
HWY_INLINE void array_offsets(const SquareArray<E>& squares, int64_t* offset) {
  for (int64_t e = 0; e < N * N; ++e) offset[e] = e * squares.element;
}
template <int64_t N, class E>
HWY_INLINE void pixel_offsets(const SquarePixels<E>& squares, const int32_t* place, int64_t width,
                              int64_t* offset) {
  for (int64_t i = 0; i < N; ++i)
    for (int64_t j = 0; j < N; ++j) offset[i * N + j] = place[i * squares.cols + j] * width;
}

template <class Matrix, class A>
HWY_INLINE void from_pixels(const SquarePixels<const A>& from, const SquareArray<A>& to,
                            const SquareGrid& grid, int64_t width) {
  int64_t from_offset[Matrix::kIn * Matrix::kIn], to_offset[Matrix::kOut * Matrix::kOut];
  array_offsets<Matrix::kOut>(to, to_offset);
  A* out = to.data;
  for (int64_t n = 0; n < grid.images; ++n)
    for (int64_t r = 0; r < grid.rows; ++r)
      for (int64_t c = 0; c < grid.cols; ++c, out += to.square) {
        const int32_t* const place = from.place + (n * from.rows + 2 * r) * from.cols + 2 * c;
        pixel_offsets<Matrix::kIn>(from, place, width, from_offset);
        transform_square<Matrix, A>(from.data, from_offset, nullptr, out, to_offset, width);
      }
}

template <class A>
HWY_INLINE void from_pixels(WinogradTransform transform, const SquarePixels<const A>& from,
                            const SquareArray<A>& to, const SquareGrid& grid, int64_t width) {
  if (transform == WinogradTransform::image)
    from_pixels<ImageMatrix>(from, to, grid, width);
  else
    from_pixels<OutputGradientMatrix>(from, to, grid, width);
}

template <class A>
HWY_INLINE void to_pixels(const SquareArray<const A>& from, const A* bias, const SquarePixels<A>& to,
                          const SquareGrid& grid, int64_t width) {
  using Matrix = OutputMatrix;
  int64_t from_offset[Matrix::kIn * Matrix::kIn], to_offset[Matrix::kOut * Matrix::kOut];
  array_offsets<Matrix::kIn>(from, from_offset);
  const A* in = from.data;
  for (int64_t n = 0; n < grid.images; ++n)
    for (int64_t r = 0; r < grid.rows; ++r)
      for (int64_t c = 0; c < grid.cols; ++c, in += from.square) {
        const int32_t* const place = to.place + (n * to.rows + 2 * r) * to.cols + 2 * c;
        pixel_offsets<Matrix::kOut>(to, place, width, to_offset);
        transform_square<Matrix, A>(in, from_offset, bias, to.data, to_offset, width);
      }
}

template <class Matrix, class A>
HWY_INLINE void from_array(const SquareArray<const A>& from, const SquareArray<A>& to, int64_t squares,
                           int64_t width) {
  int64_t from_offset[Matrix::kIn * Matrix::kIn], to_offset[Matrix::kOut * Matrix::kOut];
  array_offsets<Matrix::kIn>(from, from_offset);
  array_offsets<Matrix::kOut>(to, to_offset);
  for (int64_t s = 0; s < squares; ++s)
    transform_square<Matrix, A>(from.data + s * from.square, from_offset, nullptr, to.data + s * to.square,
                                to_offset, width);
}

template <class A>
HWY_INLINE void from_array(WinogradTransform transform, const SquareArray<const A>& from,
                           const SquareArray<A>& to, int64_t squares, int64_t width) {
  if (transform == WinogradTransform::weight)
    from_array<WeightMatrix>(from, to, squares, width);
  else
    from_array<WeightGradientMatrix>(from, to, squares, width);
}

/// A few columns at a time, so that few rows are written by turns, and lines of them are fetched ahead.
template <class A>
HWY_INLINE void transpose_rows(const A* from, int64_t width, int64_t rows, int64_t columns, A* to,
                               int64_t stride) {
  constexpr int64_t kColumns = 8;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(Tag<A>())), whole = rows / lanes * lanes;
  for (int64_t c = 0; c < columns; c += kColumns)
    for (int64_t r = 0; r < whole; r += lanes)
      pack_transposed<1>(from + r * width + c, width, HWY_MIN(kColumns, columns - c), to + c * stride + r,
                         stride);
  for (int64_t c = 0; c < columns; ++c)
    for (int64_t r = whole; r < rows; ++r) to[c * stride + r] = from[r * width + c];
}

#define HEED_DEFINE(A, suffix)                                                                        \
  void from_pixels_##suffix(WinogradTransform transform, const SquarePixels<const A>& from,           \
                            const SquareArray<A>& to, const SquareGrid& grid, int64_t width) {        \
    from_pixels(transform, from, to, grid, width);                                                    \
  }                                                                                                   \
  void to_pixels_##suffix(const SquareArray<const A>& from, const A* bias, const SquarePixels<A>& to, \
                          const SquareGrid& grid, int64_t width) {                                    \
    to_pixels(from, bias, to, grid, width);                                                           \
  }                                                                                                   \
  void from_array_##suffix(WinogradTransform transform, const SquareArray<const A>& from,             \
                           const SquareArray<A>& to, int64_t squares, int64_t width) {                \
    from_array(transform, from, to, squares, width);                                                  \
  }                                                                                                   \
  void transpose_rows_##suffix(const A* from, int64_t width, int64_t rows, int64_t columns, A* to,    \
                               int64_t stride) {                                                      \
    transpose_rows(from, width, rows, columns, to, stride);                                           \
  }
HEED_DEFINE(float, f32)
HEED_DEFINE(double, f64)
#undef HEED_DEFINE

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::cpu {

#define HEED_DEFINE(A, suffix)                                                                         \
  HWY_EXPORT(from_pixels_##suffix);                                                                    \
  HWY_EXPORT(to_pixels_##suffix);                                                                      \
  HWY_EXPORT(from_array_##suffix);                                                                     \
  HWY_EXPORT(transpose_rows_##suffix);                                                                 \
  template <>                                                                                          \
  void transform_pixels(WinogradTransform transform, const SquarePixels<const A>& from,                \
                        const SquareArray<A>& to, const SquareGrid& grid, int64_t width) {             \
    HEED_SIMD(from_pixels_##suffix)(transform, from, to, grid, width);                                 \
  }                                                                                                    \
  template <>                                                                                          \
  void transform_to_pixels(const SquareArray<const A>& from, const A* bias, const SquarePixels<A>& to, \
                           const SquareGrid& grid, int64_t width) {                                    \
    HEED_SIMD(to_pixels_##suffix)(from, bias, to, grid, width);                                        \
  }                                                                                                    \
  template <>                                                                                          \
  void transform_squares(WinogradTransform transform, const SquareArray<const A>& from,                \
                         const SquareArray<A>& to, int64_t squares, int64_t width) {                   \
    HEED_SIMD(from_array_##suffix)(transform, from, to, squares, width);                               \
  }                                                                                                    \
  template <>                                                                                          \
  void store_transposed_rows(const A* from, int64_t width, int64_t rows, int64_t columns, A* to,       \
                             int64_t stride) {                                                         \
    HEED_SIMD(transpose_rows_##suffix)(from, width, rows, columns, to, stride);                        \
  }
HEED_DEFINE(float, f32)
HEED_DEFINE(double, f64)
#undef HEED_DEFINE

}  // namespace heed::cpu
#endif
