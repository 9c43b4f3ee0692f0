#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include <heed/core/ops.h>
#include <heed/core/ops/common.h>
#include <heed/core/recurrent.h>
#include <heed/core/runtime/dispatch.h>
#include <heed/kernels/linear.h>

namespace heed {
namespace {

constexpr const char* kName = "recurrent";

/// The sequences in order of length, and which of them are left at each step.
struct Ranks {
  Tensor order, rank;           // i64 [count]: the sequence of each rank, the rank of each sequence
  Tensor rows;                  // i64 [2, count]: first row and length of each rank
  std::vector<int64_t> active;  // at each step
  int64_t count, total;

  kernels::RecurrentRows view(bool reverse) const {
    return {.first = rows.data<int64_t>(),
            .length = rows.data<int64_t>() + count,
            .active = active.data(),
            .count = count,
            .steps = static_cast<int64_t>(active.size()),
            .reverse = reverse};
  }
};

std::shared_ptr<const Ranks> rank_sequences(const Segments& segments, Device device) {
  const int64_t count = segments.count();
  const size_t size = static_cast<size_t>(count);
  std::vector<int64_t> order(size), rank(size), rows(2 * size);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return segments.query_length(a) > segments.query_length(b); });
  std::vector<int64_t> active(count > 0 ? static_cast<size_t>(segments.query_length(order[0])) : 0);
  int64_t total = 0;
  for (size_t i = 0; i < size; ++i) {
    rank[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
    rows[i] = segments.query_first(order[i]);
    const int32_t length = segments.query_length(order[i]);
    rows[size + i] = length;
    total += length;
    std::fill_n(active.begin(), length, static_cast<int64_t>(i) + 1);
  }
  return std::make_shared<const Ranks>(Ranks{tensor(order, {count}, device), tensor(rank, {count}, device),
                                             tensor(rows, {2, count}, device), std::move(active), count,
                                             total});
}

struct RecurrentClosure {
  CellKind kind;
  bool reverse;
  std::shared_ptr<const Ranks> ranks;
  Saved weight, y;
  Tensor cells, kept, h0, c0;  // our own, which nobody else sees; states by rank

  /// The gradient of a final state by rank, in the type of sums.
  Tensor state_gradient(const Tensor& g) const {
    if (!g.defined()) return zeros(h0.shape(), accumulator_options(h0));
    return index_select(g, ranks->order).to(accumulator_options(h0).dtype);
  }

  void operator()(const GradIn& gy, GradOut& gx) const {
    const Tensor matrix = *weight, output = *y, g = contiguous_or_undefined(gy[0]);
    const int64_t rows = output.size(0), width = output.size(1), all = gate_count(kind) * width;
    const bool lstm = kind == CellKind::lstm, gaps = ranks->total < rows;
    const auto make = [&](int64_t cols) {
      const TensorOptions options = output.options();
      return gaps ? zeros({rows, cols}, options) : empty({rows, cols}, options);
    };
    const Tensor gh = state_gradient(gy[1]), gc = lstm ? state_gradient(gy[2]) : Tensor();
    const Tensor ggates = make(all), gproduct = lstm ? ggates : make(all), previous = make(width);
    const GradSlot to_weight = accumulator_if_wanted(gx, 1), to_bias = accumulator_if_wanted(gx, 2);
    visit_floating(output.dtype(), kName, [&]<class T>() {
      using A = accumulator_t<T>;
      HEED_DISPATCH(output.device(), recurrent_backward,
                    kernels::RecurrentBackward<T>{.kind = kind,
                                                  .rows = ranks->view(reverse),
                                                  .gy = data_or_null<T>(g),
                                                  .y = output.data<T>(),
                                                  .cells = data_or_null<T>(cells),
                                                  .kept = kept.data<T>(),
                                                  .h0 = h0.data<T>(),
                                                  .c0 = data_or_null<T>(c0),
                                                  .weight = matrix.data<T>(),
                                                  .gh = gh.data<A>(),
                                                  .gc = data_or_null<A>(gc),
                                                  .ggates = ggates.data<T>(),
                                                  .gproduct = lstm ? nullptr : gproduct.data<T>(),
                                                  .previous = previous.data<T>(),
                                                  .total = ranks->total,
                                                  .width = width});
      // The weight's gradient is one product over all steps.
      HEED_DISPATCH(output.device(), linear_backward,
                    kernels::LinearBackward<T>{.g = gproduct.data<T>(),
                                               .gbias = data_or_null<A>(to_bias.tensor),
                                               .accumulate_bias = to_bias.accumulate,
                                               .x = previous.data<T>(),
                                               .gweight = data_or_null<A>(to_weight.tensor),
                                               .accumulate_weight = to_weight.accumulate,
                                               .weight = nullptr,
                                               .gx = nullptr,
                                               .accumulate_x = false,
                                               .rows = rows,
                                               .in = width,
                                               .out = all});
    });
    if (gx.wants(0)) gx.add(0, ggates);
    if (gx.wants(3)) gx.add(3, index_select(gh, ranks->rank));
    if (lstm && gx.wants(4)) gx.add(4, index_select(gc, ranks->rank));
  }
};

void check(CellKind kind, const Tensor& gates, const Tensor& weight, const Segments& segments,
           const RecurrentOptions& options) {
  const int64_t count = gate_count(kind);
  check_floating(gates, kName);
  HEED_CHECK(weight.rank() == 2 && weight.shape()[0] == count * weight.shape()[1] && weight.shape()[1] > 0,
             ShapeError, kName, ": weight is ", weight.shape(), ", expected [", count, " hidden, hidden]");
  const int64_t width = weight.shape()[1], all = count * width;
  HEED_CHECK(gates.rank() == 2 && gates.shape()[1] == all, ShapeError, kName, ": gates are ", gates.shape(),
             ", expected [rows, ", all, "] for a weight of ", weight.shape());
  check_same_kind(gates, weight, kName);
  check_parameter(options.bias, "bias", {all}, gates, kName);
  const Shape state{segments.count(), width};
  check_parameter(options.hidden, "hidden", state, gates, kName);
  check_parameter(options.cell, "cell", state, gates, kName);
  HEED_CHECK(kind == CellKind::lstm || !options.cell.defined(), ConfigError, kName,
             ": a GRU has no cell state");
  HEED_CHECK(segments.query_rows_end() <= gates.shape()[0], ShapeError, kName, ": the segments end at row ",
             segments.query_rows_end(), " of ", gates.shape()[0]);
}

}  // namespace

