// Attention by other means: plain loops in double, and a composition of simple operations with gradients.
#pragma once

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <heed/core/attention.h>
#include <heed/core/base/philox.h>

#include "../fused_check.h"

namespace heed::test {

inline constexpr uint64_t kAttentionSeed = 4242;

/// A problem; its tensors are the inputs {q, k, v, bias, relative}, the last two possibly undefined.
struct AttentionCase {
  std::string name;
  Segments segments;
  int64_t heads = 2, key_heads = 0, width = 4;
  double scale = 0;
  double logit_cap = 0;
  Visibility visibility = {};
  Tensor blocks = {};           // of a pattern: bool, true: visible
  Tensor mask = {};             // bool, true: visible
  Shape bias = {};              // rank 0: none
  int64_t relative_limit = -1;  // -1: no table
  bool alibi = false;
  double dropout = 0;
  int64_t spare_rows = 0;  // rows after the last that the segments name

  int64_t kv_heads() const { return key_heads ? key_heads : heads; }
  int64_t query_rows() const { return segments.query_rows_end() + spare_rows; }
  int64_t key_rows() const { return segments.key_rows_end() + spare_rows; }
  double factor() const { return scale != 0 ? scale : 1 / std::sqrt(static_cast<double>(width)); }
  static float slope(int64_t head) { return std::exp2(-static_cast<float>(head + 1)); }

  Tensors inputs() const {
    return {normal({query_rows(), heads * width}, 1), normal({key_rows(), kv_heads() * width}, 2),
            normal({key_rows(), kv_heads() * width}, 3), bias.rank() ? normal(bias, 4) : Tensor(),
            relative_limit >= 0 ? normal({heads, 2 * relative_limit + 1}, 5) : Tensor()};
  }

  /// Options whose generator must outlive the call.
  AttentionOptions options(const Tensors& in, Generator& generator) const {
    Tensor slopes;
    if (alibi) {
      slopes = empty({heads});
      for (int64_t h = 0; h < heads; ++h) slopes.data<float>()[h] = slope(h);
      slopes = slopes.to(in[0].device());
    }
    return {.heads = heads,
            .key_heads = key_heads,
            .scale = scale,
            .visibility = visibility,
            .blocks = blocks.defined() ? BlockPattern(blocks) : BlockPattern(),
            .mask = in[3].defined()  ? Mask::added(in[3])
                    : mask.defined() ? Mask::allowed(mask.to(in[0].device()))
                                     : Mask(),
            .alibi_slopes = slopes,
            .relative = in[4],
            .logit_cap = logit_cap,
            .dropout = dropout,
            .generator = &generator};
  }

  bool visible(int64_t s, int64_t h, int64_t i, int64_t j) const {
    if (!visibility.visible(i, j, segments.query_length(s), segments.key_length(s))) return false;
    if (blocks.defined()) {
      const int64_t place = visibility.diagonal(i, segments.query_length(s), segments.key_length(s));
      if (place < 0 || !blocks.data<bool>()[place / 64 * blocks.size(1) + j / 64]) return false;
    }
    if (!mask.defined()) return true;
    const int64_t at[] = {s, h, i, j};
    int64_t offset = 0;
    for (int axis = 0; axis < mask.rank(); ++axis)
      if (mask.shape()[axis] > 1) offset += at[axis + 4 - mask.rank()] * mask.strides()[axis];
    return mask.data<bool>()[offset];
  }

  /// key - query on the diagonal.
  int64_t distance(int64_t s, int64_t i, int64_t j) const {
    return j - visibility.diagonal(i, segments.query_length(s), segments.key_length(s));
  }
  int64_t table_index(int64_t s, int64_t i, int64_t j) const {
    return std::clamp(distance(s, i, j), -relative_limit, relative_limit) + relative_limit;
  }

