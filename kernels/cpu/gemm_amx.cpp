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
  bool streamed;    // whether c goes around the caches
  bool overlapped;  // whether operands are packed while others are multiplied

  int64_t steps() const { return ceil_divide(k, kAmxDepth); }
  int64_t pieces() const { return ceil_divide(steps(), kMostAmxSteps<T>); }
  int64_t piece_begin(int64_t i) const { return i * steps() / pieces(); }  // in steps
};

/// Most elements of operands that are still in the second-level caches when they are multiplied.
template <class T>
constexpr int64_t kMostCached = kIsFloat<T> ? 0 : 1 << 19;
/// Most lines of each operand in a task: what a core's second-level cache has room for, with the sums.
constexpr int64_t kMostRows = 384, kMostCols = 512;

/// What a task works in. Rows of A that need no packing have no buffer, nor have sums that are complete after
/// one piece.
struct AmxBuffers {
  bfloat16* a;    // all rows
  bfloat16* b;    // all columns, or two blocks of them in turn if they are packed while others are multiplied
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

/// A block of lines over a piece of K, to be packed in groups of 16 whose tiles follow each other.
template <class T>
struct AmxLines {
  MatrixView<T> x;
  int64_t lines, k;
  bfloat16* out;
  int64_t group;
  bool* inexact;                                              // becomes whether some float has no parts
  bool continued;                                             // whether lines follow that are packed next
  void (*pack)(const AmxLines&, int64_t begin, int64_t end);  // quarters
  void (*pack_all)(const AmxLines&);

  int64_t groups() const { return lines > kAmxLines ? 2 : 1; }
  int64_t quarters() const { return kQuarters * groups() * ceil_divide(k, kAmxDepth); }
};

/// Asks the second-level cache for a quarter of a tile.
template <bool Values, class T>
HWY_INLINE void fetch_quarter(MatrixView<T> x, int64_t quarter) {
  constexpr int64_t kLine = kLineBytes / sizeof(T);
  const int64_t rows = (Values ? kAmxLines : kAmxDepth) / kQuarters,
                stride = Values ? x.row_stride : x.column_stride;
  const T* row = x.data + quarter * rows * stride;
  for (int64_t i = 0; i < rows; ++i, row += stride)
    for (int64_t j = 0; j < (Values ? kAmxDepth : kAmxLines); j += kLine) __builtin_prefetch(row + j, 0, 2);
}

/// Quarters [begin, end). The first is all of a tile that is not whole.
template <bool Values, bool Transposed, class T>
void pack_quarters(const AmxLines<T>& lines, int64_t begin, int64_t end) {
  const Tag<float> d;
  const AmxLines<T> to = lines;
  auto left = hn::Zero(d);
  for (int64_t i = begin; i < end; ++i) {
    const int64_t tile = i / kQuarters, quarter = i % kQuarters, pair = to.groups() - 1, step = tile >> pair,
                  line = (tile & pair) * kAmxLines, value = step * kAmxDepth;
    const MatrixView<T> x = to.x.at(line, value);
    float* const out =
        reinterpret_cast<float*>(to.out + (tile & pair) * to.group + step * kParts<T> * kAmxTileElements);
    if (to.continued) fetch_quarter<Values>(x.at(kBlockLines, 0), quarter);
    if (to.lines - line >= kAmxLines && to.k - value >= kAmxDepth) {
      pack_quarter<Values, Transposed, kParts<T>>(x, quarter, out, left);
    } else if (quarter == 0) {
      auto more = hn::Zero(d);  // whose address is taken
      pack_group<Values, Transposed, kParts<T>>(x, to.lines - line, HWY_MIN(kAmxDepth, to.k - value), out,
                                                more);
      left = hn::Add(left, more);
    }
  }
  if (kIsFloat<T> && !hn::AllFalse(d, hn::IsNaN(left))) *to.inexact = true;
}

template <bool Values, bool Transposed, class T>
void pack_whole(const AmxLines<T>& lines) {
  const Tag<float> d;
  const AmxLines<T> to = lines;
  auto left = hn::Zero(d);
  for (int64_t i = 0; i < to.groups(); ++i)
    pack_group<Values, Transposed, kParts<T>>(to.x.at(i * kAmxLines, 0), to.lines - i * kAmxLines, to.k,
                                              reinterpret_cast<float*>(to.out + i * to.group), left);
  if (kIsFloat<T> && !hn::AllFalse(d, hn::IsNaN(left))) *to.inexact = true;
}

/// Lines that are packed little by little.
template <class T>
struct AmxStream {
  AmxLines<T> lines;
  int64_t next = 0, due = lines.quarters();

  int64_t behind() const { return due - next; }
  void pack(int64_t count) {
    const int64_t begin = next;
    next += count;
    lines.pack(lines, begin, next);
  }
};

/// What is packed while a block is multiplied: evenly in its turns, and then what is left of it.
template <class T>
class AmxPacking {
 public:
  AmxStream<T> rows{{}, 0, 0}, columns{{}, 0, 0};