RecurrentStates recurrent(CellKind kind, const Tensor& gates, const Tensor& weight, const Segments& segments,
                          const RecurrentOptions& options) {
  check(kind, gates, weight, segments, options);
  const bool lstm = kind == CellKind::lstm;
  const auto ranks = rank_sequences(segments, gates.device());
  const bool recorded = needs_grad({gates, weight, options.bias, options.hidden, options.cell});
  const int64_t rows = gates.size(0), width = weight.size(1);
  const auto by_rank = [&](const Tensor& state) {
    return state.defined() ? index_select(state.detach(), ranks->order)
                           : zeros({ranks->count, width}, gates.options());
  };
  const auto kept_if = [&](bool wanted, int64_t cols) {
    return wanted ? empty({rows, cols}, gates.options()) : Tensor();
  };
  const Tensor h = by_rank(options.hidden), c = lstm ? by_rank(options.cell) : Tensor();
  const Tensor h0 = recorded ? h.clone() : Tensor(), c0 = recorded && lstm ? c.clone() : Tensor();
  const Tensor cells = kept_if(recorded && lstm, width),
               kept = kept_if(recorded, kernels::kKeptGates * width);
  const Tensor y =
      ranks->total < rows ? zeros({rows, width}, gates.options()) : empty({rows, width}, gates.options());
  const Contiguous input(gates), matrix(weight), shift(options.bias);
  visit_floating(gates.dtype(), kName, [&]<class T>() {
    HEED_DISPATCH(gates.device(), recurrent_forward,
                  kernels::RecurrentForward<T>{.kind = kind,
                                               .rows = ranks->view(options.reverse),
                                               .gates = input->data<T>(),
                                               .weight = matrix->data<T>(),
                                               .bias = data_or_null<T>(*shift),
                                               .h = h.data<T>(),
                                               .c = data_or_null<T>(c),
                                               .y = y.data<T>(),
                                               .cells = data_or_null<T>(cells),
                                               .kept = data_or_null<T>(kept),
                                               .total = ranks->total,
                                               .width = width});
  });
  RecurrentStates states{y, index_select(h, ranks->rank), lstm ? index_select(c, ranks->rank) : Tensor()};
  if (!recorded) return states;
  RecurrentClosure backward{kind, options.reverse, ranks, save(*matrix), save(y), cells, kept, h0, c0};
  if (lstm) {
    record(kName, {gates, weight, options.bias, options.hidden, options.cell},
           {states.output, states.hidden, states.cell}, std::move(backward));
  } else {
    record(kName, {gates, weight, options.bias, options.hidden}, {states.output, states.hidden},
           std::move(backward));
  }
  return states;
}

}  // namespace heed