  /// What dropout multiplies a weight with.
  double kept(int64_t s, int64_t h, int64_t i, int64_t j) const {
    const Dropout drop = make_dropout(dropout, {kAttentionSeed, nullptr, 0});
    if (!drop.active()) return 1;
    const auto plane = static_cast<uint32_t>(s * heads + h);
    const uint32_t bits =
        attention_dropout_bits(drop.rng, static_cast<uint32_t>(j / 8), static_cast<uint32_t>(i), plane)
            .bits(static_cast<int>(j % 8));
    return bits >= drop.threshold ? static_cast<double>(drop.scale) : 0.0;
  }
};

/// Softmax weights before dropout of one sequence, [heads, queries, keys] in double; q and k f64.
inline Tensor reference_weights(const AttentionCase& c, const Tensors& in, int64_t s) {
  const Tensor q = in[0].contiguous(), k = in[1].contiguous();
  const int64_t queries = c.segments.query_length(s), keys = c.segments.key_length(s);
  const Tensor weights = zeros({c.heads, queries, keys}, {.dtype = DType::f64});
  for (int64_t h = 0; h < c.heads; ++h)
    for (int64_t i = 0; i < queries; ++i) {
      double* row = weights.data<double>() + (h * queries + i) * keys;
      double largest = -std::numeric_limits<double>::infinity(), total = 0;
      for (int64_t j = 0; j < keys; ++j) {
        row[j] = -std::numeric_limits<double>::infinity();
        if (!c.visible(s, h, i, j)) continue;
        const double* a = q.data<double>() + ((c.segments.query_first(s) + i) * c.heads + h) * c.width;
        const double* b =
            k.data<double>() +
            ((c.segments.key_first(s) + j) * c.kv_heads() + h * c.kv_heads() / c.heads) * c.width;
        double score = 0;
        for (int64_t d = 0; d < c.width; ++d) score += a[d] * b[d];
        score *= c.factor();
        if (c.logit_cap > 0) score = c.logit_cap * std::tanh(score / c.logit_cap);
        if (in[3].defined()) {
          const int64_t at[] = {s, h, i, j};
          int64_t offset = 0;
          for (int axis = 0; axis < in[3].rank(); ++axis)
            if (in[3].shape()[axis] > 1) offset += at[axis + 4 - in[3].rank()] * in[3].strides()[axis];
          score += in[3].data<double>()[offset];
        }
        if (in[4].defined())
          score += in[4].contiguous().data<double>()[h * (2 * c.relative_limit + 1) + c.table_index(s, i, j)];
        if (c.alibi)
          score -= static_cast<double>(c.slope(h)) * std::abs(static_cast<double>(c.distance(s, i, j)));
        row[j] = score;
        largest = std::max(largest, score);
      }
      for (int64_t j = 0; j < keys; ++j) total += row[j] = largest > -1e300 ? std::exp(row[j] - largest) : 0;
      for (int64_t j = 0; j < keys; ++j) row[j] = total > 0 ? row[j] / total : 0;
    }
  return weights;
}

inline Tensor reference_attention(const AttentionCase& c, const Tensors& in) {
  const Tensor v = in[2].contiguous();
  const Tensor out = zeros({c.query_rows(), c.heads * c.width}, {.dtype = DType::f64});
  for (int64_t s = 0; s < c.segments.count(); ++s) {
    const Tensor weights = reference_weights(c, in, s);
    const int64_t queries = weights.size(1), keys = weights.size(2);
    for (int64_t h = 0; h < c.heads; ++h)
      for (int64_t i = 0; i < queries; ++i)
        for (int64_t j = 0; j < keys; ++j) {
          const double w = weights.data<double>()[(h * queries + i) * keys + j] * c.kept(s, h, i, j);
          const double* value =
              v.data<double>() +
              ((c.segments.key_first(s) + j) * c.kv_heads() + h * c.kv_heads() / c.heads) * c.width;
          double* to = out.data<double>() + ((c.segments.query_first(s) + i) * c.heads + h) * c.width;
          for (int64_t d = 0; d < c.width; ++d) to[d] += w * value[d];
        }
  }
  return out;
}

/// One sequence and head from simple operations.
inline Tensor composed_head(const AttentionCase& c, const Tensors& in, int64_t s, int64_t h) {
  const int64_t queries = c.segments.query_length(s), keys = c.segments.key_length(s),
                key_head = h * c.kv_heads() / c.heads;
  const auto part = [&](const Tensor& x, int64_t first, int64_t count, int64_t head) {
    return x.slice(0, first, first + count).slice(1, head * c.width, (head + 1) * c.width);
  };
  const Tensor q = part(in[0], c.segments.query_first(s), queries, h);
  const Tensor k = part(in[1], c.segments.key_first(s), keys, key_head);
  const Tensor v = part(in[2], c.segments.key_first(s), keys, key_head);
  Tensor scores = matmul(q, k.transpose(0, 1)) * c.factor();
  if (c.logit_cap > 0) scores = tanh(scores / c.logit_cap) * c.logit_cap;
  if (in[3].defined()) {
    Tensor bias = in[3];
    while (bias.rank() < 4) bias = bias.unsqueeze(0);
    const int64_t at[] = {s, h}, size[] = {queries, keys};
    for (int axis = 0; axis < 4; ++axis) {
      if (bias.size(axis) == 1) continue;
      bias = axis < 2 ? bias.slice(axis, at[axis], at[axis] + 1) : bias.slice(axis, 0, size[axis - 2]);
    }
    scores = scores + bias.select(0, 0).select(0, 0);
  }
  const Tensor hidden = empty({queries, keys}, {.dtype = DType::boolean}),
               index = empty({queries, keys}, {.dtype = DType::i64}),
               alibi = zeros({queries, keys}, {.dtype = DType::f64}),
               kept = empty({queries, keys}, {.dtype = DType::f64});
  for (int64_t i = 0; i < queries; ++i)
    for (int64_t j = 0; j < keys; ++j) {
      const int64_t at = i * keys + j;
      hidden.data<bool>()[at] = !c.visible(s, h, i, j);
      index.data<int64_t>()[at] = c.relative_limit >= 0 ? c.table_index(s, i, j) : 0;
      alibi.data<double>()[at] =
          -static_cast<double>(c.slope(h)) * std::abs(static_cast<double>(c.distance(s, i, j)));
      kept.data<double>()[at] = c.kept(s, h, i, j);
    }
  if (in[4].defined()) scores = scores + index_select(in[4].select(0, h), index);
  if (c.alibi) scores = scores + alibi.to(scores.dtype());
  Tensor weights = softmax(masked_fill(scores, hidden, -std::numeric_limits<double>::infinity()));
  if (c.dropout > 0) weights = weights * kept.to(weights.dtype());
  return matmul(weights, v);
}

/// All sequences in their rows, zeros between. The segments' queries must lie in order.
inline Tensor composed_attention(const AttentionCase& c, const Tensors& in) {
  Tensors rows;
  int64_t end = 0;
  const auto zeros_up_to = [&](int64_t row) {
    if (row > end) rows.push_back(zeros({row - end, c.heads * c.width}, in[0].options()));
    end = std::max(end, row);
  };
  for (int64_t s = 0; s < c.segments.count(); ++s) {
    if (c.segments.query_length(s) == 0) continue;
    zeros_up_to(c.segments.query_first(s));
    Tensors heads;
    for (int64_t h = 0; h < c.heads; ++h) heads.push_back(composed_head(c, in, s, h));
    rows.push_back(cat(heads, 1));
    end += c.segments.query_length(s);
  }
  zeros_up_to(c.query_rows());
  if (rows.empty()) return zeros({0, c.heads * c.width}, in[0].options());
  // Every input takes part, also where no sequence reads it.
  return cat(rows, 0) + (sum(in[0]) + sum(in[1]) + sum(in[2])) * 0.0;
}

}  // namespace heed::test
