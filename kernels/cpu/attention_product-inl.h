// The small matrix product that all of attention is made of: operands of a few dozen rows that lie in the
// cache.
#if defined(HEED_KERNELS_CPU_ATTENTION_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_CPU_ATTENTION_PRODUCT_INL_H_
#undef HEED_KERNELS_CPU_ATTENTION_PRODUCT_INL_H_
#else
#define HEED_KERNELS_CPU_ATTENTION_PRODUCT_INL_H_
#endif

#include <heed/core/base/divide.h>
#include <heed/kernels/cpu/simd.h>

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

/// kRows rows and kVectors vectors of columns of c (+)= a b. Row i of a begins at a + i * lda, or its element
/// k is at a[i + k * lda] if kTransposed.
template <int kRows, int kVectors, bool kTransposed, class D, class A>
HWY_INLINE void product_tile(D d, const A* HWY_RESTRICT a, int64_t lda, const A* HWY_RESTRICT b, int64_t ldb,
                             A* HWY_RESTRICT c, int64_t ldc, int64_t depth, bool accumulate) {
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
      for (int j = 0; j < kVectors; ++j) sum[i][j] = hn::LoadU(d, c + i * ldc + j * lanes);
    }
  }
  for (int64_t k = 0; k < depth; ++k) {
    Vec<D> row[kVectors];
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) row[j] = hn::LoadU(d, b + j * lanes);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const auto factor = hn::Set(d, kTransposed ? a[i] : a[i * lda]);
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) sum[i][j] = hn::MulAdd(factor, row[j], sum[i][j]);
    }
    a += kTransposed ? lda : 1;
    b += ldb;
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) hn::StoreU(sum[i][j], d, c + i * ldc + j * lanes);
  }
}

/// All rows of a panel of kVectors vectors of columns, in tiles of nearly equal height.
template <int kVectors, bool kTransposed, class D, class A>
HWY_NOINLINE void product_panel(D d, const A* a, int64_t lda, const A* b, int64_t ldb, A* c, int64_t ldc,
                                int64_t rows, int64_t depth, bool accumulate) {
  constexpr int kMost = tile_rows(kVectors);
  const int64_t tiles = ceil_divide(rows, kMost), height = rows / tiles, taller = rows % tiles;
  for (int64_t t = 0; t < tiles; ++t) {
    const int64_t h = height + (t < taller);
    switch (h) {
#define HEED_TILE(n)                                                                        \
  case n:                                                                                   \
    if constexpr (n <= kMost)                                                               \
      product_tile<n, kVectors, kTransposed>(d, a, lda, b, ldb, c, ldc, depth, accumulate); \
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
    a += kTransposed ? h : h * lda;
    c += h * ldc;
  }
}

/// c (+)= a b with c of `rows` rows and `vectors` whole vectors of columns, and a of depth columns
/// (kTransposed: stored as its transpose). Sums run over depth in order. rows > 0.
template <bool kTransposed, class D, class A>
HWY_INLINE void product(D d, const A* a, int64_t lda, const A* b, int64_t ldb, A* c, int64_t ldc,
                        int64_t rows, int64_t vectors, int64_t depth, bool accumulate) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  while (vectors > 0) {
    int64_t taken;
    if (kVectorRegisters > 16 && vectors >= 4 && vectors != 5) {
      if constexpr (kVectorRegisters > 16)
        product_panel<4, kTransposed>(d, a, lda, b, ldb, c, ldc, rows, depth, accumulate);
      taken = 4;
    } else if (vectors >= 3 && (vectors % 2 == 1)) {
      product_panel<3, kTransposed>(d, a, lda, b, ldb, c, ldc, rows, depth, accumulate);
      taken = 3;
    } else if (vectors >= 2) {
      product_panel<2, kTransposed>(d, a, lda, b, ldb, c, ldc, rows, depth, accumulate);
      taken = 2;
    } else {
      product_panel<1, kTransposed>(d, a, lda, b, ldb, c, ldc, rows, depth, accumulate);
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
