// How the blocked matrix product cuts C into blocks, which are its tasks: by its shape alone.
//
// Sizes have the names of BLIS (Van Zee and van de Geijn, 2015):
//
//   MR x NR   what the microkernel holds in registers      GemmGeometry::mr, nr
//   KC        the depth of K that is summed at a time      GemmGeometry::kc
//   MC x NC   a block of C, one task                       kMC, kNC
#pragma once

#include <algorithm>
#include <cstdint>

#include <heed/core/base/int_math.h>
#include <heed/core/base/threads/parallel_for.h>
#include <heed/kernels/cpu/gemm/gemm_blocked.h>

namespace heed::cpu {

constexpr int64_t kMC = 96;
constexpr int64_t kNC = 512;
constexpr int64_t kStripCols = 128;             // of a column strip
constexpr int64_t kMaxPieceElements = 3 << 18;  // of B in a piece of K

/// Sizes that the instruction set decides.
struct GemmGeometry {
  int64_t mr;              // rows of a full panel of A
  int64_t packed_mr;       // what it takes when packed
  int64_t nr;              // columns of a packed panel of B; the last one has half as many where they suffice
  int64_t k_group;         // values of K in an element of a packed panel: 2 for pairs of bf16, else 1
  int64_t kc;              // in groups
  bool low_associativity;  // the first-level cache has few ways: rows that lie apart are worth a copy

  int64_t k_groups(int64_t k) const { return ceil_divide(k, k_group); }
  /// Elements of n columns of B when packed.
  int64_t packed_size(int64_t n, int64_t k) const { return ceil_divide(n, nr) * nr * k_groups(k); }
  int64_t a_buffer(int64_t block_rows, int64_t k) const {
    return ceil_divide(block_rows, mr) * packed_mr * std::min(k_groups(k), kc) + nr;
  }
  int64_t b_buffer(int64_t block_cols, int64_t k) const {
    return packed_size(block_cols, std::min(k, kc * k_group));
  }
};

/// [0, count) in even parts of at most `max`, each a whole number of units but the last.
struct EvenSplit {
  int64_t count, unit, units, parts;

  EvenSplit(int64_t count, int64_t unit, int64_t max)
      : count(count),
        unit(unit),
        units(ceil_divide(count, unit)),
        parts(ceil_divide(units, std::max<int64_t>(max / unit, 1))) {}

  int64_t begin(int64_t part) const { return part == parts ? count : part * units / parts * unit; }
  int64_t size(int64_t part) const { return begin(part + 1) - begin(part); }
};

/// Whether each row begins with a cache line.
template <class T>
bool is_aligned(const T* x, int64_t stride) {
  return reinterpret_cast<uintptr_t>(x) % kLineBytes == 0 && stride * int64_t{sizeof(T)} % kLineBytes == 0;
}

/// Split-K: the parts of K (tokens) that are summed apart, of which the first is written to C and the second
/// to a buffer that is added to it. Two, whatever the number of threads, since how sums are cut changes bits;
/// so each half of a training step's tokens stays in the cache of one of two threads.
constexpr int64_t kSplitK = 2;

/// Whether a product is the gradient of a weight, over enough tokens to split K.
template <class T>
bool splits_k(const MatrixView<T>& a, const GemmOutput<T>& output, int64_t tokens) {
  constexpr int64_t kMinTokens = 192;
  return a.column_stride != 1 && output.c && !output.epilogue && tokens >= kMinTokens;
}

/// Whether C [m, n] is written by non-temporal stores: the gradient of a large weight, written anew and by
/// whole lines. It is not read again before the optimizer's step, and its lines need not be read first.
template <class T>
bool stores_nontemporal(const MatrixView<T>& a, const GemmOutput<T>& output, int64_t m, int64_t n) {
  constexpr int64_t kMinBytes = 1 << 20;
  return a.column_stride != 1 && output.c && !output.added.data && !output.epilogue &&
         m * n * int64_t{sizeof(accumulator_t<T>)} >= kMinBytes && is_aligned(output.c, output.ldc);
}

/// c [rows, cols] += partial, whose rows follow each other.
template <class A>
void add_partial(const A* partial, int64_t rows, int64_t cols, A* c, int64_t ldc) {
  constexpr int64_t kElements = 1 << 14;  // a task
  parallel_for(rows, std::max<int64_t>(kElements / cols, 1), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      for (int64_t j = 0; j < cols; ++j) c[i * ldc + j] += partial[i * cols + j];
  });
}

/// C cut into rows and columns of blocks, which are numbered by rows.
class BlockGrid {
 public:
  int64_t count() const { return rows_.parts * cols_.parts; }

  struct Block {
    int64_t row, rows, col, cols;  // the first of each, how many
  };
  Block operator[](int64_t i) const {
    const int64_t row = i / cols_.parts, col = i % cols_.parts;
    return {rows_.begin(row), rows_.size(row), cols_.begin(col), cols_.size(col)};
  }

 protected:
  BlockGrid(const EvenSplit& rows, const EvenSplit& cols) : rows_(rows), cols_(cols) {}

  EvenSplit rows_, cols_;
};

/// The blocks of C. Large ones use the caches best; smaller ones keep more cores busy, and there are at least
/// `min` where m and n allow it. An even number of rows of blocks, or else of blocks, lets two threads share
/// them evenly, and C's rows as they do in other operations. oneDNN packs B for each block, so its blocks are
/// larger.
class Blocking : public BlockGrid {
 public:
  static constexpr int64_t kMinBlocks = 12;

  Blocking(int64_t m, int64_t n, const GemmGeometry& geometry, bool onednn, int64_t min = kMinBlocks)
      : BlockGrid({m, onednn ? kOnednnRows : geometry.mr, kMC << onednn}, {n, geometry.nr, kNC}) {
    if (count() < min) cols_ = EvenSplit(n, geometry.nr, kNC / 2);
    for (int64_t max = kMC / 2; m > kMinRows && count() < min && max >= kMinRows; max /= 2)
      rows_ = EvenSplit(m, rows_.unit, max << onednn);
    const bool odd = (rows_.parts > 1 ? rows_.parts : cols_.parts) % 2 == 1;
    if (odd && count() > 1 && rows_.parts < rows_.units) ++rows_.parts;
  }

 private:
  static constexpr int64_t kMinRows = 24, kOnednnRows = 16;
};

}  // namespace heed::cpu
