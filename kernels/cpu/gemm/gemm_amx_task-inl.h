// A task of a product by AMX: one part of C, from packed parts of both operands.
//
// bf16 is multiplied as it is. A float is the sum of three bf16, split off by rounding: of the nine products
// of the parts of two floats the six largest give theirs to within a unit of its last place, at six times the
// cost of one and still at 2.7 times the rate of AVX-512.
#include <hwy/cache_control.h>

#include <heed/core/base/int_math.h>
#include <heed/kernels/cpu/gemm/amx_stream-inl.h>
#include <heed/kernels/cpu/gemm/gemm_amx.h>

#ifndef HEED_KERNELS_CPU_GEMM_AMX_TASK_ONCE_
#define HEED_KERNELS_CPU_GEMM_AMX_TASK_ONCE_
namespace heed::cpu {

/// Steps of K that are packed at a time: so many that two tiles of columns stay in the first-level cache.
template <class T>
constexpr int64_t kMaxAmxSteps = kIsFloat<T> ? 4 : 16;

/// One task: c = alpha a b + added.
template <class T>
struct AmxTask {
  MatrixView<T> a, b;
  float* c;
  int64_t ldc, rows, cols, k;
  float alpha;
  Addend<float> added;
  bool nontemporal;  // how c is stored
  bool overlapped;   // whether operands are packed while others are multiplied

  int64_t steps() const { return ceil_divide(k, kAmxDepth); }
  int64_t pieces() const { return ceil_divide(steps(), kMaxAmxSteps<T>); }
  int64_t piece_begin(int64_t i) const { return i * steps() / pieces(); }  // in steps
};

/// Most elements of operands that are still in the second-level caches when they are multiplied.
template <class T>
constexpr int64_t kMaxCachedElements = kIsFloat<T> ? 0 : 1 << 19;

/// What a task works in. Rows of A that need no packing have no buffer, nor have sums that are complete after
/// one piece.
struct AmxBuffers {
  bfloat16* a;    // all rows
  bfloat16* b;    // all columns, or two blocks of them in turn if they are packed while others are multiplied
  int64_t group;  // elements of 16 packed lines
  float* sums;    // whole blocks, one after the other, of the same columns first
  // Blocks of lines in which some float has no parts.
  bool inexact_rows[kMaxTaskRows / kAmxBlockLines], inexact_cols[kMaxTaskCols / kAmxBlockLines];

  bool inexact(int64_t row, int64_t col) const {
    return inexact_rows[row / kAmxBlockLines] || inexact_cols[col / kAmxBlockLines];
  }
};

}  // namespace heed::cpu
#endif

#if defined(HEED_KERNELS_CPU_GEMM_AMX_TASK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_CPU_GEMM_AMX_TASK_INL_H_
#undef HEED_KERNELS_CPU_GEMM_AMX_TASK_INL_H_
#else
#define HEED_KERNELS_CPU_GEMM_AMX_TASK_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

template <bool Values, bool Transposed, class T>
void pack_at_once(const PackStream<T>& stream) {
  const Tag<float> d;
  const int64_t lines = stream.lines, k = stream.k, group = stream.group;
  bfloat16* const out = stream.out;
  auto left = hn::Zero(d);
  for (int64_t i = 0; i < lines; i += kAmxLines)
    pack_group<Values, Transposed, kParts<T>>(stream.x.at(i, 0), lines - i, k,
                                              reinterpret_cast<float*>(out + i / kAmxLines * group), left);
  if (kIsFloat<T> && !hn::AllFalse(d, hn::IsNaN(left))) *stream.inexact = true;
}

/// What is added to a block, for sums to begin with.
template <class V>
HWY_INLINE void begin_block(Addend<float> added, int64_t rows, int64_t cols, float* product, V zero) {
  const Tag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < kAmxBlockLines; j += lanes) {
      const float* const more = added.at(i, j).data;
      const int64_t n = cols - j;
      hn::StoreU(n >= lanes ? hn::LoadU(d, more)
                 : n > 0    ? load_n(d, more, n)
                            : zero,
                 d, product + i * kAmxBlockLines + j);
    }
  }
}

/// A block whose product is in a buffer, on its way to c, four rows a unit.
template <class T>
struct BlockStream : InterleavedWork {
  const AmxTask<T>* task;
  const float* product;
  float* c;
  Addend<float> added;
  int64_t rows, cols;
};
constexpr int64_t kUnitRows = 4;

