// The pieces of a widely copied way to write a Transformer, as it is: what it gets wrong is what the tests
// here show. Tensors are [sequences, length, width], a mask is true where attention is allowed.
#pragma once

#include <cmath>
#include <utility>
#include <vector>

#include <heed/core/ops.h>
#include <heed/data/pair_batch.h>
#include <heed/nn/attention/position.h>
#include <heed/nn/layers/linear.h>

namespace heed::test::plain {

/// Four linear layers; returns the output and the weights.
struct MultiHeadAttention {
  int64_t d_model, heads;
  double dropout;
  nn::Linear w_q{d_model, d_model}, w_k{d_model, d_model}, w_v{d_model, d_model}, w_o{d_model, d_model};

  std::pair<Tensor, Tensor> operator()(const Tensor& query, const Tensor& key, const Tensor& value,
                                       const Tensor& mask = {}) const {
    const int64_t batch = query.size(0), length = query.size(1);  // the query's length, for keys too
    const auto split = [&](const Tensor& x) {
      return x.reshape({batch, length, heads, d_model / heads}).transpose(1, 2);
    };
    const Tensor q = split(w_q(query)), k = split(w_k(key)), v = split(w_v(value));
    Tensor scores = matmul(q, k.transpose(2, 3)) / std::sqrt(static_cast<double>(d_model / heads));
    if (mask.defined()) scores = masked_fill(scores, logical_not(mask), -1e9);
    const Tensor weights = heed::dropout(softmax(scores), {.p = dropout});
    return {w_o(matmul(weights, v).transpose(1, 2).reshape({batch, length, d_model})), weights};
  }
};

/// Sines on even columns, cosines on odd ones, for max_len positions and no more.
struct PositionalEncoding {
  Tensor table;

  PositionalEncoding(int64_t d_model, int64_t max_len) : table(zeros({max_len, d_model})) {
    const Tensor position = arange(0, max_len).to(DType::f32).reshape({max_len, 1});
    std::vector<float> rates;
    for (int64_t i = 0; i < d_model; i += 2)
      rates.push_back(std::exp(static_cast<float>(i) * -std::log(10000.0f) / static_cast<float>(d_model)));
    const Tensor angle = position * tensor(rates, {1, static_cast<int64_t>(rates.size())});
    for (int64_t i = 0; i < angle.size(1); ++i) {
      table.select(1, 2 * i).copy_(sin(angle.select(1, i)));
      table.select(1, 2 * i + 1).copy_(cos(angle.select(1, i)));  // an odd width has no such column
    }
  }
  Tensor operator()(const Tensor& x) const { return x + table.slice(0, 0, x.size(1)); }
};

/// Padding of the query rows, and the causal triangle: [sequences, 1, length, length].
inline Tensor target_mask(const Tensor& ids) {
  const int64_t batch = ids.size(0), length = ids.size(1);
  const Tensor valid = not_equal(ids, zeros_like(ids)).reshape({batch, 1, length, 1});
  const Tensor causal = greater(tril(ones({length, length})), zeros({length, length}));
  return logical_and(valid, causal.reshape({1, 1, length, length}));
}

/// A batch as a loader without a collate function makes it: rows on top of each other.
inline Tensor batch_of(const std::vector<data::TokenIds>& sequences) {
  std::vector<Tensor> rows;
  for (const data::TokenIds& s : sequences) rows.push_back(tensor(s, {static_cast<int64_t>(s.size())}, kCpu));
  return stack(rows, 0);
}

}  // namespace heed::test::plain
