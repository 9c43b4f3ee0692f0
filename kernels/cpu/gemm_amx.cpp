// bf16 is multiplied as it is. A float is the sum of three bf16, split off by rounding: of the nine products
// of the parts of two floats the six largest give theirs to within a unit of its last place, at six times the
// cost of one and still at 2.7 times the rate of AVX-512.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/kernels/cpu/gemm_amx.cpp"

#include <algorithm>
#include <memory>
#include <new>
#include <type_traits>

#include <hwy/cache_control.h>

#include <heed/core/base/divide.h>
#include <heed/core/base/parallel_for.h>
#include <heed/kernels/cpu/amx_pack-inl.h>
#include <heed/kernels/cpu/gemm_amx.h>
#include <heed/kernels/cpu/gemm_tile.h>
#include <heed/kernels/cpu/simd.h>
#include <heed/kernels/cpu/workspace.h>

#ifndef HEED_KERNELS_CPU_GEMM_AMX_ONCE_
#define HEED_KERNELS_CPU_GEMM_AMX_ONCE_
namespace heed::cpu {

/// Steps of K that are packed at a time: so many that two tiles of columns stay in the first-level cache.
template <class T>
constexpr int64_t kMostAmxSteps = kIsFloat<T> ? 4 : 16;
constexpr int64_t kBlockLines = 2 * kAmxLines;

/// One task: c = alpha a b + added.
template <class T>
struct AmxTile {
  MatrixView<T> a, b;
  float* c;
  int64_t ldc, rows, cols, k;
  float alpha;
  Addend<float> added;
  bool streamed;  // whether c goes around the caches

  int64_t steps() const { return ceil_divide(k, kAmxDepth); }
  int64_t pieces() const { return ceil_divide(steps(), kMostAmxSteps<T>); }
  int64_t piece_begin(int64_t i) const { return i * steps() / pieces(); }  // in steps
};

/// Most lines of each operand in a task: what a core's second-level cache has room for, with the sums.
constexpr int64_t kMostRows = 384, kMostCols = 512;

/// What a task works in. Rows of A that need no packing have no buffer, nor have sums that are complete after
/// one piece.
struct AmxBuffers {
  bfloat16 *a, *b;
  int64_t group;  // elements of 16 packed lines
  float* sums;    // [rows, cols] in whole blocks
  // Blocks of lines in which some float has no parts.
  bool inexact_rows[kMostRows / kBlockLines], inexact_cols[kMostCols / kBlockLines];

  bool inexact(int64_t row, int64_t col) const {
    return inexact_rows[row / kBlockLines] || inexact_cols[col / kBlockLines];
  }
};

}  // namespace heed::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

/// Lines in groups of 16, whose tiles follow each other. Marks blocks of lines that were not split.
template <bool Values, bool Transposed, class T>
HWY_NOINLINE void pack_operand(MatrixView<T> x, int64_t lines, int64_t k, bfloat16* out, int64_t group,
                               bool* inexact) {
  const Tag<float> d;
  for (int64_t i = 0; i < lines; i += kAmxLines, out += group) {
    auto left = hn::Zero(d);
    pack_group<Values, Transposed, kParts<T>>(x.at(i, 0), lines - i, k, reinterpret_cast<float*>(out), left);
    if (kIsFloat<T> && !hn::AllFalse(d, hn::IsNaN(left))) inexact[i / kBlockLines] = true;
  }
}

template <class T>
HWY_INLINE void pack_rows(MatrixView<T> a, int64_t rows, int64_t k, AmxBuffers& buffers) {
  const auto pack = a.column_stride == 1 ? pack_operand<true, false, T> : pack_operand<false, true, T>;
  pack(a, rows, k, buffers.a, buffers.group, buffers.inexact_rows);
}

