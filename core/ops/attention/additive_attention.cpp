#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include <heed/core/additive_attention.h>
#include <heed/core/ops.h>
#include <heed/core/ops/attention/attention_call.h>
#include <heed/core/ops/common.h>
#include <heed/kernels/embedding.h>

namespace heed {
namespace {

constexpr const char* kName = "additive_attention";
constexpr int64_t kMaxElements = int64_t{1} << 20;  // of a tanh that exists at once

/// The rows of packed sequences in a padded layout [count, longest], and back.
struct Layout {
  Tensor padded;    // i64 [count, longest]: the row of each place; kNoToken: none
  Tensor unpadded;  // i64 [rows]: the place of each row
  int64_t longest = 0;
};

template <class First, class Length>
Layout layout_of(int64_t count, int64_t rows, int64_t longest, const First& first, const Length& length,
                 Device device) {
  std::vector<int64_t> padded(static_cast<size_t>(count * longest), kNoToken),
      unpadded(static_cast<size_t>(rows), kNoToken);
  for (int64_t i = 0; i < count; ++i)
    for (int64_t t = 0; t < length(i); ++t) {
      padded[static_cast<size_t>(i * longest + t)] = first(i) + t;
      unpadded[static_cast<size_t>(first(i) + t)] = i * longest + t;
    }
  return {tensor(padded, {count, longest}, device), tensor(unpadded, {rows}, device), longest};
}

struct Layouts {
  Layout queries, keys;
  Tensor no_key;         // bool [count, 1, keys]
  int64_t count, chunk;  // sequences, and how many of them at a time

  Layouts(const Segments& segments, int64_t query_rows, int64_t key_rows, int64_t width, Device device)
      : queries(layout_of(
            segments.count(), query_rows, segments.max_query(),
            [&](int64_t i) { return segments.query_first(i); },
            [&](int64_t i) { return segments.query_length(i); }, device)),
        keys(layout_of(
            segments.count(), key_rows, segments.max_key(), [&](int64_t i) { return segments.key_first(i); },
            [&](int64_t i) { return segments.key_length(i); }, device)),
        no_key(equal(keys.padded, static_cast<double>(kNoToken)).unsqueeze(1)),
        count(segments.count()),
        chunk(std::max<int64_t>(
            1, kMaxElements / std::max<int64_t>(1, queries.longest * keys.longest * width))) {}
};

/// What is computed of the sequences [first, last).
struct Part {
  const Layouts& layouts;
  int64_t first, last;

  Tensor rows(const Tensor& x, const Layout& layout) const {  // [sequences, longest, columns]
    return index_select(x, layout.padded.slice(0, first, last));
  }
  // tanh of each query with each key, [sequences, queries, keys, width]
  Tensor hidden(const Tensor& q, const Tensor& k) const {
    return tanh(rows(q, layouts.queries).unsqueeze(2) + rows(k, layouts.keys).unsqueeze(1));
  }
  Tensor weights(const Tensor& q, const Tensor& k, const Tensor& score) const {
    const Tensor scores = matmul(hidden(q, k), score);
    return softmax(
        masked_fill(scores, layouts.no_key.slice(0, first, last), -std::numeric_limits<double>::infinity()));
  }
};

template <class F>
void for_each_part(const Layouts& layouts, const F& f) {
  for (int64_t first = 0; first < layouts.count; first += layouts.chunk)
    f(Part{layouts, first, std::min(first + layouts.chunk, layouts.count)});
}

// Parts of a padded tensor, one after the other, as packed rows.
Tensor packed(const std::vector<Tensor>& parts, const Layout& layout, const Shape& like) {
  if (parts.empty() || layout.longest == 0)
    return zeros(like, parts.empty() ? TensorOptions{} : parts[0].options());
  const Tensor all = cat(parts, 0);
  return index_select(all.reshape({all.size(0) * all.size(1), like[1]}), layout.unpadded);
}

struct Closure {
  std::shared_ptr<const Layouts> layouts;
  Saved q, k, score, values;
  Tensor weights;  // [sequences, queries, keys]

