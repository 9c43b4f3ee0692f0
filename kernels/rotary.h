// Rotary positions: pairs of columns of queries and keys turned by angles that grow with the position (Su et
// al., arXiv 2104.09864). Contract for both devices.
#pragma once

#include <cstdint>

#include <heed/core/base/cost.h>
#include <heed/core/base/dtype.h>
#include <heed/kernels/declare.h>
#include <heed/kernels/wrong_index.h>

namespace heed {

/// Which columns of a head make a pair. half: i and i + rotated / 2, as in GPT-NeoX and in Llama's published
/// files; interleaved: 2 i and 2 i + 1, as in GPT-J and the paper.
enum class RotaryPairing { half, interleaved };

}  // namespace heed

namespace heed::kernels {

/// Turns the first `rotated` columns of the first `rotated_heads` heads of each row; copies all others. With
/// p(c) the partner of column c of a head, and t the table's row for the position:
///   y[c] (+)= x[c] * t[0][c] + x[p(c)] * t[1][c]
/// The gradient is the same with t[1] negated, `inverse`. A position outside the table is a WrongIndex: the
/// turned columns of its row become NaN on CUDA.
template <class T>
struct Rotary {
  const T* x;                     // [rows, heads, width]
  const int64_t* positions;       // [rows]
  const accumulator_t<T>* table;  // [entries, 2, rotated]: the factor of a column, and that of its partner
  T* y;                           // [rows, heads, width]
  int64_t rows, heads, rotated_heads, width, rotated, entries;  // rotated <= width, even
  RotaryPairing pairing;
  bool inverse, accumulate;

  Cost cost() const { return bytes_moved<T>((accumulate ? 3 : 2) * rows * heads * width); }
};

/// IndexError for the first position that is not in the table. For the CPU.
inline void check_positions(const int64_t* positions, int64_t rows, int64_t entries) {
  for (int64_t row = 0; row < rows; ++row)
    check_index(IndexUse::rotary_position, positions[row], row, entries);
}

}  // namespace heed::kernels

HEED_KERNEL(rotary, Rotary);