template <class T>
HWY_INLINE void pack_columns(MatrixView<T> b, int64_t cols, int64_t k, AmxBuffers& buffers) {
  const auto pack = b.column_stride == 1 ? pack_operand<false, false, T> : pack_operand<true, true, T>;
  pack({b.data, b.column_stride, b.row_stride}, cols, k, buffers.b, buffers.group, buffers.inexact_cols);
}

/// What is added to a block, for sums to begin with.
template <class V>
HWY_INLINE void begin_block(Addend<float> added, int64_t rows, int64_t cols, float* product, V zero) {
  const Tag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < kBlockLines; j += lanes) {
      const float* const more = added.at(i, j).data;
      const int64_t n = cols - j;
      hn::StoreU(n >= lanes ? hn::LoadU(d, more)
                 : n > 0    ? load_n(d, more, n)
                            : zero,
                 d, product + i * kBlockLines + j);
    }
  }
}

/// c = product, or alpha * product + added, for a block whose product is in a buffer.
template <class T>
HWY_INLINE void finish_block(const AmxTile<T>& tile, const float* product, float* c, Addend<float> added,
                             int64_t rows, int64_t cols) {
  const Tag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto alpha = hn::Set(d, tile.alpha);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; j += lanes) {
      const int64_t n = HWY_MIN(lanes, cols - j);
      auto v = hn::LoadU(d, product + i * kBlockLines + j);
      if (tile.alpha != 1) {
        v = hn::Mul(alpha, v);
        if (added.data) v = hn::Add(v, load_n(d, added.at(i, j).data, n));
      }
      float* const to = c + i * tile.ldc + j;
      if (n < lanes)
        store_n(v, d, to, n);
      else if (tile.streamed)
        hn::Stream(v, d, to);
      else
        hn::StoreU(v, d, to);
    }
  }
}

/// All blocks but inexact ones, whose c stays as it was.
template <class T>
HWY_INLINE void amx_tile(const AmxTile<T>& tile, AmxBuffers& buffers) {
  const AmxTiles tiles;
  alignas(64) float product[kBlockLines * kBlockLines];
  const int64_t ld_sums = round_up(tile.cols, kBlockLines), pieces = tile.pieces();
  // Sums are completed in place where nothing is left to do and rows begin with a line, else in a buffer.
  const bool plain = tile.alpha == 1 && !tile.streamed && is_aligned(tile.c, tile.ldc);
  for (int64_t piece = 0; piece < pieces; ++piece) {
    const int64_t begin = tile.piece_begin(piece), steps = tile.piece_begin(piece + 1) - begin;
    const int64_t first = begin * kAmxDepth, k = HWY_MIN(steps * kAmxDepth, tile.k - first);
    AmxBlock block{};
    block.a_parts = block.b_parts = static_cast<int>(kParts<T>);
    block.steps = steps;
    block.b_row = kAmxDepth;
    block.b_tile = buffers.group;
    block.b_step = kParts<T> * kAmxTileElements;
    const bfloat16* a = buffers.a;
    pack_columns(tile.b.at(first, 0), tile.cols, k, buffers);
    if (buffers.a) {
      pack_rows(tile.a.at(0, first), tile.rows, k, buffers);
      block.a_row = kAmxDepth, block.a_tile = buffers.group, block.a_step = kParts<T> * kAmxTileElements;
    } else if constexpr (!kIsFloat<T>) {
      a = tile.a.at(0, first).data;
      block.a_row = tile.a.row_stride, block.a_tile = kAmxLines * block.a_row, block.a_step = kAmxDepth;
    }
    const bool begins = piece == 0, ends = piece + 1 == pieces;
    for (int64_t j = 0; j < tile.cols; j += kBlockLines) {
      const int64_t cols = HWY_MIN(kBlockLines, tile.cols - j);
      block.b = buffers.b + j / kAmxLines * buffers.group;
      block.col_tiles = static_cast<int>(ceil_divide(cols, kAmxLines));
      for (int64_t i = 0; i < tile.rows; i += kBlockLines) {
        if (ends && buffers.inexact(i, j)) continue;
        const int64_t rows = HWY_MIN(kBlockLines, tile.rows - i);
        const bool in_place = plain && rows % kAmxLines == 0 && cols % kAmxLines == 0;
        float *const sums = buffers.sums + i * ld_sums + j, *const c = tile.c + i * tile.ldc + j;
        const Addend<float> more = tile.added.at(i, j);
        block.a = a + i / kAmxLines * block.a_tile;
        block.row_tiles = static_cast<int>(ceil_divide(rows, kAmxLines));
        block.added = begins ? nullptr : sums;
        block.added_stride = ld_sums;
        if (begins && more.data && tile.alpha == 1) {
          if (!in_place) begin_block(more, rows, cols, product, hn::Zero(Tag<float>()));
          block.added = in_place ? more.data : product;
          block.added_stride = in_place ? more.stride : kBlockLines;
        }
        block.c = !ends ? sums : in_place ? c : product;
        block.ldc = !ends ? ld_sums : in_place ? tile.ldc : kBlockLines;
        amx_block(block);
        if (ends && !in_place) finish_block(tile, product, c, more, rows, cols);
      }
    }
  }
  if (tile.streamed) hwy::FlushStream();
}

