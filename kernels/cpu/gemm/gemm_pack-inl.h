// Copies of parts of A and B in the order in which the microkernel reads them. An element of a copy is one
// value of K in the accumulator's type (Group 1), or two that follow each other in K, as bf16, the first one
// in the lower half (Group 2); after an odd number of values comes a zero.
#include <cstring>

#include <hwy/cache_control.h>

#include <heed/core/base/int_math.h>
#include <heed/kernels/cpu/gemm/gemm_blocked.h>
#include <heed/kernels/cpu/gemm/gemm_blocking.h>
#include <heed/kernels/cpu/gemm/gemm_micro-inl.h>
#include <heed/kernels/cpu/simd/simd.h>

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

constexpr int64_t group_count(int64_t k, int64_t group) { return ceil_divide(k, group); }

/// Elements of a copy from values that lie next to each other along K.
template <int64_t Group, class D, class T>
HWY_INLINE Vec<D> load_groups(D d, const T* p) {
  if constexpr (Group == 1)
    return load(d, p);
  else
    return hn::BitCast(d, hn::LoadU(hn::Repartition<uint16_t, D>(), &p->bits));
}

/// One element from values of K `next` apart; `left` of them are there.
template <int64_t Group, class T>
HWY_INLINE accumulator_t<T> load_group(const T* p, int64_t next, int64_t left) {
  if constexpr (Group == 1) {
    return accumulator_t<T>(*p);
  } else {
    const uint32_t pair = p->bits | (left > 1 ? uint32_t{p[next].bits} << 16 : 0);
    accumulator_t<T> element;
    std::memcpy(&element, &pair, sizeof element);
    return element;
  }
}

/// Elements of a copy from a row of memory, and the next value of K from the row after it if there is one.
/// `load_row` reads a part of a row into a vector.
template <int64_t Group, class T, class Load>
HWY_INLINE Vec<Tag<T>> load_columns(const T* row, int64_t next, int64_t left, const Load& load_row) {
  const auto first = load_row(row);
  if constexpr (Group == 1) {
    return first;
  } else {
    const hn::RebindToUnsigned<Tag<T>> d32;  // a bf16 is the upper half of its float
    const auto lower = hn::ShiftRight<16>(hn::BitCast(d32, first));
    const auto both = left > 1 ? hn::Or(lower, hn::BitCast(d32, load_row(row + next))) : lower;
    return hn::BitCast(Tag<T>(), both);
  }
}

/// A vector of 16-byte blocks, block q from p + q * stride.
template <int64_t Group, class D, class T>
HWY_INLINE Vec<D> load_blocks(D d, const T* p, int64_t stride) {
  constexpr int64_t kBlocks = hn::MaxLanes(d) * sizeof(hn::TFromD<D>) / 16;
  if constexpr (kBlocks == 1) {
    return load_groups<Group>(d, p);
  } else {
    const hn::Half<D> half;
    return hn::Combine(d, load_blocks<Group>(half, p + kBlocks / 2 * stride, stride),
                       load_blocks<Group>(half, p, stride));
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

/// Element p of the copy of column c goes to out[p * width + c], for one vector of columns, whose values lie
/// from source + c * stride. Fetches the next such vector meanwhile.
template <int64_t Group, class T>
HWY_INLINE void pack_transposed(const T* source, int64_t stride, int64_t k, accumulator_t<T>* out,
                                int64_t width) {
  const Tag<T> d;
  constexpr int64_t kBlock = 16 / sizeof(accumulator_t<T>), kLanes = hn::MaxLanes(d);
  int64_t p = 0;
  for (; (p + kBlock) * Group <= k; p += kBlock) {
    Vec<Tag<T>> v[kBlock];
    for (int64_t i = 0; i < kBlock; ++i)
      v[i] = load_blocks<Group>(d, source + i * stride + p * Group, kBlock * stride);
    for (int64_t i = p / kBlock % kBlock; i < kLanes; i += kBlock)
      hwy::Prefetch(source + (kLanes + i) * stride + p * Group);
    store_transposed(d, v, out + p * width, width);
  }
  for (; p * Group < k; ++p) {
    for (int64_t c = 0; c < kLanes; ++c)
      out[p * width + c] = load_group<Group>(source + c * stride + p * Group, 1, k - p * Group);
  }
}

/// Whole vectors from each row of x [k, …], for one panel after the other: element (p, c) of a panel of
/// width = Vectors * lanes goes to out[p * width + c]. The rows may be far apart, and then the hardware does
/// not fetch ahead.
template <int64_t Panels, int64_t Vectors, int64_t Group, class T>
HWY_INLINE void copy_columns(MatrixView<T> x, int64_t k, accumulator_t<T>* HWY_RESTRICT out) {
  const Tag<T> d;
  constexpr int64_t kLineElements = kLineBytes / sizeof(T);
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), width = Vectors * lanes;
  const int64_t panel = group_count(k, Group) * width;
  const auto load_row = [d](const T* row) HWY_ATTR { return load(d, row); };
  const T* HWY_RESTRICT row = x.data;
  for (int64_t p = 0; p < k; p += Group) {
    for (int64_t i = 0; i < Group; ++i) {
      const T* const later = row + (kPrefetchRows + i) * x.row_stride;
      for (int64_t c = 0; c < Panels * width; c += kLineElements) hwy::Prefetch(later + c);
    }
    for (int64_t i = 0; i < Panels; ++i) {
      for (int64_t c = 0; c < width; c += lanes) {
        hn::StoreU(load_columns<Group>(row + i * width + c, x.row_stride, k - p, load_row), d,
                   out + i * panel + c);
      }
    }
    row += Group * x.row_stride;
    out += width;
  }
}

/// The same for `columns` columns, and 0 up to `width`.
template <int64_t Group, class T>
void copy_some_columns(MatrixView<T> x, int64_t k, int64_t columns, int64_t width, accumulator_t<T>* out) {
  const Tag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t p = 0; p < k; p += Group, out += width) {
    for (int64_t c = 0; c < width; c += lanes) {
      const int64_t n = HWY_MAX(HWY_MIN(columns - c, lanes), 0);
      const auto load_row = [d, n](const T* row) HWY_ATTR { return load_n(d, row, n); };
      const T* const row = x.data + p * x.row_stride + (n > 0 ? c : 0);
      hn::StoreU(load_columns<Group>(row, x.row_stride, k - p, load_row), d, out + c);
    }
  }
}

