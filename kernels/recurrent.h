// One layer of a recurrent network in one direction, over all time steps. Contract for both devices.
//
// LSTM (Hochreiter and Schmidhuber, 1997, with the forget gate of Gers et al., 2000) and GRU (Cho et al.,
// arXiv 1406.1078, with the reset after the product, as in cuDNN and PyTorch). With x the input product's
// part of a gate and p the hidden one's with its bias:
//
//   LSTM  i, f, o = sigmoid(x + p), g = tanh(x_g + p_g)      c = f c' + i g,  h = o tanh(c)
//   GRU   r, z = sigmoid(x + p),    n = tanh(x_n + r p_n)    h = (1 - z) n + z h'
#pragma once

#include <cstdint>

#include <heed/core/base/cost.h>
#include <heed/core/base/dtype.h>
#include <heed/kernels/declare.h>

namespace heed {

enum class CellKind { lstm, gru };

/// Gates of a cell, stacked in PyTorch's order: i, f, g, o or r, z, n.
constexpr int64_t gate_count(CellKind kind) { return kind == CellKind::lstm ? 4 : 3; }

}  // namespace heed

namespace heed::kernels {

/// What the forward keeps of a row and unit: i, f, g, o, or r, z, n and p_n.
inline constexpr int64_t kKeptGates = 4;

/// The sequences by rank: the longest first. At step t those of ranks 0 … active[t] - 1 are left, and the row
/// of rank i is the t-th of its rows, or of these in reverse order.
struct RecurrentRows {
  const int64_t* first;   // [count], of the device
  const int64_t* length;  // [count], of the device
  const int64_t* active;  // [steps], of the host; falls, at least 1
  int64_t count, steps;
  bool reverse;
};

template <class T>
struct RecurrentForward {
  CellKind kind;
  RecurrentRows rows;
  const T* gates;        // [.., G * width]: x W_ihᵀ + b_ih
  const T* weight;       // [G * width, width]: W_hh
  const T* bias;         // [G * width]: b_hh, or null
  T* h;                  // [count, width] by rank: the state before all steps; becomes that after them
  T* c;                  // the same for the LSTM's cells, else null
  T* y;                  // [.., width]: h of each row that a sequence has
  T* cells;              // [.., width]: c of each, for an LSTM's backward; null if there is none
  T* kept;               // [.., 4 * width], for the backward; null if there is none
  int64_t total, width;  // total: rows of all sequences

  Cost cost() const {
    const int64_t gates_width = gate_count(kind) * width;
    return Cost{2.0 * static_cast<double>(total * gates_width * width), 0} +
           bytes_moved<T>(total * (gates_width + width * (kept ? 6 : 1)));
  }
};

template <class T>
struct RecurrentBackward {
  CellKind kind;
  RecurrentRows rows;
  const T* gy;                // [.., width]; null: 0
  const T *y, *cells, *kept;  // the forward's; cells null for a GRU
  const T *h0, *c0;           // [count, width] by rank: the states before all steps; c0 null for a GRU
  const T* weight;            // [G * width, width]
  accumulator_t<T>* gh;       // [count, width] by rank: the gradient of h after all steps; becomes that of h0
  accumulator_t<T>* gc;       // the same of the LSTM's c, else null
  T* ggates;                  // [.., G * width]
  T* gproduct;                // [.., G * width]: of p. Null for an LSTM, where it is ggates
  T* previous;                // [.., width]: the h before each row
  int64_t total, width;

  Cost cost() const {
    const int64_t gates_width = gate_count(kind) * width;
    return Cost{2.0 * static_cast<double>(total * gates_width * width), 0} +
           bytes_moved<T>(total * (gates_width + 7 * width));
  }
};

}  // namespace heed::kernels

HEED_KERNEL(recurrent_forward, RecurrentForward);
HEED_KERNEL(recurrent_backward, RecurrentBackward);
