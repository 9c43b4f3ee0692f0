// One tile of a matrix product, on one core.
#pragma once

#include <heed/kernels/cpu/gemm/gemm_block.h>
#include <heed/kernels/cpu/gemm/gemm_tiling.h>

namespace heed::cpu {

/// One tile of C and what it is made of.
template <class T>
struct GemmTile {
  using A = accumulator_t<T>;
  MatrixView<T> a;   // op(A) from the tile's first row
  int64_t a_rows;    // rows of op(A) from there to its end
  const A* b;        // from the tile's first column: packed panels, or elements as they lie
  int64_t b_stride;  // between rows that lie so; 0 if B is packed
  A* c;
  int64_t ldc, rows, cols, k;
  A alpha;
  Addend<A> added;
  A* a_buffer;            // room for GemmGeometry::a_buffer(rows, k) elements; null to read A as it lies
  A* b_buffer = nullptr;  // room for b_buffer(cols, k), to pack a B that lies so; null to read it as it lies
  bool streamed = false;  // whether C goes around the caches
  bool near = false;      // whether B is so small that it may be in one
};

/// From this row stride on, rows of A compete for the same sets of the first-level cache. They are copied
/// where it has fewer ways than a panel has rows.
constexpr int64_t kFarRows = 4096, kManyWays = 12;
/// From this one on so do rows of B, of which a panel takes a line each.
constexpr int64_t kApartRows = 1024;

/// Ways of the first-level cache, 0 if unknown.
int64_t cache_ways();

/// Whether a tile's rows of A are read from a copy: packed, converted or just moved together. Whole pairs of
/// bf16 are elements as they lie.
template <class T>
bool copies_a(const MatrixView<T>& a, int64_t rows, int64_t k, int64_t step) {
  using A = accumulator_t<T>;
  const bool elements = std::is_same_v<T, A> ||
                        (int64_t{sizeof(T)} * step == sizeof(A) && k % step == 0 &&
                         a.row_stride % step == 0 && reinterpret_cast<uintptr_t>(a.data) % sizeof(A) == 0);
  return a.column_stride != 1 || !elements ||
         (rows > 1 && a.row_stride * int64_t{sizeof(T)} >= kFarRows && cache_ways() < kManyWays);
}

/// Some columns of C: c[i, j] = alpha times row i of A by row j of the transposed B + added[i, j].
template <class T>
struct GemmDots {
  using A = accumulator_t<T>;
  const T *a, *b;
  A* c;
  int64_t lda, ldb, ldc, rows, columns, k;
  A alpha;
  Addend<A> added;
};

/// What computes them, for one type and instruction set.
template <class T>
struct GemmFunctions {
  GemmGeometry geometry;
  void (*pack_b)(MatrixView<T> b, int64_t k, int64_t cols, accumulator_t<T>* out);
  void (*tile)(const GemmTile<T>& tile);
  void (*dots)(const GemmDots<T>& dots);
};

/// Those for this machine.
template <class T>
const GemmFunctions<T>& gemm_functions();

}  // namespace heed::cpu
