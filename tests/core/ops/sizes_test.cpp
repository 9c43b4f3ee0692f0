// Gradients of rows that fill no vector, no cache line and no block: 0, 1, 31, 32, 33, 1025 and 4099 columns,
// against central differences in f64.
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <heed/core/attention.h>
#include <heed/core/ops.h>

#include "op_check.h"

namespace heed::test {
namespace {

// Of two matrices [2, columns] and a row [columns].
using Function = std::function<Tensor(const Tensor& x, const Tensor& y, const Tensor& row)>;

class Sizes : public ::testing::TestWithParam<int64_t> {
 protected:
  int64_t columns() const { return GetParam(); }

  // With gradients of the first `count` of x, y and row.
  void check(const std::string& name, size_t count, const Function& function) const {
    const Tensor x = normal({2, columns()}, 1), y = normal({2, columns()}, 2), row = normal({columns()}, 3);
    Tensors leaves{x, y, row};
    leaves.resize(count);
    for (const Tensor& leaf : leaves) leaf.set_requires_grad();
    check_gradients(concat(name, " of ", columns()), leaves, [&] { return Tensors{function(x, y, row)}; });
  }
};

INSTANTIATE_TEST_SUITE_P(Columns, Sizes, ::testing::Values(0, 1, 31, 32, 33, 1025, 4099));

TEST_P(Sizes, ElementByElement) {
  check("add", 3, [](auto& x, auto& y, auto& row) { return x + y * row; });
  check("divide", 2, [](auto& x, auto& y, auto&) { return x / (y * y + 1.0); });
  check("maximum", 2, [](auto& x, auto& y, auto&) { return maximum(x, y); });
  check("exp", 1, [](auto& x, auto&, auto&) { return exp(x); });
  check("tanh", 1, [](auto& x, auto&, auto&) { return tanh(x); });
  check("relu", 1, [](auto& x, auto&, auto&) { return relu(x); });
  check("gelu", 1, [](auto& x, auto&, auto&) { return gelu(x); });
  check("gelu_tanh", 1, [](auto& x, auto&, auto&) { return gelu_tanh(x); });
  check("silu", 1, [](auto& x, auto&, auto&) { return silu(x); });
  check("gated", 2, [](auto& x, auto& y, auto&) { return gated(cat({x, y}, -1), Activation::silu); });
  check("dropout", 1, [](auto& x, auto&, auto&) {
    Generator generator(4);
    return dropout(x, {.p = 0.4, .generator = &generator});
  });
  check("residual dropout", 2, [](auto& x, auto& y, auto&) {
    Generator generator(5);
    return residual_dropout(x, y, {.p = 0.4, .generator = &generator});
  });
}

TEST_P(Sizes, AlongTheRow) {
  for (const int64_t axis : {0, 1}) {
    check(concat("sum along ", axis), 1, [&](auto& x, auto&, auto&) { return sum(x, {.axes = {axis}}); });
    check(concat("logsumexp along ", axis), 1,
          [&](auto& x, auto&, auto&) { return logsumexp(x, {.axes = {axis}}); });
    check(concat("cumsum along ", axis), 1, [&](auto& x, auto&, auto&) { return cumsum(x, axis); });
    check(concat("softmax along ", axis), 1, [&](auto& x, auto&, auto&) { return softmax(x, axis); });
    check(concat("log_softmax along ", axis), 1, [&](auto& x, auto&, auto&) { return log_softmax(x, axis); });
    check(concat("flip along ", axis), 2, [&](auto& x, auto& y, auto&) {
      return cat({flip(x, axis), y}, axis);
    });
    check(concat("slice along ", axis), 1,
          [&](auto& x, auto&, auto&) { return x.slice(axis, 0, x.size(axis), 2).transpose(0, 1); });
  }
  if (columns() == 0) return;  // nothing to take the largest of, or to normalise
  check("max", 1, [](auto& x, auto&, auto&) { return max(x, {.axes = {1}}); });
  check("mean", 1, [](auto& x, auto&, auto&) { return mean(x); });
  check("norm", 1, [](auto& x, auto&, auto&) { return norm(x, {.axes = {1}}); });
  check("layer_norm", 3, [](auto& x, auto& y, auto& row) { return layer_norm(x, row) + y; });
  check("residual_layer_norm", 3,
        [](auto& x, auto& y, auto& row) { return residual_layer_norm(x, y, row, {}).normed; });
  check("cross_entropy", 1, [](auto& x, auto&, auto&) {
    return cross_entropy(x, tensor<int64_t>({0, x.size(1) - 1}), {.label_smoothing = 0.1});
  });
}

TEST_P(Sizes, Products) {
  check("x yᵀ", 2, [](auto& x, auto& y, auto&) { return matmul(x, y.transpose(0, 1)); });
  check("xᵀ y row", 3,
        [](auto& x, auto& y, auto& row) { return matmul(matmul(x.slice(1, 0, 3).transpose(0, 1), y), row); });
  check("linear over columns", 3, [](auto& x, auto& y, auto& row) {
    return linear(x, cat({y, row.unsqueeze(0)}, 0), {}, {.activation = Activation::gelu});
  });
  check("linear to columns", 3, [](auto& x, auto& y, auto& row) {
    return linear(y.slice(1, 0, std::min<int64_t>(y.size(1), 2)).contiguous(),
                  x.transpose(0, 1).slice(1, 0, std::min<int64_t>(y.size(1), 2)).contiguous(), row);
  });
}

TEST_P(Sizes, TablesAndTokens) {
  const Tensor ids = tensor<int64_t>({1, 0, 1, 1});
  check("embedding", 2, [&](auto& x, auto& y, auto&) {
    Generator generator(6);
    return embedding(
        ids, x, {.scale = 3, .position = y, .position_ids = ids, .dropout = 0.2, .generator = &generator});
  });
  check("index_select", 1, [&](auto& x, auto&, auto&) { return index_select(x, ids); });
  check("where", 2, [](auto& x, auto& y, auto&) { return where(greater(x.detach(), y.detach()), x, y * y); });
  // Sequences as long as the row: x, y are [columns, 2] queries and keys of one sequence.
  if (columns() > 1025) return;
  const Segments segments = Segments::dense(1, columns());
  for (const Visibility& rule : {Visibility{}, Visibility{Causal::top_left}})
    check("attention", 2, [&](auto& x, auto& y, auto&) {
      const Tensor q = x.transpose(0, 1).contiguous(), k = y.transpose(0, 1).contiguous();
      return attention(q, k, q * k, segments, {.heads = 1, .visibility = rule});
    });
}

}  // namespace
}  // namespace heed::test
