#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/kernels/cpu/gemm_block.cpp"

#include <algorithm>
#include <unistd.h>
#include <utility>

#include <heed/core/base/parallel_for.h>
#include <heed/kernels/cpu/gemm_block.h>
#include <heed/kernels/cpu/gemm_dot-inl.h>
#include <heed/kernels/cpu/gemm_micro-inl.h>
#include <heed/kernels/cpu/gemm_onednn.h>
#include <heed/kernels/cpu/gemm_pack-inl.h>
#include <heed/kernels/cpu/gemm_tiling.h>
#include <heed/kernels/cpu/workspace.h>

#ifndef HEED_KERNELS_CPU_GEMM_BLOCK_ONCE_
#define HEED_KERNELS_CPU_GEMM_BLOCK_ONCE_
namespace heed::cpu {

/// One tile of C and what it is made of.
template <class T>
struct GemmTile {
  using A = accumulator_t<T>;
  MatrixView<T> a;   // op(A) from the tile's first row
  int64_t a_rows;    // rows of op(A) from there to its end
  const A* b;        // from the tile's first column: packed panels, or elements as they lie
  int64_t b_stride;  // between rows that lie so, and then A is read as it lies too; 0 if B is packed
  A* c;
  int64_t ldc, rows, cols, k;
  A alpha;
  Addend<A> added;
  A* a_buffer;            // room for GemmGeometry::a_buffer(rows) elements if copies_a(a, rows, k, step)
  bool streamed = false;  // whether C goes around the caches
};

/// From this row stride on, rows of A compete for the same sets of the first-level cache. They are copied
/// where it has fewer ways than a panel has rows.
constexpr int64_t kFarRows = 4096, kManyWays = 12;

/// Ways of the first-level cache, 0 if unknown.
inline int64_t cache_ways() {
#ifdef _SC_LEVEL1_DCACHE_ASSOC
  static const int64_t ways = sysconf(_SC_LEVEL1_DCACHE_ASSOC);
  return ways;
#else
  return 0;
#endif
}

/// Whether a tile's rows of A are read from a copy: packed, converted or just moved together. Whole pairs of
/// bf16 are elements as they lie.
template <class T>
bool copies_a(const MatrixView<T>& a, int64_t rows, int64_t k, int64_t step) {
  using A = accumulator_t<T>;
  const bool elements = int64_t{sizeof(T)} * step == sizeof(A) && k % step == 0 && a.row_stride % step == 0 &&
                        reinterpret_cast<uintptr_t>(a.data) % sizeof(A) == 0;
  return a.column_stride != 1 || !elements ||
         (rows > 1 && a.row_stride * int64_t{sizeof(T)} >= kFarRows && cache_ways() < kManyWays);
}

}  // namespace heed::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

/// With AVX2 a panel of B leaves room in a 32 KiB first-level cache for the rows of A. With AVX-512 it
/// streams from the second level, a vector in twelve multiply-adds, and longer pieces of K touch C less
/// often.
constexpr int64_t kPanelBytes = HWY_TARGET == HWY_AVX3 ? 65536 : 24576;
template <class T, int64_t Step>
HWY_INLINE GemmGeometry geometry() {
  const int64_t panel = kMicroVectors * static_cast<int64_t>(hn::Lanes(Tag<T>()));
  return {kMicroRows, kPackedRows<accumulator_t<T>>, panel, Step,
          kPanelBytes / (panel * int64_t{sizeof(accumulator_t<T>)})};
}