  void operator()(const GradIn& gy, GradOut& gx) const;
};

// With e = tanh(q + k), s = score · e and w = softmax(s).
void Closure::operator()(const GradIn& gy, GradOut& gx) const {
  const Tensor q = *this->q, k = *this->k, score = *this->score, values = *this->values;
  const Tensor& g = gy[0];
  std::vector<Tensor> gq, gk, gvalues;
  Tensor gscore = zeros(score.shape(), score.options());
  for_each_part(*layouts, [&](const Part& part) {
    const Tensor w = weights.slice(0, part.first, part.last), gout = part.rows(g, layouts->queries);
    if (gx.wants(3)) gvalues.push_back(matmul(w.transpose(1, 2), gout));
    if (!gx.wants(0) && !gx.wants(1) && !gx.wants(2)) return;
    const Tensor gw = matmul(gout, part.rows(values, layouts->keys).transpose(1, 2)),
                 gs = w * (gw - sum(gw * w, {.axes = {-1}, .keep = true})), e = part.hidden(q, k);
    if (gx.wants(2))
      gscore =
          gscore + matmul(gs.reshape({1, gs.numel()}), e.view({gs.numel(), e.size(-1)})).view(score.shape());
    const Tensor gsum = (gs.unsqueeze(-1) * score) * (1.0 - square(e));
    gq.push_back(sum(gsum, {.axes = {2}}));
    gk.push_back(sum(gsum, {.axes = {1}}));
  });
  if (gx.wants(0)) gx.add(0, packed(gq, layouts->queries, q.shape()).to(q.dtype()));
  if (gx.wants(1)) gx.add(1, packed(gk, layouts->keys, k.shape()).to(k.dtype()));
  if (gx.wants(2)) gx.add(2, gscore);
  if (gx.wants(3)) gx.add(3, packed(gvalues, layouts->keys, values.shape()).to(values.dtype()));
}

void check(const Tensor& q, const Tensor& k, const Tensor& score, const Tensor& values,
           const Segments& segments) {
  check_floating(q, kName);
  for (const Tensor* other : {&k, &score, &values}) check_same_kind(q, *other, kName);
  HEED_CHECK(q.rank() == 2 && k.rank() == 2 && values.rank() == 2 && score.rank() == 1 &&
                 q.size(1) == score.size(0) && k.size(1) == score.size(0) && values.size(0) == k.size(0),
             ShapeError, kName, ": q is ", q.shape(), ", k ", k.shape(), ", score ", score.shape(),
             ", values ", values.shape(),
             "; expected [query rows, width], [key rows, width], [width] and [key rows, columns]");
  HEED_CHECK(segments.query_rows_end() <= q.size(0) && segments.key_rows_end() <= k.size(0), ShapeError,
             kName, ": the segments end at query row ", segments.query_rows_end(), " of ", q.size(0),
             " and key row ", segments.key_rows_end(), " of ", k.size(0));
}

void leave_record(std::string_view name, const Segments& segments, const Tensor& weights) {
  AttentionRecord* const record = AttentionRecord::current();
  if (!record) return;
  AttentionRecord::Call call{};
  call.name = name.empty() ? kName : std::string(name);
  call.call.segments = segments;
  call.call.heads = 1;
  call.weights = weights;
  record->add(std::move(call));
}

}  // namespace

Tensor additive_attention(const Tensor& q, const Tensor& k, const Tensor& score, const Tensor& values,
                          const Segments& segments, std::string_view name) {
  check(q, k, score, values, segments);
  const bool recorded = needs_grad({q, k, score, values});
  HEED_CHECK(!recorded || !segments.keys_shared(), StateError, kName,
             ": several sequences share keys, which then get no gradient; hold a NoGrad");
  const auto layouts = std::make_shared<const Layouts>(segments, q.size(0), k.size(0), q.size(1), q.device());
  std::vector<Tensor> outputs, weights;
  {
    const NoGrad no_grad;
    for_each_part(*layouts, [&](const Part& part) {
      weights.push_back(part.weights(q, k, score));
      outputs.push_back(matmul(weights.back(), part.rows(values, layouts->keys)));
    });
  }
  const Shape shape{q.size(0), values.size(1)};
  const Tensor y = layouts->count > 0 ? packed(outputs, layouts->queries, shape) : zeros(shape, q.options());
  const Tensor all = layouts->count > 0 ? cat(weights, 0) : Tensor();
  leave_record(name, segments, all);
  if (!recorded) return y;
  return record(
      kName, {q, k, score, values}, y,
      Closure{layouts, save(q.detach()), save(k.detach()), save(score.detach()), save(values.detach()), all});
}

}  // namespace heed
