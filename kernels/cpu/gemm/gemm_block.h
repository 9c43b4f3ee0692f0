// One block of a matrix product, on one core.
#pragma once

#include <heed/kernels/cpu/gemm/gemm_blocked.h>
#include <heed/kernels/cpu/gemm/gemm_blocking.h>

namespace heed::cpu {

/// One block of C and what it is made of.
template <class T>
struct GemmBlock {
  using A = accumulator_t<T>;
  MatrixView<T> a;   // op(A) from the block's first row
  int64_t a_rows;    // rows of op(A) from there to its end
  const A* b;        // from the block's first column: packed panels, or elements in place
  int64_t b_stride;  // between rows in place; 0 if B is packed
  A* c;
  int64_t ldc, rows, cols, k;
  A alpha = A(1);
  Addend<A> added = {};
  A* a_buffer = nullptr;     // room for GemmGeometry::a_buffer(rows, k) elements; null to read A in place
  A* b_buffer = nullptr;     // room for b_buffer(cols, k), to pack a B in place; null to read it there
  bool nontemporal = false;  // how C is stored
  bool b_in_cache = false;   // B is small enough to be in a cache
};

/// From this row stride on, rows of A compete for the same sets of the first-level cache. They are copied
/// where it has fewer ways than a panel has rows.
constexpr int64_t kConflictStride = 4096, kHighAssociativity = 12;
/// From this one on so do rows of B, of which a panel takes a line each.
constexpr int64_t kConflictStrideB = 1024;

/// Ways of the first-level cache, 0 if unknown.
int64_t cache_ways();

/// Whether a block's rows of A are read from a copy: packed, converted or just moved together. Whole pairs of
/// bf16 are elements as they are.
template <class T>
bool copies_a(const MatrixView<T>& a, int64_t rows, int64_t k, int64_t k_group) {
  using A = accumulator_t<T>;
  const bool elements = std::is_same_v<T, A> ||
                        (int64_t{sizeof(T)} * k_group == sizeof(A) && k % k_group == 0 &&
                         a.row_stride % k_group == 0 && reinterpret_cast<uintptr_t>(a.data) % sizeof(A) == 0);
  return a.column_stride != 1 || !elements ||
         (rows > 1 && a.row_stride * int64_t{sizeof(T)} >= kConflictStride &&
          cache_ways() < kHighAssociativity);
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
  void (*block)(const GemmBlock<T>& block);
  void (*dots)(const GemmDots<T>& dots);
};

/// Those for this machine.
template <class T>
const GemmFunctions<T>& gemm_functions();

}  // namespace heed::cpu