/// A panel of B: element p of column c goes to out[p * width + c], and 0 for c from cols to width, which is
/// one or two vectors.
template <int64_t Group, class T>
HWY_INLINE void pack_panel(MatrixView<T> b, int64_t k, int64_t cols, accumulator_t<T>* out) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(Tag<T>())), width = cols > lanes ? 2 * lanes : lanes;
  if (b.column_stride == 1) {
    if (cols == 2 * lanes) return copy_columns<1, 2, Group>(b, k, out);
    return copy_some_columns<Group>(b, k, cols, width, out);
  }
  for (int64_t c = 0; c < width; c += lanes) {
    if (cols - c >= lanes) {
      pack_transposed<Group>(b.data + c * b.column_stride, b.column_stride, k, out + c, width);
      continue;
    }
    for (int64_t p = 0; p * Group < k; ++p) {
      for (int64_t i = c; i < c + lanes; ++i) {
        out[p * width + i] =
            i < cols ? load_group<Group>(b.data + i * b.column_stride + p * Group, 1, k - p * Group)
                     : accumulator_t<T>(0);
      }
    }
  }
}

/// The panels of `cols` columns of B, one after the other. From rows that lie far apart in memory several
/// lines at a time are twice as fast as single ones.
template <int64_t Group, class T>
void pack_b(MatrixView<T> b, int64_t k, int64_t cols, accumulator_t<T>* out) {
  const int64_t panel = kMicroVectors * static_cast<int64_t>(hn::Lanes(Tag<T>())),
                groups = group_count(k, Group);
  int64_t c = 0;
  if (b.column_stride == 1) {
    for (; c + kPackedPanels * panel <= cols; c += kPackedPanels * panel)
      copy_columns<kPackedPanels, kMicroVectors, Group>(b.at(0, c), k, out + c * groups);
  }
  for (; c < cols; c += panel) pack_panel<Group>(b.at(0, c), k, HWY_MIN(cols - c, panel), out + c * groups);
}

/// Rows of A as they are: element p of row i goes to out[i * group_count(k) + p]. Writes up to a vector
/// beyond the end.
template <int64_t Group, class T>
void copy_rows(MatrixView<T> a, int64_t rows, int64_t k, accumulator_t<T>* out) {
  const Tag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), groups = group_count(k, Group);
  for (int64_t i = 0; i < rows; ++i, out += groups) {
    const T* row = a.data + i * a.row_stride;
    int64_t p = 0;
    for (; (p + lanes) * Group <= k; p += lanes)
      hn::StoreU(load_groups<Group>(d, row + p * Group), d, out + p);
    if constexpr (Group == 1) {
      if (p < k) hn::StoreU(load_n(d, row + p, k - p), d, out + p);
    } else {
      for (; p < groups; ++p) out[p] = load_group<Group>(row + p * Group, 1, k - p * Group);
    }
  }
}

/// The rows of a block in even panels of at most kMicroRows.
struct RowPanels {
  int64_t count;
  int64_t begin[kMC / kMicroRows + 2];

  explicit RowPanels(int64_t rows) : count(ceil_divide(rows, kMicroRows)) {
    for (int64_t i = 0; i <= count; ++i) begin[i] = i * rows / count;
  }
  int64_t rows(int64_t i) const { return begin[i + 1] - begin[i]; }
};

/// A transposed A in panels: element p of row begin[i] + r goes to
/// out[(i * group_count(k) + p) * kPackedRows<A> + r]. `readable` rows follow each other in memory.
template <int64_t Group, class T>
void pack_a(MatrixView<T> a, const RowPanels& panels, int64_t readable, int64_t k, accumulator_t<T>* out) {
  using A = accumulator_t<T>;
  constexpr int64_t kVectors = kPackedRows<A> / hn::MaxLanes(Tag<T>());
  const int64_t groups = group_count(k, Group);
  for (int64_t begin = 0; begin < k; begin += kPackRows) {  // a few rows at a time, which stay in the cache
    const int64_t count = HWY_MIN(kPackRows, k - begin);
    for (int64_t i = 0; i < panels.count; ++i) {
      const int64_t first = panels.begin[i];
      const MatrixView<T> rows{a.data + begin * a.column_stride + first, a.column_stride, 1};
      A* panel = out + (i * groups + begin / Group) * kPackedRows<A>;
      if (readable - first >= kPackedRows<A>)
        copy_columns<1, kVectors, Group>(rows, count, panel);
      else
        copy_some_columns<Group>(rows, count, readable - first, kPackedRows<A>, panel);
    }
  }
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