/// c = product, or alpha * product + added, for the rows of the last `count` units of a BlockStream.
template <class T>
void finish_rows(InterleavedWork& stream, int64_t count) {
  const BlockStream<T>& block = static_cast<BlockStream<T>&>(stream);
  const AmxTask<T>& task = *block.task;
  const Tag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto alpha = hn::Set(d, task.alpha);
  const int64_t end = HWY_MIN(block.rows, block.done * kUnitRows);
  for (int64_t i = (block.done - count) * kUnitRows; i < end; ++i) {
    for (int64_t j = 0; j < block.cols; j += lanes) {
      const int64_t n = HWY_MIN(lanes, block.cols - j);
      auto v = hn::LoadU(d, block.product + i * kAmxBlockLines + j);
      if (task.alpha != 1) {
        v = hn::Mul(alpha, v);
        if (block.added.data) v = hn::Add(v, load_n(d, block.added.at(i, j).data, n));
      }
      float* const to = block.c + i * task.ldc + j;
      if (n < lanes)
        store_n(v, d, to, n);
      else if (task.nontemporal)
        hn::Stream(v, d, to);
      else
        hn::StoreU(v, d, to);
    }
  }
}

/// All blocks of a task but inexact ones, whose c stays as it was.
template <class T>
class AmxTaskRunner {
 public:
  AmxTaskRunner(const AmxTask<T>& task, AmxBuffers& buffers) : task_(task), buffers_(buffers) {
    block_.a_parts = block_.b_parts = static_cast<int>(kParts<T>);
    block_.b_row = kAmxDepth, block_.b_tile = buffers_.group, block_.b_step = kParts<T> * kAmxTileElements;
    if (buffers_.a)
      block_.a_row = kAmxDepth, block_.a_tile = buffers_.group, block_.a_step = block_.b_step;
    else
      block_.a_row = task_.a.row_stride, block_.a_tile = kAmxLines * block_.a_row, block_.a_step = kAmxDepth;
  }

  void run() {
    const AmxTiles tiles;
    if (task_.overlapped)
      run_overlapped();
    else
      for (int64_t p = 0; p < pieces_; ++p) run_piece(piece_at(p));
    interleave_.finish();
    if (task_.nontemporal) hwy::FlushStream();
  }

 private:
  struct Piece {
    int64_t index, first, k, steps;
  };
  Piece piece_at(int64_t i) const {
    const int64_t begin = task_.piece_begin(i), steps = task_.piece_begin(i + 1) - begin;
    return {i, begin * kAmxDepth, HWY_MIN(steps * kAmxDepth, task_.k - begin * kAmxDepth), steps};
  }

  /// Operands first, and then products.
  void run_piece(const Piece& piece) {
    PackStream<T> lines;
    for (int64_t j = 0; j < col_blocks_; ++j) {
      begin_columns(lines, piece, j, j);
      pack_all<true>(lines);
    }
    for (int64_t i = 0; i < row_blocks_ && buffers_.a; ++i) {
      begin_rows(lines, piece, i);
      pack_all<false>(lines);
    }
    for (int64_t j = 0; j < col_blocks_; ++j)
      for (int64_t i = 0; i < row_blocks_; ++i) multiply(piece, i, j, columns_buffer(j));
  }

  /// While a block is multiplied, parts of the next columns are packed, and the next rows where none are yet:
  /// most of the time to fetch them from beyond the second-level cache.
  void run_overlapped() {
    Piece piece = piece_at(0);
    begin_columns(next_columns_, piece, 0, 0);
    if (buffers_.a) begin_rows(next_rows_, piece, 0);
    interleave_.finish();
    int64_t buffer = 0;
    for (int64_t p = 0; p < pieces_; ++p) {
      const bool last_piece = p + 1 == pieces_;
      const Piece next = last_piece ? piece : piece_at(p + 1);
      for (int64_t j = 0; j < col_blocks_; ++j, buffer ^= 1) {
        const bool last_column = j + 1 == col_blocks_, last = last_column && last_piece;
        if (!last)
          begin_columns(next_columns_, last_column ? next : piece, last_column ? 0 : j + 1, buffer ^ 1);
        const int64_t quarters = next_columns_.due,
                      share = ceil_divide(next_columns_.remaining(), row_blocks_);
        next_columns_.due = next_columns_.done;
        for (int64_t i = 0; i < row_blocks_; ++i) {
          next_columns_.due = HWY_MIN(next_columns_.due + share, quarters);
          const bool last_row = i + 1 == row_blocks_, turns = last_row && last_column && !last;
          if (buffers_.a && j == 0 && !last_row) begin_rows(next_rows_, piece, i + 1);
          // The first rows of the next piece take the place of some that no block needs any more.
          if (buffers_.a && turns && row_blocks_ > 1) begin_rows(next_rows_, next, 0);
          multiply(piece, i, j, columns_buffer(buffer));
          if (buffers_.a && turns && row_blocks_ == 1) begin_rows(next_rows_, next, 0), interleave_.finish();
        }
      }
      piece = next;
    }
  }

  void begin_rows(PackStream<T>& stream, const Piece& piece, int64_t i) const {
    const int64_t row = i * kAmxBlockLines;
    begin<false>(stream, task_.a.at(row, piece.first), task_.rows - row, piece.k,
                 buffers_.a + 2 * i * buffers_.group, buffers_.inexact_rows[i]);
  }

