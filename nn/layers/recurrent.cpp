#include <cmath>

#include <heed/core/ops.h>
#include <heed/nn/layers/dropout.h>
#include <heed/nn/layers/recurrent.h>
#include <heed/nn/parameter.h>

namespace heed::nn {
namespace {

const char* type_name(CellKind kind) { return kind == CellKind::lstm ? "LSTM" : "GRU"; }

}  // namespace

Recurrent::Recurrent(CellKind kind, int64_t in, int64_t hidden, const RecurrentConfig& config,
                     Generator& generator)
    : kind(kind), in(in), hidden(hidden), config(config) {
  HEED_CHECK(in > 0 && hidden > 0 && config.layers > 0, ConfigError, type_name(kind),
             ": sizes must be positive, got in = ", in, ", hidden = ", hidden, ", layers = ", config.layers);
  check_dropout_rate(config.dropout, type_name(kind));
  const double bound = 1 / std::sqrt(static_cast<double>(hidden));
  const auto draw = [&](const Tensor& x) { uniform_(x, -bound, bound, generator); };
  const int64_t all = gate_count(kind) * hidden;
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const int64_t width = layer == 0 ? in : directions() * hidden;
    for (int64_t direction = 0; direction < directions(); ++direction) {
      Pass pass{make_parameter({all, width}, draw), make_parameter({all, hidden}, draw), {}, {}};
      if (config.bias) {
        pass.bias_ih = make_parameter({all}, draw);
        pass.bias_hh = make_parameter({all}, draw);
      }
      passes_.push_back(std::move(pass));
    }
  }
}

RecurrentResult Recurrent::operator()(const Tensor& x, const Segments& segments,
                                      const RecurrentState& state) const {
  const char* const name = type_name(kind);
  HEED_CHECK(x.rank() == 2 && x.shape()[1] == in, ShapeError, name, ": x is ", x.shape(),
             ", expected [rows, ", in, "]");
  const Shape shape{static_cast<int64_t>(passes_.size()), segments.count(), hidden};
  for (const Tensor& part : {state.hidden, state.cell})
    HEED_CHECK(!part.defined() || part.shape() == shape, ShapeError, name, ": a state is ", part.shape(),
               ", expected ", shape);
  HEED_CHECK(kind == CellKind::lstm || !state.cell.defined(), ConfigError, "GRU: it has no cell state");

  const auto of = [](const Tensor& all, size_t i) {
    return all.defined() ? all.select(0, static_cast<int64_t>(i)) : Tensor();
  };
  Tensor y = x;
  std::vector<Tensor> hiddens, cells;
  for (size_t i = 0; i < passes_.size();) {
    if (i > 0 && training() && config.dropout > 0) y = dropout(y, {.p = config.dropout});
    std::vector<Tensor> outputs;
    for (int64_t direction = 0; direction < directions(); ++direction, ++i) {
      const Pass& pass = passes_[i];
      const Tensor gates = linear(y, pass.weight_ih, pass.bias_ih);
      RecurrentStates result = recurrent(kind, gates, pass.weight_hh, segments,
                                         {.bias = pass.bias_hh,
                                          .hidden = of(state.hidden, i),
                                          .cell = of(state.cell, i),
                                          .reverse = direction == 1});
      outputs.push_back(std::move(result.output));
      hiddens.push_back(std::move(result.hidden));
      cells.push_back(std::move(result.cell));
    }
    y = outputs.size() == 1 ? outputs[0] : cat(outputs, -1);
  }
  return {y, {stack(hiddens, 0), kind == CellKind::lstm ? stack(cells, 0) : Tensor()}};
}

void Recurrent::visit(Visitor& v) {
  for (size_t i = 0; i < passes_.size(); ++i) {
    const size_t count = static_cast<size_t>(directions());
    const std::string suffix = concat("_l", i / count, i % count == 1 ? "_reverse" : "");
    v("weight_ih" + suffix, passes_[i].weight_ih);
    v("weight_hh" + suffix, passes_[i].weight_hh);
    v("bias_ih" + suffix, passes_[i].bias_ih);
    v("bias_hh" + suffix, passes_[i].bias_hh);
  }
}

std::string Recurrent::describe() const {
  return concat(type_name(kind), "(", in, ", ", hidden,
                config.layers > 1 ? concat(", layers ", config.layers) : "",
                config.bidirectional ? ", bidirectional" : "", config.bias ? "" : ", no bias",
                config.dropout > 0 ? concat(", dropout ", config.dropout) : "", ")");
}

}  // namespace heed::nn
