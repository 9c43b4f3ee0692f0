// How the blocked matrix product cuts C into tiles, which are its tasks: by its shape alone.
#pragma once

#include <algorithm>
#include <cstdint>

#include <heed/core/base/divide.h>
#include <heed/core/base/parallel_for.h>
#include <heed/kernels/cpu/gemm/gemm_block.h>

namespace heed::cpu {

/// Sizes that the instruction set decides.
struct GemmGeometry {
  int64_t rows;         // of a full panel of A
  int64_t packed_rows;  // what it takes when packed
  int64_t panel;        // columns of a packed panel of B; the last one has half as many where they suffice
  int64_t step;         // values of K in an element of a packed panel
  int64_t most_k;       // the longest piece of K that is summed at a time, in elements
  bool crowded;         // whether lines of rows that lie apart are worth a copy

  int64_t steps(int64_t k) const { return ceil_divide(k, step); }
  /// Elements of n columns of B when packed.
  int64_t packed_size(int64_t n, int64_t k) const { return ceil_divide(n, panel) * panel * steps(k); }
  int64_t a_buffer(int64_t tile_rows, int64_t k) const {
    return ceil_divide(tile_rows, rows) * packed_rows * std::min(steps(k), most_k) + panel;
  }
  int64_t b_buffer(int64_t tile_cols, int64_t k) const {
    return packed_size(tile_cols, std::min(k, most_k * step));
  }
};

/// [0, count) in `parts` even parts, each a whole number of units but the last.
struct Cut {
  int64_t count, unit, units, parts;

  Cut(int64_t count, int64_t unit, int64_t most)
      : count(count),
        unit(unit),
        units(ceil_divide(count, unit)),
        parts(ceil_divide(units, std::max<int64_t>(most / unit, 1))) {}

  int64_t begin(int64_t part) const { return part == parts ? count : part * units / parts * unit; }
  int64_t size(int64_t part) const { return begin(part + 1) - begin(part); }
};

/// Whether each row begins with a line.
template <class T>
bool is_aligned(const T* x, int64_t stride) {
  return reinterpret_cast<uintptr_t>(x) % kLineBytes == 0 && stride * int64_t{sizeof(T)} % kLineBytes == 0;
}

/// Whether a product is the gradient of a weight, over so many tokens that threads are worth sums of their
/// own.
template <class T>
bool shares_tokens(const MatrixView<T>& a, const GemmOutput<T>& output, int64_t tokens) {
  constexpr int64_t kLeastTokens = 192;
  return a.column_stride != 1 && output.c && !output.finish && tokens >= kLeastTokens;
}

/// Whether it is that of a large weight, of m x n, written anew and by whole lines.
template <class T>
bool exceeds_caches(const MatrixView<T>& a, const GemmOutput<T>& output, int64_t m, int64_t n) {
  constexpr int64_t kLeastBytes = 1 << 20;
  return a.column_stride != 1 && output.c && !output.added.data && !output.finish &&
         m * n * int64_t{sizeof(accumulator_t<T>)} >= kLeastBytes && is_aligned(output.c, output.ldc);
}

/// c [rows, cols] += x, whose rows follow each other.
template <class A>
void add_rows(const A* x, int64_t rows, int64_t cols, A* c, int64_t ldc) {
  constexpr int64_t kElements = 1 << 14;  // a task
  parallel_for(rows, std::max<int64_t>(kElements / cols, 1), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      for (int64_t j = 0; j < cols; ++j) c[i * ldc + j] += x[i * cols + j];
  });
}

constexpr int64_t kOnednnRows = 16;  // its rows go by vectors

/// The tiles of C. Large ones use the caches best; smaller ones keep more cores busy, and there are at least
/// `least` where m and n allow it. An even number of rows of tiles, or else of tiles, lets two threads share
/// them evenly, and C's rows as they do in other operations. oneDNN packs B for each tile, so its tiles are
/// larger.
class Tiling {
 public:
  static constexpr int64_t kLeast = 12;

  Tiling(int64_t m, int64_t n, const GemmGeometry& geometry, bool onednn, int64_t least = kLeast)
      : rows_(m, onednn ? kOnednnRows : geometry.rows, kMaxTileRows << onednn),
        cols_(n, geometry.panel, kMaxTileCols) {
    if (tiles() < least) cols_ = Cut(n, geometry.panel, kMaxTileCols / 2);
    for (int64_t most = kMaxTileRows / 2; m > kMinTileRows && tiles() < least && most >= kMinTileRows;
         most /= 2) {
      rows_ = Cut(m, rows_.unit, most << onednn);
    }
    const bool odd = (rows_.parts > 1 ? rows_.parts : cols_.parts) % 2 == 1;
    if (odd && tiles() > 1 && rows_.parts < rows_.units) ++rows_.parts;
  }

  int64_t tiles() const { return rows_.parts * cols_.parts; }

  struct Tile {
    int64_t row, rows, col, cols;  // the first of each, how many
  };
  Tile tile(int64_t t) const {  // by rows
    const int64_t i = t / cols_.parts, j = t % cols_.parts;
    return {rows_.begin(i), rows_.size(i), cols_.begin(j), cols_.size(j)};
  }

 private:
  static constexpr int64_t kMaxTileCols = 512, kMinTileRows = 24;
  Cut rows_, cols_;
};

}  // namespace heed::cpu