void amx_tile_f32(const AmxTile<float>& tile, AmxBuffers& buffers) { amx_tile(tile, buffers); }
void amx_tile_bf16(const AmxTile<bfloat16>& tile, AmxBuffers& buffers) { amx_tile(tile, buffers); }

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::cpu {
namespace {

HWY_EXPORT(amx_tile_f32);
HWY_EXPORT(amx_tile_bf16);
void amx_tile(const AmxTile<float>& tile, AmxBuffers& buffers) { HEED_SIMD(amx_tile_f32)(tile, buffers); }
void amx_tile(const AmxTile<bfloat16>& tile, AmxBuffers& buffers) { HEED_SIMD(amx_tile_bf16)(tile, buffers); }

/// A block by vectors, for numbers that have no parts.
void multiply_exactly(const AmxTile<float>& tile, int64_t row, int64_t col) {
  const GemmFunctions<float>& functions = gemm_functions<float>();
  const GemmGeometry& geometry = functions.geometry;
  const int64_t rows = std::min(kBlockLines, tile.rows - row), cols = std::min(kBlockLines, tile.cols - col);
  const MatrixView<float> a = tile.a.at(row, 0);
  Workspace<float> packed(geometry.packed_size(cols, tile.k));
  Workspace<float> buffer(copies_a(a, rows, tile.k, geometry.step) ? geometry.a_buffer(rows, tile.k) : 0);
  functions.pack_b(tile.b.at(0, col), tile.k, cols, packed.data());
  functions.tile({a, rows, packed.data(), 0, tile.c + row * tile.ldc + col, tile.ldc, rows, cols, tile.k,
                  tile.alpha, tile.added.at(row, col), buffer.data()});
}

/// At least `count` elements that belong to the calling thread until it ends, so that its caches have them.
bfloat16* own_memory(int64_t count) {
  constexpr std::align_val_t kLine{64};
  struct Delete {
    void operator()(void* p) const { ::operator delete(p, kLine); }
  };
  thread_local std::unique_ptr<void, Delete> memory;
  thread_local size_t size = 0;
  const size_t bytes = static_cast<size_t>(count) * sizeof(bfloat16);
  if (bytes > size) {
    memory.reset();
    size = 0;
    memory.reset(::operator new(bytes, kLine));
    size = bytes;
  }
  return static_cast<bfloat16*>(memory.get());
}

template <class T>
void multiply(const AmxTile<T>& tile) {
  const int64_t pieces = tile.pieces(), rows = round_up(tile.rows, kBlockLines),
                cols = round_up(tile.cols, kBlockLines),
                group = ceil_divide(tile.steps(), pieces) * kParts<T> * kAmxTileElements;
  // Rows of bf16 that are whole tiles are read where they lie.
  const bool packs_a = kIsFloat<T> || tile.a.column_stride != 1 || tile.rows % kAmxLines != 0 ||
                       tile.k % kAmxDepth != 0 || !is_aligned(tile.a.data, tile.a.row_stride);
  const int64_t a_size = packs_a ? rows / kAmxLines * group : 0, b_size = cols / kAmxLines * group,
                sums = pieces > 1 ? rows * cols : 0;
  bfloat16* const a = own_memory(a_size + b_size + 2 * sums);
  bfloat16* const b = a + a_size;
  AmxBuffers buffers{packs_a ? a : nullptr, b, group, reinterpret_cast<float*>(b + b_size), {}, {}};
  amx_tile(tile, buffers);
  if constexpr (kIsFloat<T>) {
    for (int64_t i = 0; i < tile.rows; i += kBlockLines)
      for (int64_t j = 0; j < tile.cols; j += kBlockLines)
        if (buffers.inexact(i, j)) multiply_exactly(tile, i, j);
  }
}

/// Tasks for all threads where there are rows and columns for it: into how many they are cut changes no bits.
void share_out(int64_t threads, Cut& rows, Cut& cols) {
  constexpr int64_t kLeastLines = 64;
  const auto enough = [&] {
    const int64_t tasks = rows.parts * cols.parts;
    return tasks % threads == 0 || tasks > 4 * threads;
  };
  const auto cut = [&](Cut& lines) {
    while (!enough() && (lines.parts + 1) * kLeastLines <= lines.count) ++lines.parts;
  };
  cut(rows);
  cut(cols);
}

}  // namespace

template <class T>
AmxProduct<T>::AmxProduct(const BlockedGemm<T>& args)
    : args_(args),
      halves_(args.m * args.n <= kSmallWeight && shares_tokens(args.a, args.output, args.k)),
      rows_(args.m, kBlockLines, kMostRows),
      cols_(args.n, kBlockLines, kMostCols),
      second_(halves_ ? args.m * args.n : 0) {
  share_out(halves_ ? ceil_divide(thread_count(), 2) : thread_count(), rows_, cols_);
}

template <class T>
void AmxProduct<T>::run(int64_t task) const {
  const bool second = task >= tiles();
  const int64_t i = task % tiles() / cols_.parts, j = task % cols_.parts;
  const int64_t row = rows_.begin(i), col = cols_.begin(j), rows = rows_.size(i), cols = cols_.size(j);
  const int64_t half = halves_ ? round_up(args_.k, 2 * kAmxDepth) / 2 : args_.k;
  const int64_t first = second ? half : 0, k = second ? args_.k - half : half;
  const GemmOutput<T>& output = args_.output;
  Workspace<float> buffer(output.c ? 0 : rows * cols);
  AmxTile<T> tile{args_.a.at(row, first),
                  args_.b.at(first, col),
                  buffer.data(),
                  cols,
                  rows,
                  cols,
                  k,
                  output.alpha,
                  output.added.at(row, col),
                  exceeds_caches(args_.a, args_.output, args_.m, args_.n)};
  if (second)
    tile.c = second_.data() + row * args_.n + col, tile.ldc = args_.n, tile.added = {};
  else if (output.c)
    tile.c = output.c + row * output.ldc + col, tile.ldc = output.ldc;
  multiply(tile);
  if (output.finish) output.finish(output.context, tile.c, tile.ldc, row, col, rows, cols);
}

template <class T>
void AmxProduct<T>::finish() const {
  if (halves_) add_rows(second_.data(), args_.m, args_.n, args_.output.c, args_.output.ldc);
}

template class AmxProduct<float>;
template class AmxProduct<bfloat16>;

}  // namespace heed::cpu
#endif