/// c = alpha a b + added for one piece of K.
template <int64_t Step, class T, class A = accumulator_t<T>>
HWY_INLINE void gemm_piece(const GemmTile<T>& tile, const RowPanels& panels, int64_t first, int64_t steps,
                           Addend<A> added) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(Tag<T>())), width = kMicroVectors * lanes;
  const int64_t k = HWY_MIN(steps * Step, tile.k - first * Step), all_steps = step_count(tile.k, Step);
  const MatrixView<T> a = tile.a.at(0, first * Step);
  const bool transposed = a.column_stride != 1, in_place = tile.b_stride != 0;
  const A* rows = tile.a_buffer;
  int64_t stride = steps, panel_stride = 0;  // between panels of kMicroRows, where they have a stride
  if (in_place) {
    rows = reinterpret_cast<const A*>(a.data);
    stride = transposed ? a.column_stride : a.row_stride;
  } else if (transposed) {
    pack_a<Step>(a, panels, tile.a_rows, k, tile.a_buffer);
    stride = kPackedRows<A>;
    panel_stride = steps * kPackedRows<A>;
  } else if (copies_a(a, tile.rows, k, Step)) {
    copy_rows<Step>(a, tile.rows, k, tile.a_buffer);
  } else {
    rows = reinterpret_cast<const A*>(a.data);
    stride = a.row_stride / Step;
  }
  for (int64_t j = 0; j < tile.cols; j += width) {
    const int64_t cols = HWY_MIN(width, tile.cols - j), vectors = cols > lanes ? 2 : 1;
    const int64_t b_stride = in_place ? tile.b_stride : vectors * lanes;
    const A* b = tile.b + (in_place ? j : j * all_steps) + first * b_stride;
    for (int64_t i = 0; i < panels.count; ++i) {
      const A* panel = rows + (panel_stride ? i * panel_stride : panels.begin[i] * (transposed ? 1 : stride));
      A* c = tile.c + panels.begin[i] * tile.ldc + j;
      choose_micro<A, Step == 2>(transposed, vectors,
                                 panels.rows(i))({panel, stride, b, b_stride, c, tile.ldc, steps, cols,
                                                  tile.alpha, added.at(panels.begin[i], j), tile.streamed});
    }
  }
}

template <int64_t Step, class T>
HWY_INLINE void gemm_tile(const GemmTile<T>& tile) {
  const RowPanels panels(tile.rows);
  const int64_t steps = step_count(tile.k, Step), most = geometry<T, Step>().most_k,
                pieces = (steps + most - 1) / most;
  for (int64_t i = 0; i < pieces; ++i) {
    const int64_t begin = i * steps / pieces, end = (i + 1) * steps / pieces;
    const Addend<accumulator_t<T>> before{tile.c, tile.ldc};
    gemm_piece<Step>(tile, panels, begin, end - begin, i == 0 ? tile.added : before);
  }
  if (tile.streamed) hwy::FlushStream();
}

#define HEED_DEFINE(T, Step, suffix)                                                      \
  GemmGeometry geometry_##suffix() { return geometry<T, Step>(); }                        \
  void pack_b_##suffix(MatrixView<T> b, int64_t k, int64_t cols, accumulator_t<T>* out) { \
    pack_b<Step>(b, k, cols, out);                                                        \
  }                                                                                       \
  void gemm_tile_##suffix(const GemmTile<T>& tile) { gemm_tile<Step>(tile); }
