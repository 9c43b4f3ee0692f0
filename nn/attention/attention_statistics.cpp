#include <cmath>
#include <map>

#include <heed/core/creation.h>
#include <heed/core/ops.h>
#include <heed/nn/attention/attention_statistics.h>

namespace heed::nn {
namespace {

Tensor in_f64(const Tensor& x) { return x.detach().to(kCpu).to(DType::f64); }

// Of the last two axes: rows beneath each other, and keys beside each other.
Tensor row_numbers(int64_t queries) { return arange(0, queries).view({queries, 1}); }

void check_map(const Tensor& weights, const char* what) {
  HEED_CHECK(weights.rank() >= 2 && weights.numel() > 0, ShapeError, what, ": weights are ", weights.shape(),
             ", expected [..., queries, keys]");
}

// [sequences, heads, queries, keys]
void check_heads(const Tensor& weights, const char* what) {
  HEED_CHECK(weights.rank() == 4 && weights.numel() > 0, ShapeError, what, ": weights are ", weights.shape(),
             ", expected [sequences, heads, queries, keys]");
}

// What some head looks at somewhere is no masked cell: bool [queries, keys].
Tensor visible_cells(const Tensor& weights) { return greater(max(weights, {.axes = {0, 1}}), 0); }

// How the weights differ from even ones over the keys that a query sees.
Tensor from_even(const Tensor& weights) {
  const Tensor visible = visible_cells(weights).to(DType::f64);
  return weights - visible / maximum(sum(visible, {.axes = {-1}, .keep = true}), 1);
}

// explained / total, of each head; 0 where there is nothing to explain.
Tensor part_of(const Tensor& explained, const Tensor& total) {
  return where(greater(total, 0), explained / total, 0.0);
}

Tensor sums_of_squares(const Tensor& x) { return sum(x * x, {.axes = {0, 2, 3}}); }

}  // namespace

Tensor attention_entropy(const Tensor& weights) {
  check_map(weights, "attention_entropy");
  const Tensor w = in_f64(weights);
  return sum(where(greater(w, 0), w * log(w), 0.0), {.axes = {-1}}) * (-1 / std::log(2.0));
}

Tensor attention_distance(const Tensor& weights) {
  check_map(weights, "attention_distance");
  const Tensor away = abs(arange(0, weights.size(-1)) - row_numbers(weights.size(-2))).to(DType::f64);
  return sum(in_f64(weights) * away, {.axes = {-1}});
}

Tensor attention_share(const Tensor& weights, const Tensor& pattern) {
  check_map(weights, "attention_share");
  const int64_t queries = weights.size(-2), keys = weights.size(-1);
  const bool own = weights.rank() == 4 && pattern.shape() == (Shape{weights.size(0), queries, keys});
  HEED_CHECK(pattern.dtype() == DType::boolean && (own || pattern.shape() == (Shape{queries, keys})),
             ShapeError, "attention_share: the pattern is ", pattern.shape(), " of ", pattern.dtype(),
             ", the weights ", weights.shape());
  Tensor cells = pattern.to(kCpu).to(DType::f64);
  if (own) cells = cells.view({weights.size(0), 1, queries, keys});
  const Tensor rows = sum(greater(sum(cells, {.axes = {-1}}), 0).to(DType::f64), {.axes = {-1}});
  return sum(in_f64(weights) * cells, {.axes = {-2, -1}}) / rows;
}

Tensor diagonal_pattern(int64_t queries, int64_t keys, int64_t offset) {
  return equal(arange(0, keys) - row_numbers(queries), static_cast<double>(offset));
}

Tensor mirror_pattern(int64_t queries, int64_t keys, int64_t place) {
  return equal(arange(0, keys) + row_numbers(queries), static_cast<double>(place));
}

Tensor key_pattern(int64_t queries, int64_t keys, int64_t key) {
  return equal(arange(0, keys).expand({queries, keys}), static_cast<double>(key));
}

Tensor induction_pattern(const Tensor& ids) {
  HEED_CHECK(ids.rank() == 2, ShapeError, "induction_pattern: ids are ", ids.shape(),
             ", expected [sequences, tokens]");
  const int64_t sequences = ids.size(0), tokens = ids.size(1);
  const std::vector<int64_t> id = ids.to_vector<int64_t>();
  std::vector<float> cells(static_cast<size_t>(sequences * tokens * tokens), 0.0f);
  for (int64_t n = 0; n < sequences; ++n) {
    const int64_t* const token = id.data() + n * tokens;
    float* const map = cells.data() + n * tokens * tokens;
    for (int64_t query = 1; query < tokens; ++query)
      for (int64_t key = 1; key <= query; ++key) map[query * tokens + key] = token[key - 1] == token[query];
  }
  return greater(tensor(cells, {sequences, tokens, tokens}), 0);
}

Tensor head_similarity(const Tensor& weights) {
  check_heads(weights, "head_similarity");
  const Tensor w = in_f64(weights), own = attention_entropy(w);
  std::vector<Tensor> rows;
  for (int64_t h = 0; h < w.size(1); ++h) {
    const Tensor between = attention_entropy(0.5 * (w + w.slice(1, h, h + 1)));
    const Tensor divergence = between - 0.5 * (own + own.slice(1, h, h + 1));
    rows.push_back(1 - mean(divergence, {.axes = {0, 2}}));
  }
  return stack(rows, 0);
}

Tensor explained_by_place(const Tensor& weights) {
  check_heads(weights, "explained_by_place");
  const Tensor d = from_even(in_f64(weights));
  const Tensor same = mean(d, {.axes = {0}, .keep = true}).expand(d.shape());
  return part_of(sums_of_squares(same), sums_of_squares(d));
}

Tensor explained_by_symbols(const Tensor& weights, const Tensor& query_ids, const Tensor& key_ids) {
  check_heads(weights, "explained_by_symbols");
  const int64_t sequences = weights.size(0), heads = weights.size(1), queries = weights.size(2),
                keys = weights.size(3);
  HEED_CHECK(query_ids.shape() == (Shape{sequences, queries}) && key_ids.shape() == (Shape{sequences, keys}),
             ShapeError, "explained_by_symbols: ids are ", query_ids.shape(), " and ", key_ids.shape(),
             ", the weights ", weights.shape());
  const Tensor w = in_f64(weights), deviations = from_even(w);
  const std::vector<double> d = deviations.to_vector<double>();
  const std::vector<int64_t> q = query_ids.to_vector<int64_t>(), k = key_ids.to_vector<int64_t>();
  const std::vector<int64_t> visible = visible_cells(w).to(DType::i64).to_vector<int64_t>();
  struct Group {
    double sum = 0, count = 0;
  };
  std::vector<double> explained;
  for (int64_t h = 0; h < heads; ++h) {
    std::map<std::pair<int64_t, int64_t>, Group> groups;
    for (int64_t n = 0; n < sequences; ++n)
      for (int64_t cell = 0; cell < queries * keys; ++cell) {
        if (!visible[static_cast<size_t>(cell)]) continue;
        Group& group = groups[{q[static_cast<size_t>(n * queries + cell / keys)],
                               k[static_cast<size_t>(n * keys + cell % keys)]}];
        group.sum += d[static_cast<size_t>((n * heads + h) * queries * keys + cell)];
        ++group.count;
      }
    explained.push_back(0);
    for (const auto& entry : groups)
      explained.back() += entry.second.sum * entry.second.sum / entry.second.count;
  }
  return part_of(tensor(explained, {heads}), sums_of_squares(deviations));
}

Tensor attention_rollout(TensorList layers) {
  Tensor mixed;
  for (const Tensor& weights : layers) {
    HEED_CHECK(weights.rank() == 3 && weights.size(1) == weights.size(2) &&
                   (!mixed.defined() || weights.size(1) == mixed.size(0)),
               ShapeError, "attention_rollout: weights are ", weights.shape(),
               ", expected [heads, tokens, tokens] of each layer");
    const Tensor step = 0.5 * (mean(weights, {.axes = {0}}) + eye(weights.size(1), -1, weights.options()));
    mixed = mixed.defined() ? matmul(step, mixed) : step;
  }
  HEED_CHECK(mixed.defined(), ShapeError, "attention_rollout: there are no layers");
  return mixed;
}

Tensor attention_rollout(TensorList encoder, TensorList decoder, TensorList cross) {
  HEED_CHECK(decoder.size() > 0 && decoder.size() == cross.size(), ShapeError,
             "attention_rollout: there are ", decoder.size(), " self-attentions and ", cross.size(),
             " cross-attentions of decoder layers");
  HEED_CHECK(cross[0].rank() == 3, ShapeError, "attention_rollout: the cross-attention is ", cross[0].shape(),
             ", expected [heads, targets, sources]");
  const int64_t targets = cross[0].size(1), sources = cross[0].size(2);
  const TensorOptions options = cross[0].options();
  const Tensor source = encoder.size() > 0 ? attention_rollout(encoder) : eye(sources, -1, options);
  HEED_CHECK(source.size(0) == sources, ShapeError, "attention_rollout: the encoder has ", source.size(0),
             " tokens, the cross-attention is ", cross[0].shape());
  const Tensor memory = cat({source, zeros({sources, targets}, options)}, 1);
  Tensor mixed = cat({zeros({targets, sources}, options), eye(targets, -1, options)}, 1);
  for (size_t i = 0; i < decoder.size(); ++i) {
    HEED_CHECK(cross[i].shape() == (Shape{cross[i].size(0), targets, sources}), ShapeError,
               "attention_rollout: the cross-attention is ", cross[i].shape(), " and ", cross[0].shape());
    const Tensor self = attention_rollout({decoder[i]});
    HEED_CHECK(self.size(0) == targets, ShapeError, "attention_rollout: self-attention is ",
               decoder[i].shape(), ", cross-attention ", cross[i].shape());
    mixed = 0.5 * (matmul(self, mixed) + matmul(mean(cross[i], {.axes = {0}}), memory));
  }
  return mixed;
}

}  // namespace heed::nn
