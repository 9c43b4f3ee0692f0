// Attention by its definition, for devices without fused kernels and for its scores.
#include <algorithm>
#include <cmath>

#include <heed/core/attention.h>
#include <heed/core/ops.h>
#include <heed/core/ops/attention/attention_call.h>
#include <heed/core/ops/common.h>
#include <heed/kernels/embedding.h>

namespace heed {
namespace {

/// One sequence: its rows, and what its queries and keys are to each other.
struct Sequence {
  int64_t number, queries, keys, query_first, key_first;
  const AttentionContext& call;

  Sequence(const AttentionContext& call, int64_t number)
      : number(number),
        queries(call.segments.query_length(number)),
        keys(call.segments.key_length(number)),
        query_first(call.segments.query_first(number)),
        key_first(call.segments.key_first(number)),
        call(call) {}

  // f(query, key) for all pairs: [queries, keys].
  template <class T, class F>
  Tensor pairs(Device device, const F& f) const {
    const Tensor y = empty({queries, keys}, {dtype_of<T>(), kCpu});
    T* next = y.data<T>();
    for (int64_t q = 0; q < queries; ++q)
      for (int64_t k = 0; k < keys; ++k) *next++ = f(q, k);
    return y.to(device);
  }

  int64_t distance(int64_t q, int64_t k) const { return k - call.visibility.diagonal(q, queries, keys); }
};

// Rows of x [rows, heads * width] as [heads, count, width] in the dtype of sums.
Tensor heads_of(const Tensor& x, int64_t first, int64_t count, int64_t heads) {
  return x.slice(0, first, first + count)
      .to(accumulator_options(x).dtype)
      .reshape({count, heads, x.size(1) / heads})
      .permute({1, 0, 2});
}

// The key heads [key_heads, ..] as often as queries read them.
Tensor shared_heads(const Tensor& x, const AttentionContext& call) {
  const int64_t each = call.heads / call.key_heads;
  if (each == 1) return x;
  return x.unsqueeze(1)
      .expand({call.key_heads, each, x.size(1), x.size(2)})
      .reshape({call.heads, x.size(1), x.size(2)});
}

// The part of a tensor that broadcasts to [sequences, heads, queries, keys], and may be larger on the last
// two.
Tensor part_of(const Tensor& x, const Sequence& at) {
  Tensor part = x;
  while (part.rank() < 4) part = part.unsqueeze(0);
  part = part.select(0, part.size(0) == 1 ? 0 : at.number);
  if (part.size(1) != 1) part = part.slice(1, 0, at.queries);
  if (part.size(2) != 1) part = part.slice(2, 0, at.keys);
  return part;
}

Tensor visible_pairs(const Sequence& at, const AttentionOptions& options, Device device) {
  const VisibilityView view(at.call.visibility, at.call.blocks.view(kCpu));
  const Tensor seen =
      at.pairs<bool>(device, [&](int64_t q, int64_t k) { return view.sees(q, k, at.queries, at.keys); });
  const Tensor& mask = options.mask.visible();
  return mask.defined() ? logical_and(seen, part_of(mask, at)) : seen;
}

Tensor biased(const Tensor& scores, const Sequence& at, const AttentionOptions& options) {
  const DType dtype = scores.dtype();
  Tensor y = scores;
  if (const Tensor& bias = options.mask.bias(); bias.defined()) y = y + part_of(bias, at).to(dtype);
  if (options.alibi_slopes.defined()) {
    const Tensor distance =
        at.pairs<int64_t>(y.device(), [&](int64_t q, int64_t k) { return std::abs(at.distance(q, k)); });
    y = y - options.alibi_slopes.to(dtype).reshape({at.call.heads, 1, 1}) * distance.to(dtype);
  }
  if (const Tensor& table = options.relative; table.defined()) {
    const int64_t limit = table.size(1) / 2;
    const Tensor entry = at.pairs<int64_t>(y.device(), [&](int64_t q, int64_t k) {
      return std::clamp(at.distance(q, k), -limit, limit) + limit;
    });
    y = y + index_select(table.to(dtype), 1, entry.reshape({at.queries * at.keys}))
                .reshape({at.call.heads, at.queries, at.keys});
  }
  return y;
}

}  // namespace

Tensor plain_scores(const Tensor& q, const Tensor& k, const AttentionContext& call,
                    const AttentionOptions& options, int64_t sequence) {
  const Sequence at(call, sequence);
  const Tensor a = heads_of(q, at.query_first, at.queries, call.heads),
               b = shared_heads(heads_of(k, at.key_first, at.keys, call.key_heads), call);
  Tensor scores = matmul(a, b.transpose(1, 2)) * call.scale;
  if (call.logit_cap > 0) scores = tanh(scores / call.logit_cap) * call.logit_cap;
  scores = biased(scores, at, options);
  return where(visible_pairs(at, options, q.device()), scores, scalar(-HUGE_VAL, scores.options()));
}

Tensor plain_attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionContext& call,
                       const AttentionOptions& options) {
  const Segments& segments = call.segments;
  std::vector<Tensor> parts;
  std::vector<int64_t> row(static_cast<size_t>(call.query_rows), kNoToken);  // of the parts, for each of q
  int64_t rows = 0;
  for (int64_t sequence = 0; sequence < segments.count(); ++sequence) {
    const Sequence at(call, sequence);
    const Tensor weights = dropout(softmax(plain_scores(q, k, call, options, sequence)),
                                   {.p = options.dropout, .generator = options.generator});
    const Tensor values = shared_heads(heads_of(v, at.key_first, at.keys, call.key_heads), call);
    parts.push_back(
        matmul(weights, values).permute({1, 0, 2}).reshape({at.queries, call.heads * call.width}));
    for (int64_t i = 0; i < at.queries; ++i) row[static_cast<size_t>(at.query_first + i)] = rows++;
  }
  if (parts.empty()) return q * 0.0;
  return index_select(cat(parts, 0), tensor(row, {call.query_rows}, q.device())).to(q.dtype());
}

}  // namespace heed
