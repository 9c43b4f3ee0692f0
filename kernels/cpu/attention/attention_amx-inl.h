// Products of attention's blocks by AMX: of packed tokens with each other, and with weights.
#if defined(HEED_KERNELS_CPU_ATTENTION_AMX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_CPU_ATTENTION_AMX_INL_H_
#undef HEED_KERNELS_CPU_ATTENTION_AMX_INL_H_
#else
#define HEED_KERNELS_CPU_ATTENTION_AMX_INL_H_
#endif

#include <heed/core/base/int_math.h>
#include <heed/kernels/cpu/attention/attention_block-inl.h>
#include <heed/kernels/cpu/gemm/amx_stream-inl.h>

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

/// bf16 that a weight becomes: those of bf16 are multiplied to 16 bits.
template <class T>
constexpr int64_t kWeightParts = kIsFloat<T> ? kAmxParts : kAmxFewParts;

/// Floats that a block of tokens takes when packed, and a block of weights.
template <class T>
constexpr int64_t packed_tokens(int64_t width) {
  return kParts<T> * kKeyBlock * width / 2;
}
template <class T>
constexpr int64_t kPackedWeights = kWeightParts<T>* kKeyBlock* kQueryBlock / 2;

/// A block of tokens in tiles of 16, which are lines of A or else columns of B, of `width` values each; zeros
/// after the last. False where a number is not finite and has no parts.
template <bool Lines, class T>
HWY_INLINE bool pack_tokens(const T* rows, int64_t stride, int64_t count, int64_t width, float* to) {
  const Tag<float> d;
  auto left = hn::Zero(d);
  pack_groups<true, !Lines, kParts<T>>(MatrixView<T>{rows, stride, 1}, count, width, to, left);
  return !kIsFloat<T> || hn::AllFalse(d, hn::IsNaN(left));
}

/// The columns of a block of tokens in tiles of 16, of `count` values each and zeros up to whole tiles. False
/// where a number is not finite: weights have parts too, of which one may be 0.
template <bool Lines, class T>
HWY_INLINE bool pack_columns(const T* rows, int64_t stride, int64_t count, int64_t width, float* to) {
  const Tag<float> d;
  auto left = hn::Zero(d);
  pack_groups<false, Lines, kParts<T>>(MatrixView<T>{rows, 1, stride}, width, count, to, left);
  return kIsFloat<T> ? hn::AllFalse(d, hn::IsNaN(left)) : all_finite(d, rows, stride, count, width);
}

/// A block of scores, of a row a key: its rows as lines of A, with zeros after the last, or else its columns
/// as columns of B, in whole tiles; of `depth` values each.
template <bool Lines, class T>
HWY_INLINE void pack_weights(const float* scores, int64_t stride, int64_t lines, int64_t depth, float* to) {
  auto left = hn::Zero(Tag<float>());  // a NaN among the last parts is multiplied too
  const auto view = Lines ? MatrixView<float>{scores, stride, 1} : MatrixView<float>{scores, 1, stride};
  pack_groups<Lines, false, kWeightParts<T>>(view, Lines ? lines : round_up(lines, kAmxLines), depth, to,
                                             left);
}

/// Packed tiles, of `steps` steps of K each.
struct TileOperand {
  const float* data;
  int64_t parts, steps;
};

/// c [rows, cols] = a b, or c += a b, in whole tiles, with `depth` values of K.
struct TileProduct {
  TileOperand a, b;
  int64_t rows, cols, depth;
  float* c;
  int64_t ldc;
  bool accumulate;

  int64_t steps() const { return ceil_divide(depth, kAmxDepth); }
  int64_t row_tiles() const { return ceil_divide(rows, kAmxLines); }
  int64_t col_tiles() const { return ceil_divide(cols, kAmxLines); }
  int64_t turns() const {
    return ceil_divide(row_tiles(), int64_t{2}) * ceil_divide(col_tiles(), int64_t{2}) *
           amx_turns(a.parts, steps());
  }
};

/// On a thread with AmxTiles, interleaved with the work that was scheduled.
template <size_t Streams>
HWY_INLINE void multiply_tiles(const TileProduct& x, AmxInterleave<Streams>& interleave) {
  const auto* const of_a = reinterpret_cast<const bfloat16*>(x.a.data);
  const auto* const of_b = reinterpret_cast<const bfloat16*>(x.b.data);
  AmxBlock block{};
  block.a_parts = static_cast<int>(x.a.parts), block.b_parts = static_cast<int>(x.b.parts);
  block.a_row = block.b_row = kAmxDepth;
  block.a_step = x.a.parts * kAmxTileElements, block.a_tile = x.a.steps * block.a_step;
  block.b_step = x.b.parts * kAmxTileElements, block.b_tile = x.b.steps * block.b_step;
  block.ldc = block.added_stride = x.ldc;
  block.steps = x.steps();
  interleave.attach(block);
  const int64_t row_tiles = x.row_tiles(), col_tiles = x.col_tiles();
  for (int64_t j = 0; j < col_tiles; j += 2) {
    for (int64_t i = 0; i < row_tiles; i += 2) {
      block.a = of_a + i * block.a_tile;
      block.b = of_b + j * block.b_tile;
      block.c = x.c + i * kAmxLines * x.ldc + j * kAmxLines;
      block.added = x.accumulate ? block.c : nullptr;
      block.row_tiles = static_cast<int>(HWY_MIN(row_tiles - i, int64_t{2}));
      block.col_tiles = static_cast<int>(HWY_MIN(col_tiles - j, int64_t{2}));
      amx_block(block);
    }
  }
}

HWY_INLINE void multiply_tiles(const TileProduct& x) {
  AmxInterleave<0> nothing({});
  multiply_tiles(x, nothing);
}

/// A block of scores, before their scale: keys by queries, both packed. What it writes beyond them is finite
/// if they are.
template <class T>
HWY_INLINE TileProduct score_tiles(const float* keys, const float* queries, const ScoreBlock& at,
                                   int64_t width, float* scores, int64_t stride) {
  const int64_t steps = width / kAmxDepth;
  return {{keys, kParts<T>, steps},
          {queries, kParts<T>, steps},
          at.keys,
          at.queries,
          width,
          scores,
          stride,
          false};
}

HWY_INLINE void scale_scores(const ScoreBlock& at, float scale, float* scores, int64_t stride) {
  const Tag<float> d;
  const auto factor = hn::Set(d, scale);
  for (float* row = scores; row < scores + at.keys * stride; row += stride)
    for (int64_t i = 0; i < at.queries; i += static_cast<int64_t>(hn::Lanes(d)))
      hn::StoreU(hn::Mul(hn::LoadU(d, row + i), factor), d, row + i);
}

/// to [rows, to_stride] = the transpose of x [cols, stride], in whole tiles.
HWY_INLINE void transpose_tiles(const float* x, int64_t stride, int64_t rows, int64_t cols, float* to,
                                int64_t to_stride) {
  for (int64_t i = 0; i < rows; i += kAmxLines)
    for (int64_t c = 0; c < cols; c += kAmxLines)
      transpose(x + c * stride + i, stride, to + i * to_stride + c, to_stride);
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
