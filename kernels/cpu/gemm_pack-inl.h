// Copies of parts of A and B, converted to the accumulator's type, in the order in which the microkernel
// reads them.
#include <hwy/cache_control.h>

#include <heed/kernels/cpu/gemm_block.h>
#include <heed/kernels/cpu/gemm_micro-inl.h>
#include <heed/kernels/cpu/simd.h>

#if defined(HEED_KERNELS_CPU_GEMM_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_CPU_GEMM_PACK_INL_H_
#undef HEED_KERNELS_CPU_GEMM_PACK_INL_H_
#else
#define HEED_KERNELS_CPU_GEMM_PACK_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

constexpr int64_t kPrefetchRows = 16;
constexpr int64_t kPackRows = 16;

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

/// out[p * width + c] = source[c * stride + p] for one vector of columns c and p < k. Fetches the next such
/// vector meanwhile.
template <class T>
HWY_INLINE void pack_transposed(const T* source, int64_t stride, int64_t k, accumulator_t<T>* out,
                                int64_t width) {
  const Tag<T> d;
  constexpr int64_t kBlock = 16 / sizeof(accumulator_t<T>), kLanes = hn::MaxLanes(d);
  int64_t p = 0;
  for (; p + kBlock <= k; p += kBlock) {
    Vec<Tag<T>> v[kBlock];
    for (int64_t i = 0; i < kBlock; ++i) v[i] = load_blocks(d, source + i * stride + p, kBlock * stride);
    for (int64_t i = p / kBlock % kBlock; i < kLanes; i += kBlock)
      hwy::Prefetch(source + (kLanes + i) * stride + p);
    store_transposed(d, v, out + p * width, width);
  }
  for (; p < k; ++p) {
    for (size_t c = 0; c < hn::Lanes(d); ++c) {
      out[p * width + static_cast<int64_t>(c)] =
          accumulator_t<T>(source[static_cast<int64_t>(c) * stride + p]);
    }
  }
}

/// Whole vectors from each row of x: out[(p * Vectors + v) * lanes + c] = x(p, v * lanes + c) for p < k. The
/// rows may be far apart, and then the hardware does not fetch ahead.
template <int64_t Vectors, class T>
HWY_INLINE void copy_columns(MatrixView<T> x, int64_t k, accumulator_t<T>* HWY_RESTRICT out) {
  const Tag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const T* HWY_RESTRICT row = x.data;
  for (int64_t p = 0; p < k; ++p) {
    hwy::Prefetch(row + kPrefetchRows * x.row_stride);
    for (int64_t v = 0; v < Vectors; ++v) hn::StoreU(load(d, row + v * lanes), d, out + v * lanes);
    row += x.row_stride;
    out += Vectors * lanes;
  }
}

/// A panel of B: out[p * width + c] = b(p, c) for p < k and c < cols, and 0 for c from cols to width, which
/// is one or two vectors.
template <class T>
void pack_b(MatrixView<T> b, int64_t k, int64_t cols, int64_t width, accumulator_t<T>* out) {
  const Tag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  if (b.column_stride == 1) {
    if (cols == 2 * lanes) return copy_columns<2>(b, k, out);
    for (int64_t p = 0; p < k; ++p) {
      for (int64_t c = 0; c < width; c += lanes) {
        const int64_t n = HWY_MAX(HWY_MIN(cols - c, lanes), 0);
        hn::StoreU(load_n(d, b.data + p * b.row_stride + c, n), d, out + p * width + c);
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

/// The rows of a tile in even panels of at most kMicroRows.
struct RowPanels {
  int64_t count;
  int64_t begin[kMaxTileRows / kMicroRows + 2];

  explicit RowPanels(int64_t rows) : count((rows + kMicroRows - 1) / kMicroRows) {
    for (int64_t i = 0; i <= count; ++i) begin[i] = i * rows / count;
  }
  int64_t rows(int64_t i) const { return begin[i + 1] - begin[i]; }
};

/// A transposed A in panels: element (begin[i] + r, p) goes to out[(i * k + p) * kPackedRows<A> + r].
/// `readable` rows follow each other in memory.
template <class T>
void pack_a(MatrixView<T> a, const RowPanels& panels, int64_t readable, int64_t k, accumulator_t<T>* out) {
  using A = accumulator_t<T>;
  const Tag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  constexpr int64_t kVectors = kPackedRows<A> / hn::MaxLanes(d);
  for (int64_t begin = 0; begin < k; begin += kPackRows) {  // a few rows of memory at a time, which stay near
    const int64_t count = HWY_MIN(kPackRows, k - begin);
    for (int64_t i = 0; i < panels.count; ++i) {
      const int64_t first = panels.begin[i];
      const MatrixView<T> rows{a.data + begin * a.column_stride + first, a.column_stride, 1};
      A* panel = out + (i * k + begin) * kPackedRows<A>;
      if (readable - first >= kPackedRows<A>) {
        copy_columns<kVectors>(rows, count, panel);
        continue;
      }
      for (int64_t p = 0; p < count; ++p) {
        for (int64_t r = 0; r < kPackedRows<A>; r += lanes) {
          const int64_t n = HWY_MAX(HWY_MIN(readable - first - r, lanes), 0);
          hn::StoreU(load_n(d, rows.data + p * rows.row_stride + r, n), d, panel + p * kPackedRows<A> + r);
        }
      }
    }
  }
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
