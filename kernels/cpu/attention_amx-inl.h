// Products of attention's blocks in bf16 by AMX.
#if defined(HEED_KERNELS_CPU_ATTENTION_AMX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_CPU_ATTENTION_AMX_INL_H_
#undef HEED_KERNELS_CPU_ATTENTION_AMX_INL_H_
#else
#define HEED_KERNELS_CPU_ATTENTION_AMX_INL_H_
#endif

#include <heed/core/base/divide.h>
#include <heed/kernels/cpu/amx_pack-inl.h>
#include <heed/kernels/cpu/attention_plane.h>
#include <heed/kernels/cpu/gemm_backend.h>

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

/// Whether rows of `width` are whole steps of tiles, and there are tiles.
template <class T>
HWY_INLINE bool fills_tiles(int64_t width) {
  return std::is_same_v<T, bfloat16> && width % kAmxDepth == 0 && multiplies_by_tiles();
}

/// Calls amx_block for all of c [rows, cols], tiles of rows and columns; block.a, b, c and added are the
/// first's.
HWY_INLINE void amx_blocks(AmxBlock block, int64_t rows, int64_t cols) {
  const AmxTiles tiles;
  const AmxBlock first = block;
  const int64_t row_tiles = rows / kAmxLines, col_tiles = cols / kAmxLines;
  for (int64_t j = 0; j < col_tiles; j += 2) {
    for (int64_t i = 0; i < row_tiles; i += 2) {
      const int64_t row = i * kAmxLines, col = j * kAmxLines;
      block.a = first.a + i * block.a_tile;
      block.b = first.b + j * block.b_tile;
      block.c = first.c + row * block.ldc + col;
      block.added = first.added ? first.added + row * block.added_stride + col : nullptr;
      block.row_tiles = static_cast<int>(HWY_MIN(row_tiles - i, int64_t{2}));
      block.col_tiles = static_cast<int>(HWY_MIN(col_tiles - j, int64_t{2}));
      amx_block(block);
    }
  }
}

/// to [rows, cols] = scale times rows by columns, which are pairs [width / 2, stride]. Whole tiles of both.
HWY_INLINE void score_tiles(const bfloat16* rows, int64_t row_stride, int64_t count, const float* columns,
                            int64_t cols, int64_t width, float scale, int64_t stride, float* to) {
  AmxBlock block{};
  block.a = rows;
  block.a_row = row_stride, block.a_tile = kAmxLines * row_stride, block.a_step = kAmxDepth;
  block.b = reinterpret_cast<const bfloat16*>(columns);
  block.b_row = 2 * stride, block.b_tile = kAmxDepth, block.b_step = kAmxLines * block.b_row;
  block.c = to;
  block.ldc = stride;
  block.steps = width / kAmxDepth;
  block.a_parts = block.b_parts = 1;
  amx_blocks(block, count, cols);
  const Tag<float> d;
  const auto factor = hn::Set(d, scale);
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t j = 0; j < cols; j += static_cast<int64_t>(hn::Lanes(d))) {
      float* const s = to + i * stride + j;
      hn::StoreU(hn::Mul(hn::LoadU(d, s), factor), d, s);
    }
  }
}

/// out [lines, width] (+)= weights by rows, or their transpose by rows if `Transposed`: the weights, of
/// `stride`, are a block of scores, at most 64 x 64, and rows are `depth` of it. Whole tiles of lines; `room`
/// is for rows, 64 of width.
template <bool Transposed>
HWY_INLINE void weigh_tiles(const float* weights, int64_t stride, int64_t lines, const bfloat16* rows,
                            int64_t row_stride, int64_t depth, int64_t width, float* room, float* out,
                            int64_t out_stride, bool accumulate) {
  constexpr int64_t kSteps = kKeyBlock / kAmxDepth, kWeights = kParts<float> * kTilePairs;
  static_assert(kQueryBlock == kKeyBlock);
  alignas(64) float packed[kQueryBlock / kAmxLines * kSteps * kWeights];
  const int64_t steps = ceil_divide(depth, kAmxDepth);
  auto left = hn::Zero(Tag<float>());  // a NaN among the last parts is multiplied too
  for (int64_t q = 0; q < steps; ++q) {
    const int64_t first = q * kAmxDepth, k = depth - first;
    for (int64_t i = 0; i < lines; i += kAmxLines) {
      float* const to = packed + (i / kAmxLines * kSteps + q) * kWeights;
      if constexpr (Transposed)
        pack_up_to_tile<false, true>(MatrixView<float>{weights + first * stride + i, 1, stride}, kAmxLines, k,
                                     to, left);
      else
        pack_up_to_tile<true, false>(MatrixView<float>{weights + i * stride + first, stride, 1}, kAmxLines, k,
                                     to, left);
    }
    for (int64_t c = 0; c < width; c += kAmxLines)
      pack_up_to_tile<false, false>(MatrixView<bfloat16>{rows + first * row_stride + c, 1, row_stride},
                                    kAmxLines, k, room + (c / kAmxLines * kSteps + q) * kTilePairs, left);
  }
  AmxBlock block{};
  block.a = reinterpret_cast<const bfloat16*>(packed);
  block.a_row = kAmxDepth, block.a_step = 2 * kWeights, block.a_tile = kSteps * block.a_step;
  block.b = reinterpret_cast<const bfloat16*>(room);
  block.b_row = kAmxDepth, block.b_step = kAmxTileElements, block.b_tile = kSteps * block.b_step;
  block.c = out;
  block.ldc = block.added_stride = out_stride;
  block.added = accumulate ? out : nullptr;
  block.steps = steps;
  block.a_parts = kAmxParts, block.b_parts = 1;
  amx_blocks(block, lines, width);
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
