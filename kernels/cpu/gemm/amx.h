// Blocks of products by the tiles of AMX, and the same bits from a plain loop where the processor has none.
#pragma once

#include <cstdint>

#include <heed/core/base/dtype.h>
#include <heed/core/base/function_ref.h>

namespace heed::cpu {

constexpr int64_t kAmxLines = 16;                            // rows of A or columns of B in a tile
constexpr int64_t kAmxDepth = 32;                            // values of K in a tile
constexpr int64_t kAmxTileElements = kAmxLines * kAmxDepth;  // bf16 of a packed tile
constexpr int64_t kAmxParts = 3;                             // bf16 whose sum is a float
constexpr int64_t kAmxPartPairs = 6;                         // products of parts for one of floats
constexpr int64_t kAmxFewParts = 2;                          // and to 16 bits of it

/// Turns that a block of as many steps of K gives to interleaved work.
constexpr int64_t amx_turns(int64_t a_parts, int64_t steps) {
  return a_parts == kAmxParts ? kAmxPartPairs * steps : steps;
}

/// Keeps the tiles of the calling thread ready for amx_block. Without AMX it does nothing.
class AmxTiles {
 public:
  AmxTiles();
  ~AmxTiles();
  AmxTiles(const AmxTiles&) = delete;
  AmxTiles& operator=(const AmxTiles&) = delete;
};

/// c = a b + added for one or two tiles of rows by one or two of columns. Strides count elements.
struct AmxBlock {
  /// Rows of 32 values of K: a_row between rows, a_tile between tiles of rows, a_step between steps of K.
  const bfloat16* a;
  int64_t a_row, a_tile, a_step;
  /// Rows of pairs: row p has the values 2 p and 2 p + 1 of K of each column; strides likewise, b_tile
  /// between tiles of columns.
  const bfloat16* b;
  int64_t b_row, b_tile, b_step;
  float* c;
  int64_t ldc;
  const float* added;  // null for nothing
  int64_t added_stride;
  int64_t steps;
  int row_tiles, col_tiles;
  /// 1 and 1, kAmxParts and kAmxParts, or kAmxFewParts and 1 or 1 and kAmxFewParts: tiles of an operand in
  /// parts are that many packed ones, one after the other, which add up to it. Products below the precision
  /// of a float are left out.
  int a_parts, b_parts;
  /// Interleaved work, called between tile multiplications turns() times at most; empty for none.
  FunctionRef<void()> interleaved = {};

  int64_t turns() const { return amx_turns(a_parts, steps); }
};

/// On a thread with AmxTiles. Subnormal numbers are zero to it.
void amx_block(const AmxBlock& block);

/// The same bits on any processor.
void plain_amx_block(const AmxBlock& block);

}  // namespace heed::cpu
