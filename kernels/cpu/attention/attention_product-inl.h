// The small matrix product that all of attention is made of: operands of a few dozen rows that lie in the
// cache.
#if defined(HEED_KERNELS_CPU_ATTENTION_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_CPU_ATTENTION_PRODUCT_INL_H_
#undef HEED_KERNELS_CPU_ATTENTION_PRODUCT_INL_H_
#else
#define HEED_KERNELS_CPU_ATTENTION_PRODUCT_INL_H_
#endif

#include <heed/core/base/int_math.h>
#include <heed/kernels/cpu/simd/pairs-inl.h>
#include <heed/kernels/cpu/simd/simd.h>

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

#if HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_AVX2
constexpr int kVectorRegisters = 16;
#else
constexpr int kVectorRegisters = 32;
#endif

/// Rows of c that are summed in registers at once, for a panel of `vectors` vectors: one more vector of b for
/// each of the panel and one of a must fit too.
constexpr int tile_rows(int vectors) {
  return vectors == 1   ? 8
         : vectors == 2 ? (kVectorRegisters == 16 ? 6 : 8)
         : vectors == 3 ? (kVectorRegisters == 16 ? 4 : 8)
                        : 6;
}

/// How a product reads its operands. Pairs: the rows of a are bf16 and those of b are pairs of them.
enum class Operands : uint8_t { rows, transposed, pairs };

/// What row i of a product is multiplied by at the end: a number for each or, mostly 1, the same for all.
template <class A>
HWY_INLINE A scale_of_row(const A* scale, int64_t i) {
  return scale[i];
}
template <class A>
HWY_INLINE A scale_of_row(A scale, int64_t) {
  return scale;
}

/// kRows rows and kVectors vectors of columns of c = scale * a b, or c += a b if `accumulate`. Row i of a
/// begins at a + i * lda, or its element k is at a[i + k * lda] if transposed.
template <int kRows, int kVectors, Operands kOperands, class D, class A, class C, class S>
HWY_INLINE void product_tile(D d, const A* HWY_RESTRICT a, int64_t lda, const A* HWY_RESTRICT b, int64_t ldb,
                             C* HWY_RESTRICT c, int64_t ldc, int64_t depth, S scale, bool accumulate) {
  constexpr bool kTransposed = kOperands == Operands::transposed, kPairs = kOperands == Operands::pairs;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  Vec<D> sum[kRows][kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) sum[i][j] = hn::Zero(d);
  }
  if (accumulate) {
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) sum[i][j] = load(d, c + i * ldc + j * lanes);
    }
  }
  for (int64_t k = 0; k < depth; ++k) {
    Vec<D> row[kVectors];
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) row[j] = hn::LoadU(d, b + j * lanes);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const auto factor = broadcast(d, kTransposed ? a + i : a + i * lda);
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) sum[i][j] = multiply_add<kPairs>(factor, row[j], sum[i][j]);
    }
    a += kTransposed ? lda : 1;
    b += ldb;
  }
  if (std::is_pointer_v<S> || scale != S(1)) {
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const auto factor = hn::Set(d, scale_of_row(scale, i));
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) sum[i][j] = hn::Mul(sum[i][j], factor);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) store(sum[i][j], d, c + i * ldc + j * lanes);
  }
}

/// All rows of a panel of kVectors vectors of columns, in tiles of nearly equal height.
template <int kVectors, Operands kOperands, class D, class A, class C, class S>
HWY_NOINLINE void product_panel(D d, const A* a, int64_t lda, const A* b, int64_t ldb, C* c, int64_t ldc,
                                int64_t rows, int64_t depth, S scale, bool accumulate) {
  constexpr int kMax = tile_rows(kVectors);
  const int64_t tiles = ceil_divide(rows, kMax), height = rows / tiles, taller = rows % tiles;
  for (int64_t t = 0; t < tiles; ++t) {
    const int64_t h = height + (t < taller);
    switch (h) {
#define HEED_TILE(n)                                                                             \
  case n:                                                                                        \
    if constexpr (n <= kMax)                                                                     \
      product_tile<n, kVectors, kOperands>(d, a, lda, b, ldb, c, ldc, depth, scale, accumulate); \
    break;
      HEED_TILE(1)
      HEED_TILE(2)
      HEED_TILE(3)
      HEED_TILE(4)
      HEED_TILE(5)
      HEED_TILE(6)
      HEED_TILE(7)
      HEED_TILE(8)
#undef HEED_TILE
    }
    a += kOperands == Operands::transposed ? h : h * lda;
    c += h * ldc;
    if constexpr (std::is_pointer_v<S>) scale += h;
  }
}

/// c = scale * a b, or c += a b, with c of `rows` rows and `vectors` whole vectors of columns, and a of depth
/// columns (transposed: stored as its transpose; pairs: of depth pairs). Sums run over depth in order.
/// rows > 0.
template <Operands kOperands, class D, class A, class C, class S>
HWY_INLINE void product(D d, const A* a, int64_t lda, const A* b, int64_t ldb, C* c, int64_t ldc,
                        int64_t rows, int64_t vectors, int64_t depth, S scale, bool accumulate) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  while (vectors > 0) {
    int64_t taken;
    if (kVectorRegisters > 16 && vectors >= 4 && vectors != 5) {
      if constexpr (kVectorRegisters > 16)
        product_panel<4, kOperands>(d, a, lda, b, ldb, c, ldc, rows, depth, scale, accumulate);
      taken = 4;
    } else if (vectors >= 3 && (vectors % 2 == 1)) {
      product_panel<3, kOperands>(d, a, lda, b, ldb, c, ldc, rows, depth, scale, accumulate);
      taken = 3;
    } else if (vectors >= 2) {
      product_panel<2, kOperands>(d, a, lda, b, ldb, c, ldc, rows, depth, scale, accumulate);
      taken = 2;
    } else {
      product_panel<1, kOperands>(d, a, lda, b, ldb, c, ldc, rows, depth, scale, accumulate);
      taken = 1;
    }
    b += taken * lanes;
    c += taken * lanes;
    vectors -= taken;
  }
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