HEED_DEFINE(float, 1, f32)
HEED_DEFINE(double, 1, f64)
HEED_DEFINE(bfloat16, 1, bf16)
HEED_DEFINE(bfloat16, kHasPairs ? 2 : 1, pairs)
#undef HEED_DEFINE
void gemm_dots_f32(const GemmDots<float>& args) { gemm_dots(args); }
void gemm_dots_f64(const GemmDots<double>& args) { gemm_dots(args); }
void gemm_dots_bf16(const GemmDots<bfloat16>& args) { gemm_dots(args); }

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::cpu {
namespace {

/// What works on packed panels, for one type and instruction set.
template <class T>
struct GemmFunctions {
  GemmGeometry geometry;
  void (*pack_b)(MatrixView<T> b, int64_t k, int64_t cols, accumulator_t<T>* out);
  void (*tile)(const GemmTile<T>& tile);
};

#define HEED_EXPORT(T, suffix)                                                                          \
  HWY_EXPORT(geometry_##suffix);                                                                        \
  HWY_EXPORT(pack_b_##suffix);                                                                          \
  HWY_EXPORT(gemm_tile_##suffix);                                                                       \
  GemmFunctions<T> functions_##suffix() {                                                               \
    return {HEED_SIMD(geometry_##suffix)(), HEED_SIMD(pack_b_##suffix), HEED_SIMD(gemm_tile_##suffix)}; \
  }
HEED_EXPORT(float, f32)
HEED_EXPORT(double, f64)
HEED_EXPORT(bfloat16, bf16)
HEED_EXPORT(bfloat16, pairs)
#undef HEED_EXPORT
HWY_EXPORT(gemm_dots_f32);
HWY_EXPORT(gemm_dots_f64);
HWY_EXPORT(gemm_dots_bf16);

GemmFunctions<float> functions_of(float) { return functions_f32(); }
GemmFunctions<double> functions_of(double) { return functions_f64(); }
GemmFunctions<bfloat16> functions_of(bfloat16) {
  return has_bf16_dot() ? functions_pairs() : functions_bf16();
}
auto dots_of(float) { return HEED_SIMD(gemm_dots_f32); }
auto dots_of(double) { return HEED_SIMD(gemm_dots_f64); }
auto dots_of(bfloat16) { return HEED_SIMD(gemm_dots_bf16); }

constexpr int64_t kStripRows = 3 * kMaxTileRows, kStripCols = 128, kLeastStrips = 12;
constexpr int64_t kSharedRows = 192;          // tokens from which on threads are worth sums of their own
constexpr int64_t kCopiedRows = 512;          // and from which on packed weights of their own
constexpr int64_t kAddedElements = 1 << 14;   // a task
constexpr int64_t kFewRows = 8;               // of A, too few to be worth packing B
constexpr int64_t kDotElements = 1 << 15;     // of B a task
constexpr int64_t kPackedElements = 1 << 22;  // of B at once
constexpr int64_t kPieceElements = 1 << 20;   // of B in a piece of K
constexpr int64_t kPieceUnit = 64;            // of K
constexpr int64_t kPackElements = 1 << 13;    // of B a task

/// A product and the part of its columns that is packed at a time. Where a core reads a line that another
/// wrote, both wait, and the other does again when it next writes there. So tokens, the rows of a training
/// step's tensors, stay with the thread that has them: products by a small weight have a packed copy of it
/// for each half of the rows, and those that make its gradient sum over each half apart.
template <class T>
struct Product {
  using A = accumulator_t<T>;

  int64_t m, n, k;
  MatrixView<T> a, b;
  const GemmOutput<T>& output;
  bool onednn;
  GemmFunctions<T> functions = functions_of(T());
  const GemmGeometry& geometry = functions.geometry;
  int64_t steps = geometry.steps(k);
  int64_t copies = 1;  // of packed columns, each for as many tiles

  void pack(int64_t first, int64_t count, A* packed) const {
    const bool transposed = b.column_stride != 1;  // and then each panel takes whole lines
    const int64_t width = (transposed ? 1 : kPackedPanels) * geometry.panel,
                  groups = ceil_divide(count, width);
    const int64_t per_task = std::max<int64_t>(kPackElements / (k * width), 1);
    parallel_for(copies * groups, per_task, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t j = i % groups * width;
        functions.pack_b(b.at(0, first + j), k, std::min(width, count - j),
                         packed + i / groups * geometry.packed_size(count, k) + j * steps);
      }
    });
  }

  void multiply(int64_t first, int64_t count, const A* packed) const {
    const Tiling tiling(m, count, geometry, onednn);
    const int64_t tiles = tiling.tiles();
    parallel_for(tiles, 1, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const Tiling::Tile at = tiling.tile(t);
        const int64_t copy = t * copies / tiles;
        compute({at.row, at.rows, first + at.col, at.cols},
                packed ? packed + copy * geometry.packed_size(count, k) + at.col * steps : nullptr);
      }
    });
  }

  /// Whether A and B are read as they lie: so near that copies would not be nearer, and B in whole panels.
  bool in_place() const {
    const int64_t far = kFarRows / int64_t{sizeof(T)};
    return !onednn && std::is_same_v<T, A> && b.column_stride == 1 && n % geometry.panel == 0 &&
           std::min(m, k) * n <= kSmallWeight && b.row_stride < far &&
           std::max(a.row_stride, a.column_stride) < far;
  }

  bool sums_halves() const {
    return in_place() && a.column_stride != 1 && output.c && !output.finish && k >= kSharedRows;
  }

  /// C over each half of K, and their sum.
  void multiply_halves() const {
    const Tiling tiling(m, n, geometry, onednn);
    const int64_t tiles = tiling.tiles(), half = ceil_divide(k, 2);
    Workspace<A> second(m * n);
    parallel_for(2 * tiles, 1, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const Tiling::Tile at = tiling.tile(t % tiles);
        if (t < tiles) {
          A* const c = output.c + at.row * output.ldc + at.col;
          compute_in_place(at, 0, half, c, output.ldc, output.added.at(at.row, at.col));
        } else {
          compute_in_place(at, half, k, second.data() + at.row * n + at.col, n, {});
        }
      }
    });
    parallel_for(m, std::max<int64_t>(kAddedElements / n, 1), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        for (int64_t j = 0; j < n; ++j) output.c[i * output.ldc + j] += second.data()[i * n + j];
      }
    });
  }

  /// Packs as many columns at a time as have room.
  void multiply_columns() const {
    const int64_t panels = std::max<int64_t>(kPackedElements / (steps * geometry.panel), 1);
    for (int64_t first = 0; first < n; first += panels * geometry.panel) {
      const int64_t count = std::min(panels * geometry.panel, n - first);
      Workspace<A> packed(copies * geometry.packed_size(count, k));
      pack(first, count, packed.data());
      multiply(first, count, packed.data());
    }
  }

  /// For a K so long that A would be read again for every few columns: a piece of K at a time, added to C.
  void multiply_pieces() const {
    const Cut pieces(k, kPieceUnit, kPieceElements / n * geometry.step);
    Workspace<A> buffer(output.c ? 0 : m * n);
    GemmOutput<T> part = output;
    if (!output.c) part.c = buffer.data(), part.ldc = n;
    for (int64_t i = 0; i < pieces.parts; ++i) {
      const int64_t first = pieces.begin(i);
      if (i > 0) part.added = {part.c, part.ldc};
      part.finish = i + 1 == pieces.parts ? output.finish : nullptr;
      Product{m, n, pieces.size(i), a.at(0, first), b.at(first, 0), part, false}.multiply_columns();
    }
  }

  /// For rows that are too few to pay for packing all of B first: each task packs its columns, a piece of K
  /// at a time, and multiplies all rows by them while they are near.
  void multiply_strips() const {
    const Cut cols(n, geometry.panel, kStripCols);
    parallel_for(cols.parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) multiply_strip(cols.begin(i), cols.size(i));
    });
  }

  void multiply_strip(int64_t col, int64_t cols) const {
    const Cut rows(m, geometry.rows, kMaxTileRows);
    const int64_t width = geometry.panel, pieces = ceil_divide(steps, geometry.most_k);
    Workspace<A> packed(ceil_divide(cols, width) * width * std::min(steps, geometry.most_k));
    Workspace<A> c_buffer(output.c ? 0 : m * cols);
    A* const c = output.c ? output.c + col : c_buffer.data();
    const int64_t ldc = output.c ? output.ldc : cols;
    for (int64_t piece = 0; piece < pieces; ++piece) {  // those that gemm_tile would make
      const int64_t first = piece * steps / pieces, last = (piece + 1) * steps / pieces;
      const int64_t p = first * geometry.step, depth = std::min(last * geometry.step, k) - p;
      functions.pack_b(b.at(p, col), depth, cols, packed.data());
      for (int64_t i = 0; i < rows.parts; ++i) {
        const int64_t row = rows.begin(i), height = rows.size(i);
        const MatrixView<T> part = a.at(row, p);
        Workspace<A> a_buffer(a_buffer_size(part, height, depth));
        const Addend<A> before{c + row * ldc, ldc};
        functions.tile({part, m - row, packed.data(), 0, c + row * ldc, ldc, height, cols, depth,
                        output.alpha, piece > 0 ? before : output.added.at(row, col), a_buffer.data()});
        if (output.finish && piece + 1 == pieces)
          output.finish(output.context, c + row * ldc, ldc, row, col, height, cols);
      }
    }
  }

  /// Without packing: for few rows, A and the transposed B as they lie.
  void multiply_few() const {
    const auto dots = dots_of(T());
    parallel_for(n, std::max<int64_t>(kDotElements / k, 16), [&](int64_t first, int64_t end) {
      const int64_t count = end - first, ldc = output.c ? output.ldc : count;
      Workspace<A> buffer(output.c ? 0 : m * count);
      A* c = output.c ? output.c + first : buffer.data();
      dots({a.data, b.at(0, first).data, c, a.row_stride, b.column_stride, ldc, m, count, k, output.alpha,
            output.added.at(0, first)});
      if (output.finish) output.finish(output.context, c, ldc, 0, first, m, count);
    });
  }

  /// Without packed columns the operands are read as they lie.
  void compute(const Tiling::Tile& at, const A* packed) const {
    Workspace<A> c_buffer(output.c ? 0 : at.rows * at.cols);
    A* const c = output.c ? output.c + at.row * output.ldc + at.col : c_buffer.data();
    const int64_t ldc = output.c ? output.ldc : at.cols;
    const Addend<A> added = output.added.at(at.row, at.col);
    if (onednn) {
      onednn_tile<T>({a.at(at.row, 0), b.at(0, at.col), c, at.rows, at.cols, k, ldc, added.data != nullptr});
    } else if (in_place()) {
      compute_in_place(at, 0, k, c, ldc, added);
    } else {
      Workspace<A> a_buffer(a_buffer_size(a.at(at.row, 0), at.rows, k));
      functions.tile({a.at(at.row, 0), m - at.row, packed, 0, c, ldc, at.rows, at.cols, k, output.alpha,
                      added, a_buffer.data(), streams_c()});
    }
    if (output.finish) output.finish(output.context, c, ldc, at.row, at.col, at.rows, at.cols);
  }

  /// A tile of C from the part of K from `first` to `last`.
  void compute_in_place(const Tiling::Tile& at, int64_t first, int64_t last, A* c, int64_t ldc,
                        Addend<A> added) const {
    if constexpr (std::is_same_v<T, A>) {
      const MatrixView<T> part = b.at(first, at.col);
      functions.tile({a.at(at.row, first), m - at.row, part.data, part.row_stride, c, ldc, at.rows, at.cols,
                      last - first, output.alpha, added, nullptr});
    }
  }

  /// Whether C goes around the caches: the gradient of a large weight, which is needed only when all others
  /// are there. A usual store would first read what it overwrites.
  bool streams_c() const {
    constexpr int64_t kLeastBytes = 1 << 20, kLineBytes = 64;
    return a.column_stride != 1 && output.c && !output.added.data && !output.finish &&
           steps <= geometry.most_k && m * n * int64_t{sizeof(A)} >= kLeastBytes &&
           n * int64_t{sizeof(A)} % kLineBytes == 0 && output.ldc * int64_t{sizeof(A)} % kLineBytes == 0 &&
           reinterpret_cast<uintptr_t>(output.c) % kLineBytes == 0;
  }

  int64_t a_buffer_size(const MatrixView<T>& part, int64_t rows, int64_t depth) const {
    return copies_a(part, rows, depth, geometry.step) ? geometry.a_buffer(rows, depth) : 0;
  }
};

}  // namespace

