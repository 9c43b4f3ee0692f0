// Copies of parts of A and B, converted to the accumulator's type, in the order in which the microkernel
// reads them.
#include <heed/kernels/cpu/gemm_block.h>
#include <heed/kernels/cpu/simd.h>

#if defined(HEED_KERNELS_CPU_GEMM_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_CPU_GEMM_PACK_INL_H_
#undef HEED_KERNELS_CPU_GEMM_PACK_INL_H_
#else
#define HEED_KERNELS_CPU_GEMM_PACK_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

/// A vector of 16-byte blocks, block q from p + q * stride.
template <class D, class T>
HWY_INLINE Vec<D> load_blocks(D d, const T* p, int64_t stride) {
  constexpr int64_t kBlocks = hn::MaxLanes(d) * sizeof(hn::TFromD<D>) / 16;
  if constexpr (kBlocks == 1) {
    return load(d, p);
  } else {
    const hn::Half<D> half;
    return hn::Combine(d, load_blocks(half, p + kBlocks / 2 * stride, stride), load_blocks(half, p, stride));
  }
}

/// Transposes within each 16-byte block of v[0] … v[block - 1], and stores v[i] at out + i * width.
template <class D>
HWY_INLINE void store_transposed(D d, const Vec<D>* v, float* out, int64_t width) {
  const hn::Repartition<uint64_t, D> d64;
  const auto low01 = hn::BitCast(d64, hn::InterleaveLower(d, v[0], v[1]));
  const auto low23 = hn::BitCast(d64, hn::InterleaveLower(d, v[2], v[3]));
  const auto high01 = hn::BitCast(d64, hn::InterleaveUpper(d, v[0], v[1]));
  const auto high23 = hn::BitCast(d64, hn::InterleaveUpper(d, v[2], v[3]));
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, low01, low23)), d, out);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, low01, low23)), d, out + width);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, high01, high23)), d, out + 2 * width);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, high01, high23)), d, out + 3 * width);
}

template <class D>
HWY_INLINE void store_transposed(D d, const Vec<D>* v, double* out, int64_t width) {
  hn::StoreU(hn::InterleaveLower(d, v[0], v[1]), d, out);
  hn::StoreU(hn::InterleaveUpper(d, v[0], v[1]), d, out + width);
}

/// out[p * width + c] = source[c * stride + p] for one vector of columns c and p < k.
template <class T>
HWY_INLINE void pack_transposed(const T* source, int64_t stride, int64_t k, accumulator_t<T>* out,
                                int64_t width) {
  const Tag<T> d;
  constexpr int64_t kBlock = 16 / sizeof(accumulator_t<T>);
  int64_t p = 0;
  for (; p + kBlock <= k; p += kBlock) {
    Vec<Tag<T>> v[kBlock];
    for (int64_t i = 0; i < kBlock; ++i) v[i] = load_blocks(d, source + i * stride + p, kBlock * stride);
    store_transposed(d, v, out + p * width, width);
  }
  for (; p < k; ++p) {
    for (size_t c = 0; c < hn::Lanes(d); ++c) {
      out[p * width + static_cast<int64_t>(c)] =
          accumulator_t<T>(source[static_cast<int64_t>(c) * stride + p]);
    }
  }
}

/// A panel of B: out[p * width + c] = b(p, c) for p < k and c < cols, and 0 for c from cols to width, which
/// is one or two vectors.
template <class T>
void pack_b(MatrixView<T> b, int64_t k, int64_t cols, int64_t width, accumulator_t<T>* out) {
  const Tag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  if (b.column_stride == 1) {
    for (int64_t p = 0; p < k; ++p) {
      const T* row = b.data + p * b.row_stride;
      for (int64_t c = 0; c < width; c += lanes) {
        const int64_t left = cols - c;
        const auto v = left >= lanes ? load(d, row + c) : load_n(d, row + c, left > 0 ? left : 0);
        hn::StoreU(v, d, out + p * width + c);
      }
    }
    return;
  }
  for (int64_t c = 0; c < width; c += lanes) {
    if (cols - c >= lanes) {
      pack_transposed(b.data + c * b.column_stride, b.column_stride, k, out + c, width);
      continue;
    }
    for (int64_t p = 0; p < k; ++p) {
      for (int64_t i = c; i < c + lanes; ++i) {
        out[p * width + i] =
            i < cols ? accumulator_t<T>(b.data[i * b.column_stride + p]) : accumulator_t<T>(0);
      }
    }
  }
}

/// Rows of A as they are: out[i * k + p] = a(i, p). Writes up to a vector beyond the end.
template <class T>
void copy_rows(MatrixView<T> a, int64_t rows, int64_t k, accumulator_t<T>* out) {
  const Tag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < rows; ++i) {
    const T* row = a.data + i * a.row_stride;
    int64_t p = 0;
    for (; p + lanes <= k; p += lanes) hn::StoreU(load(d, row + p), d, out + i * k + p);
    if (p < k) hn::StoreU(load_n(d, row + p, k - p), d, out + i * k + p);
  }
}

/// A panel of a transposed A: out[p * rows + i] = a(i, p). `readable` rows follow each other in memory.
/// Writes up to a vector beyond the end.
template <class T>
void pack_a(MatrixView<T> a, int64_t rows, int64_t readable, int64_t k, accumulator_t<T>* out) {
  const Tag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t p = 0; p < k; ++p) {
    const T* column = a.data + p * a.column_stride;
    for (int64_t i = 0; i < rows; i += lanes) {
      const auto v = readable - i >= lanes ? load(d, column + i) : load_n(d, column + i, readable - i);
      hn::StoreU(v, d, out + p * rows + i);
    }
  }
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