  void share_out(AmxBlock& block) {
    quarters_ = rows.behind() + columns.behind();
    turns_ = block.turns();
    credit_ = 0;
    block.beside = quarters_ ? turn : nullptr;
    block.context = this;
  }

  void finish() { pack(rows.behind() + columns.behind()); }

 private:
  static void turn(void* context) {
    AmxPacking& self = *static_cast<AmxPacking*>(context);
    self.credit_ += self.quarters_;
    int64_t count = 0;
    for (; self.credit_ >= self.turns_; self.credit_ -= self.turns_) ++count;
    self.pack(count);
  }

  void pack(int64_t count) {
    const int64_t first = HWY_MIN(count, rows.behind());
    if (first > 0) rows.pack(first);
    if (count > first) columns.pack(count - first);
  }

  int64_t quarters_ = 0, turns_ = 1, credit_ = 0;
};

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

/// All blocks of a task but inexact ones, whose c stays as it was.
template <class T>
class AmxTask {
 public:
  AmxTask(const AmxTile<T>& tile, AmxBuffers& buffers) : tile_(tile), buffers_(buffers) {
    block_.a_parts = block_.b_parts = static_cast<int>(kParts<T>);
    block_.b_row = kAmxDepth, block_.b_tile = buffers_.group, block_.b_step = kParts<T> * kAmxTileElements;
    if (buffers_.a)
      block_.a_row = kAmxDepth, block_.a_tile = buffers_.group, block_.a_step = block_.b_step;
    else
      block_.a_row = tile_.a.row_stride, block_.a_tile = kAmxLines * block_.a_row, block_.a_step = kAmxDepth;
  }

  void run() {
    const AmxTiles tiles;
    if (tile_.overlapped)
      run_overlapped();
    else
      for (int64_t p = 0; p < pieces_; ++p) run_piece(piece_at(p));
    if (tile_.streamed) hwy::FlushStream();
  }

 private:
  struct Piece {
    int64_t index, first, k, steps;
  };
  Piece piece_at(int64_t i) const {
    const int64_t begin = tile_.piece_begin(i), steps = tile_.piece_begin(i + 1) - begin;
    return {i, begin * kAmxDepth, HWY_MIN(steps * kAmxDepth, tile_.k - begin * kAmxDepth), steps};
  }

  /// Operands first, and then products.
  void run_piece(const Piece& piece) {
    for (int64_t j = 0; j < col_blocks_; ++j) pack_all(columns(piece, j, j));
    for (int64_t i = 0; i < row_blocks_ && buffers_.a; ++i) pack_all(rows(piece, i));
    for (int64_t j = 0; j < col_blocks_; ++j)
      for (int64_t i = 0; i < row_blocks_; ++i) multiply(piece, i, j, columns_buffer(j));
  }

  /// While a block is multiplied, parts of the next columns are packed, and the next rows where none are yet:
  /// most of the time to fetch them from beyond the second-level cache.
  void run_overlapped() {
    Piece piece = piece_at(0);
    packing_.columns = columns(piece, 0, 0);
    if (buffers_.a) packing_.rows = rows(piece, 0);
    packing_.finish();
    int64_t buffer = 0;
    for (int64_t p = 0; p < pieces_; ++p) {
      const bool last_piece = p + 1 == pieces_;
      const Piece next = last_piece ? piece : piece_at(p + 1);
      for (int64_t j = 0; j < col_blocks_; ++j, buffer ^= 1) {
        const bool last_column = j + 1 == col_blocks_, last = last_column && last_piece;
        AmxStream<T>& stream = packing_.columns;
        if (!last) stream = columns(last_column ? next : piece, last_column ? 0 : j + 1, buffer ^ 1);
        const int64_t quarters = stream.due, share = ceil_divide(quarters - stream.next, row_blocks_);
        stream.due = stream.next;
        for (int64_t i = 0; i < row_blocks_; ++i) {
          stream.due = HWY_MIN(stream.due + share, quarters);
          const bool last_row = i + 1 == row_blocks_, turns = last_row && last_column && !last;
          if (buffers_.a && j == 0 && !last_row) packing_.rows = rows(piece, i + 1);
          // The first rows of the next piece take the place of some that no block needs any more.
          if (buffers_.a && turns && row_blocks_ > 1) packing_.rows = rows(next, 0);
          multiply(piece, i, j, columns_buffer(buffer));
          packing_.finish();
          if (buffers_.a && turns && row_blocks_ == 1) packing_.rows = rows(next, 0), packing_.finish();
        }
      }
      piece = next;
    }
  }

  static void pack_all(const AmxStream<T>& stream) { stream.lines.pack_all(stream.lines); }

