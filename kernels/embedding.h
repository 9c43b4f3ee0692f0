// Token embedding, scaled, with positions and dropout in the same pass. Contract for both devices.
#pragma once

#include <cstdint>

#include <heed/core/base/cost.h>
#include <heed/core/base/dtype.h>
#include <heed/core/base/philox.h>
#include <heed/kernels/declare.h>
#include <heed/kernels/wrong_index.h>

namespace heed {

/// The id of a row that holds no token (a gap in a dense batch): its embedding is zero and it has no
/// gradient.
inline constexpr int64_t kNoToken = -1;

}  // namespace heed

namespace heed::kernels {

/// An id outside [0, vocabulary) other than kNoToken, or a position outside [0, positions), is a WrongIndex:
/// its row becomes NaN on CUDA.
template <class T>
struct EmbeddingForward {       // y = dropout(scale * weight[id] + position[position_id])
  const int64_t* ids;           // [rows]
  const T* weight;              // [vocabulary, cols]
  const T* position;            // [positions, cols] or null
  const int64_t* position_ids;  // [rows]; null if position is
  Dropout dropout;              // element number row * cols + column
  double scale;
  T* y;  // [rows, cols]
  int64_t rows, cols, vocabulary, positions;

  Cost cost() const { return bytes_moved<T>((position ? 3 : 2) * rows * cols); }
};

template <class T>
struct EmbeddingBackward {      // each table row sums its gradients in the order of the rows
  const T* gy;                  // [rows, cols]
  const int64_t* ids;           // [rows]
  const int64_t* position_ids;  // [rows]; null if there are no positions
  Dropout dropout;
  double scale;
  int64_t padding_id;           // this id's row gets no gradient; kNoToken if there is none such
  accumulator_t<T>* gweight;    // [vocabulary, cols]; null if not wanted
  accumulator_t<T>* gposition;  // [positions, cols]; null if not wanted
  bool accumulate_weight, accumulate_position;
  int64_t rows, cols, vocabulary, positions;

  Cost cost() const {  // a table that is not added to is written whole
    const auto table = [&](const accumulator_t<T>* to, int64_t entries, bool accumulate) {
      return to ? (accumulate ? 2 * (rows < entries ? rows : entries) : entries) : 0;
    };
    return bytes_moved<T>(rows * cols) +
           bytes_moved<accumulator_t<T>>(cols * (table(gweight, vocabulary, accumulate_weight) +
                                                 table(gposition, positions, accumulate_position)));
  }
};

/// IndexError for the first id or position that the forward cannot look up. For the CPU.
inline void check_ids(const int64_t* ids, const int64_t* position_ids, int64_t rows, int64_t vocabulary,
                      int64_t positions) {
  for (int64_t row = 0; row < rows; ++row) {
    if (ids[row] == kNoToken) continue;
    check_index(IndexUse::embedding_id, ids[row], row, vocabulary);
    if (position_ids != nullptr) check_index(IndexUse::embedding_position, position_ids[row], row, positions);
  }
}

}  // namespace heed::kernels

HEED_KERNEL(embedding_forward, EmbeddingForward);
HEED_KERNEL(embedding_backward, EmbeddingBackward);
