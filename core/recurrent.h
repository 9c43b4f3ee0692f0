// Recurrent layers over packed sequences: LSTM and GRU.
#pragma once

#include <heed/core/segments.h>
#include <heed/core/tensor.h>
#include <heed/kernels/recurrent.h>

namespace heed {

struct RecurrentOptions {
  Tensor bias = {};               // [G hidden], of the hidden product
  Tensor hidden = {}, cell = {};  // [sequences, hidden]: the states before the first step; undefined: 0
  bool reverse = false;           // from each sequence's last row to its first
};

struct RecurrentStates {
  Tensor output;  // [rows, hidden]: the hidden state after each row; rows of no sequence are 0
  Tensor hidden;  // [sequences, hidden]: after the last step of each
  Tensor cell;    // the same of an LSTM's cells, else undefined
};

/// One layer in one direction over the query rows of `segments`: the formulas of kernels/recurrent.h. gates
/// [rows, G hidden] is the input's product with its bias, for all rows at once (linear); weight [G hidden,
/// hidden]; G = 4 gates in the order i, f, g, o (LSTM) or 3 in the order r, z, n (GRU). All steps share one
/// packed copy of the weight, and a step computes only the sequences that are not over. ShapeError,
/// ConfigError for a GRU's cell state, StateError for segments that the device alone knows.
[[nodiscard]] RecurrentStates recurrent(CellKind kind, const Tensor& gates, const Tensor& weight,
                                        const Segments& segments, const RecurrentOptions& options = {});

}  // namespace heed