  AmxStream<T> rows(const Piece& piece, int64_t i) const {
    const int64_t row = i * kBlockLines;
    const MatrixView<T> a = tile_.a.at(row, piece.first);
    return {{a, HWY_MIN(kBlockLines, tile_.rows - row), piece.k, buffers_.a + 2 * i * buffers_.group,
             buffers_.group, buffers_.inexact_rows + i, tile_.overlapped && i + 1 < row_blocks_,
             a.column_stride == 1 ? pack_quarters<true, false, T> : pack_quarters<false, true, T>,
             a.column_stride == 1 ? pack_whole<true, false, T> : pack_whole<false, true, T>}};
  }

  AmxStream<T> columns(const Piece& piece, int64_t j, int64_t buffer) const {
    const int64_t col = j * kBlockLines;
    const MatrixView<T> b = tile_.b.at(piece.first, col);
    return {{{b.data, b.column_stride, b.row_stride},
             HWY_MIN(kBlockLines, tile_.cols - col),
             piece.k,
             columns_buffer(buffer),
             buffers_.group,
             buffers_.inexact_cols + j,
             tile_.overlapped && j + 1 < col_blocks_,
             b.column_stride == 1 ? pack_quarters<false, false, T> : pack_quarters<true, true, T>,
             b.column_stride == 1 ? pack_whole<false, false, T> : pack_whole<true, true, T>}};
  }

  bfloat16* columns_buffer(int64_t i) const { return buffers_.b + 2 * i * buffers_.group; }

  /// Block (i, j), with its columns in b.
  void multiply(const Piece& piece, int64_t i, int64_t j, const bfloat16* b) {
    const bool begins = piece.index == 0, ends = piece.index + 1 == pieces_;
    const int64_t row = i * kBlockLines, col = j * kBlockLines;
    if (ends && buffers_.inexact(row, col)) return;
    const int64_t rows = HWY_MIN(kBlockLines, tile_.rows - row),
                  cols = HWY_MIN(kBlockLines, tile_.cols - col);
    AmxBlock& block = block_;
    block.steps = piece.steps;
    block.row_tiles = static_cast<int>(ceil_divide(rows, kAmxLines));
    block.col_tiles = static_cast<int>(ceil_divide(cols, kAmxLines));
    block.b = b;
    if (buffers_.a)
      block.a = buffers_.a + 2 * i * buffers_.group;
    else if constexpr (!kIsFloat<T>)
      block.a = tile_.a.at(row, piece.first).data;
    // Sums are completed in place where nothing is left to do and rows begin with a line, else in a buffer.
    alignas(64) float product[kBlockLines * kBlockLines];
    const bool in_place = plain_ && rows % kAmxLines == 0 && cols % kAmxLines == 0;
    float *const sums = buffers_.sums + row * ld_sums_ + col, *const c = tile_.c + row * tile_.ldc + col;
    const Addend<float> more = tile_.added.at(row, col);
    block.added = begins ? nullptr : sums;
    block.added_stride = ld_sums_;
    if (begins && more.data && tile_.alpha == 1) {
      if (!in_place) begin_block(more, rows, cols, product, hn::Zero(Tag<float>()));
      block.added = in_place ? more.data : product;
      block.added_stride = in_place ? more.stride : kBlockLines;
    }
    block.c = !ends ? sums : in_place ? c : product;
    block.ldc = !ends ? ld_sums_ : in_place ? tile_.ldc : kBlockLines;
    packing_.share_out(block);
    amx_block(block);
    if (ends && !in_place) finish_block(tile_, product, c, more, rows, cols);
  }

  const AmxTile<T>& tile_;
  AmxBuffers& buffers_;
  const int64_t pieces_ = tile_.pieces(), row_blocks_ = ceil_divide(tile_.rows, kBlockLines),
                col_blocks_ = ceil_divide(tile_.cols, kBlockLines), ld_sums_ = col_blocks_ * kBlockLines;
  const bool plain_ = tile_.alpha == 1 && !tile_.streamed && is_aligned(tile_.c, tile_.ldc);
  AmxPacking<T> packing_;
  // Kept for all blocks: an object set to 0 by vectors just before it is read, field by field, would have to
  // wait for the stores of the tiles before it.
  AmxBlock block_{};
};

void amx_tile_f32(const AmxTile<float>& tile, AmxBuffers& buffers) { AmxTask(tile, buffers).run(); }
void amx_tile_bf16(const AmxTile<bfloat16>& tile, AmxBuffers& buffers) { AmxTask(tile, buffers).run(); }

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
  const int64_t a_size = packs_a ? rows / kAmxLines * group : 0,
                b_size = (tile.overlapped ? 4 : cols / kAmxLines) * group,
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
                  exceeds_caches(args_.a, args_.output, args_.m, args_.n),
                  (args_.m + args_.n) * args_.k > kMostCached<T>};
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