template <class T>
void gemm_blocked(int64_t m, int64_t n, int64_t k, MatrixView<T> a, MatrixView<T> b,
                  const GemmOutput<T>& output) {
  const bool onednn = use_onednn<T>(output.alpha);
  Product<T> product{m, n, k, a, b, output, onednn};
  if (m <= kFewRows && a.column_stride == 1 && b.row_stride == 1) return product.multiply_few();
  if (product.sums_halves()) return product.multiply_halves();
  if (product.onednn || product.in_place()) return product.multiply(0, n, nullptr);
  if (m <= kStripRows && n >= kLeastStrips * kStripCols) return product.multiply_strips();
  if (a.column_stride == 1 && m >= kCopiedRows && n * k <= kSmallWeight) product.copies = 2;
  if (k > n && n * product.steps > kPieceElements) return product.multiply_pieces();
  product.multiply_columns();
}

template <class T>
int64_t gemm_packed_size(int64_t n, int64_t k) {
  return functions_of(T()).geometry.packed_size(n, k);
}

template <class T>
void gemm_pack(int64_t n, int64_t k, MatrixView<T> b, accumulator_t<T>* packed) {
  const GemmOutput<T> nowhere{};
  Product<T>{0, n, k, {}, b, nowhere, false}.pack(0, n, packed);
}

template <class T>
void gemm_blocked_packed(int64_t m, int64_t n, int64_t k, MatrixView<T> a, const accumulator_t<T>* packed,
                         const GemmOutput<T>& output) {
  Product<T>{m, n, k, a, {}, output, false}.multiply(0, n, packed);
}

#define HEED_INSTANTIATE(T)                                                                               \
  template void gemm_blocked<T>(int64_t, int64_t, int64_t, MatrixView<T>, MatrixView<T>,                  \
                                const GemmOutput<T>&);                                                    \
  template int64_t gemm_packed_size<T>(int64_t, int64_t);                                                 \
  template void gemm_pack<T>(int64_t, int64_t, MatrixView<T>, accumulator_t<T>*);                         \
  template void gemm_blocked_packed<T>(int64_t, int64_t, int64_t, MatrixView<T>, const accumulator_t<T>*, \
                                       const GemmOutput<T>&);
HEED_INSTANTIATE(float)
HEED_INSTANTIATE(double)
HEED_INSTANTIATE(bfloat16)
#undef HEED_INSTANTIATE

}  // namespace heed::cpu
#endif