  void begin_columns(PackStream<T>& stream, const Piece& piece, int64_t j, int64_t buffer) const {
    const int64_t col = j * kAmxBlockLines;
    const MatrixView<T> b = task_.b.at(piece.first, col);
    begin<true>(stream, {b.data, b.column_stride, b.row_stride}, task_.cols - col, piece.k,
                columns_buffer(buffer), buffers_.inexact_cols[j]);
  }

  /// A block of what is left; the one after it is prefetched.
  template <bool Transposed>
  void begin(PackStream<T>& stream, MatrixView<T> x, int64_t left, int64_t k, bfloat16* out,
             bool& inexact) const {
    begin_stream<Transposed>(stream, x, HWY_MIN(kAmxBlockLines, left), k, out, buffers_.group,
                             task_.overlapped && left > kAmxBlockLines ? kAmxBlockLines * x.row_stride : 0,
                             inexact);
  }

  template <bool Transposed>
  static void pack_all(const PackStream<T>& lines) {
    if (lines.x.column_stride == 1)
      pack_at_once<true, Transposed>(lines);
    else
      pack_at_once<false, !Transposed>(lines);
  }

  bfloat16* columns_buffer(int64_t i) const { return buffers_.b + 2 * i * buffers_.group; }

  /// Block (i, j), with its columns in b.
  void multiply(const Piece& piece, int64_t i, int64_t j, const bfloat16* b) {
    const bool begins = piece.index == 0, ends = piece.index + 1 == pieces_;
    const int64_t row = i * kAmxBlockLines, col = j * kAmxBlockLines;
    if (ends && buffers_.inexact(row, col)) return interleave_.finish();
    const int64_t rows = HWY_MIN(kAmxBlockLines, task_.rows - row),
                  cols = HWY_MIN(kAmxBlockLines, task_.cols - col);
    AmxBlock& block = block_;
    block.steps = piece.steps;
    block.row_tiles = static_cast<int>(ceil_divide(rows, kAmxLines));
    block.col_tiles = static_cast<int>(ceil_divide(cols, kAmxLines));
    block.b = b;
    if (buffers_.a)
      block.a = buffers_.a + 2 * i * buffers_.group;
    else if constexpr (!kIsFloat<T>)
      block.a = task_.a.at(row, piece.first).data;
    // Sums are completed in place where nothing is left to do and rows begin with a line, else in a buffer,
    // which they leave while the next block is multiplied.
    const bool in_place = plain_ && rows % kAmxLines == 0 && cols % kAmxLines == 0;
    float *const sums = buffers_.sums + (j * row_blocks_ + i) * kAmxBlockLines * kAmxBlockLines,
                 *const c = task_.c + row * task_.ldc + col, *const product = products_[turn_ ^= 1];
    const Addend<float> more = task_.added.at(row, col);
    block.added = begins ? nullptr : sums;
    block.added_stride = kAmxBlockLines;
    if (begins && more.data && task_.alpha == 1) {
      if (!in_place) begin_block(more, rows, cols, product, hn::Zero(Tag<float>()));
      block.added = in_place ? more.data : product;
      if (in_place) block.added_stride = more.stride;
    }
    block.c = !ends ? sums : in_place ? c : product;
    block.ldc = ends && in_place ? task_.ldc : kAmxBlockLines;
    interleave_.schedule(block.turns());
    interleave_.attach(block);
    amx_block(block);
    interleave_.finish();
    if (ends && !in_place) finish_later(product, c, more, rows, cols);
  }

  void finish_later(const float* product, float* c, Addend<float> added, int64_t rows, int64_t cols) {
    last_.run = finish_rows<T>;
    last_.task = &task_;
    last_.product = product;
    last_.c = c;
    last_.added.data = added.data;
    last_.added.stride = added.stride;
    last_.rows = rows;
    last_.cols = cols;
    last_.done = 0;
    last_.due = ceil_divide(rows, kUnitRows);
  }

  const AmxTask<T>& task_;
  AmxBuffers& buffers_;
  const int64_t pieces_ = task_.pieces(), row_blocks_ = ceil_divide(task_.rows, kAmxBlockLines),
                col_blocks_ = ceil_divide(task_.cols, kAmxBlockLines);
  const bool plain_ = task_.alpha == 1 && !task_.nontemporal && is_aligned(task_.c, task_.ldc);
  alignas(64) float products_[2][kAmxBlockLines * kAmxBlockLines];
  int turn_ = 0;
  PackStream<T> next_rows_{}, next_columns_{};
  BlockStream<T> last_{};
  AmxInterleave<3> interleave_{{&next_rows_, &next_columns_, &last_}};
  // Kept for all blocks: an object set to 0 by vectors just before it is read, field by field, would have to
  // wait for the stores of the tiles before it.
  AmxBlock block_{};
};

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
