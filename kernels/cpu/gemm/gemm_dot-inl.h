// Products of a few rows with a transposed B: sums of products of rows as they lie. To pack B, which is read
// once or twice, would take longer than the product.
#include <utility>

#include <heed/kernels/cpu/gemm/gemm_block.h>
#include <heed/kernels/cpu/simd/simd.h>

#if defined(HEED_KERNELS_CPU_GEMM_DOT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_CPU_GEMM_DOT_INL_H_
#undef HEED_KERNELS_CPU_GEMM_DOT_INL_H_
#else
#define HEED_KERNELS_CPU_GEMM_DOT_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

/// c[0 … Rows - 1][0 … Columns - 1] = alpha a bᵀ + added. Folds instead of loops, as in micro_block.
template <int64_t Rows, int64_t Columns, class T, size_t... I>
HWY_INLINE void dot_block(const GemmDots<T>& args, const T* HWY_RESTRICT a, const T* HWY_RESTRICT b,
                          accumulator_t<T>* c, Addend<accumulator_t<T>> added, std::index_sequence<I...>) {
  const Tag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  Vec<Tag<T>> sum[Rows * Columns];
  ((sum[I] = hn::Zero(d)), ...);
  const auto row = [&](size_t i) { return a + static_cast<int64_t>(i) / Columns * args.lda; };
  const auto column = [&](size_t i) { return b + static_cast<int64_t>(i) % Columns * args.ldb; };
  int64_t p = 0;
  for (; p + lanes <= args.k; p += lanes)
    ((sum[I] = hn::MulAdd(load(d, row(I) + p), load(d, column(I) + p), sum[I])), ...);
  if (p < args.k) {
    const int64_t n = args.k - p;
    ((sum[I] = hn::MulAdd(load_n(d, row(I) + p, n), load_n(d, column(I) + p, n), sum[I])), ...);
  }
  const auto put = [&](size_t i) {
    const int64_t at_row = static_cast<int64_t>(i) / Columns, at_column = static_cast<int64_t>(i) % Columns;
    const accumulator_t<T> product = args.alpha * hn::GetLane(hn::SumOfLanes(d, sum[i]));
    const accumulator_t<T>* const more = added.at(at_row, at_column).data;
    c[at_row * args.ldc + at_column] = more ? *more + product : product;
  };
  (put(I), ...);
}

/// `Rows` rows of A with all columns.
template <int64_t Rows, class T>
HWY_INLINE void dot_rows(const GemmDots<T>& args, int64_t row) {
  constexpr int64_t kColumns = Rows == 1 ? 4 : 2;
  const T* const a = args.a + row * args.lda;
  accumulator_t<T>* const c = args.c + row * args.ldc;
  int64_t j = 0;
  for (; j + kColumns <= args.columns; j += kColumns)
    dot_block<Rows, kColumns>(args, a, args.b + j * args.ldb, c + j, args.added.at(row, j),
                              std::make_index_sequence<Rows * kColumns>());
  for (; j < args.columns; ++j)
    dot_block<Rows, 1>(args, a, args.b + j * args.ldb, c + j, args.added.at(row, j),
                       std::make_index_sequence<Rows>());
}

template <class T>
HWY_INLINE void gemm_dots(const GemmDots<T>& args) {
  int64_t i = 0;
  for (; i + 4 <= args.rows; i += 4) dot_rows<4>(args, i);
  if (i + 2 <= args.rows) {
    dot_rows<2>(args, i);
    i += 2;
  }
  if (i < args.rows) dot_rows<1>(args, i);
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
