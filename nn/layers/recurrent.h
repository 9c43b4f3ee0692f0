// Recurrent networks over packed sequences.
#pragma once

#include <vector>

#include <heed/core/generator.h>
#include <heed/core/recurrent.h>
#include <heed/nn/module.h>

namespace heed::nn {

struct RecurrentConfig {
  int64_t layers = 1;
  bool bias = true;
  bool bidirectional =
      false;           // a second pass over the reversed sequence in each layer, whose result stands behind
  double dropout = 0;  // of what a layer gives the next, while training
};

/// States of all layers and directions, layer by layer: [layers * directions, sequences, hidden]. Undefined:
/// zeros.
struct RecurrentState {
  Tensor hidden = {}, cell = {};  // cell: an LSTM's
};

struct RecurrentResult {
  Tensor output;         // [rows, directions * hidden] of the last layer
  RecurrentState state;  // after each sequence's last step, of the reversed pass after its first row
};

/// Layers of one kind of cell, with PyTorch's parameters: weight_ih_l0 [G hidden, in], weight_hh_l0 [G
/// hidden, hidden], bias_ih_l0, bias_hh_l0, those of the reversed pass with the suffix _reverse. All begin
/// uniform in ±1/√hidden.
class Recurrent : public Module {
 public:
  /// ConfigError unless sizes are positive and dropout is a rate.
  Recurrent(CellKind kind, int64_t in, int64_t hidden, const RecurrentConfig& config, Generator& generator);

  /// x [rows, in], the rows of the segments' queries. Rows of no sequence give 0. ShapeError, and StateError
  /// for segments that the device alone knows.
  RecurrentResult operator()(const Tensor& x, const Segments& segments,
                             const RecurrentState& state = {}) const;

  void visit(Visitor& v) override;
  std::string describe() const override;

  const CellKind kind;
  const int64_t in, hidden;
  const RecurrentConfig config;

 private:
  struct Pass {  // one direction of one layer
    Tensor weight_ih, weight_hh, bias_ih, bias_hh;
  };
  int64_t directions() const { return config.bidirectional ? 2 : 1; }

  std::vector<Pass> passes_;  // by layer, then direction
};

/// Long short-term memory (Hochreiter and Schmidhuber, 1997).
class LSTM : public Recurrent {
 public:
  LSTM(int64_t in, int64_t hidden, const RecurrentConfig& config = {},
       Generator& generator = default_generator())
      : Recurrent(CellKind::lstm, in, hidden, config, generator) {}
};

/// Gated recurrent units (Cho et al., arXiv 1406.1078), reset after the product as in PyTorch.
class GRU : public Recurrent {
 public:
  GRU(int64_t in, int64_t hidden, const RecurrentConfig& config = {},
      Generator& generator = default_generator())
      : Recurrent(CellKind::gru, in, hidden, config, generator) {}
};

}  // namespace heed::nn
