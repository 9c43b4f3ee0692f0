#include <algorithm>
#include <cmath>

#include <heed/core/attention.h>
#include <heed/core/creation.h>
#include <heed/core/ops.h>
#include <heed/core/ops/attention/attention_call.h>
#include <heed/core/ops/common.h>
#include <heed/core/runtime/dispatch.h>
#include <heed/core/tensor_impl.h>

namespace heed {
namespace {

thread_local AttentionRecord* innermost = nullptr;

const AttentionRecord::Call& find(const std::vector<AttentionRecord::Call>& calls, const std::string& name) {
  const auto call =
      std::find_if(calls.begin(), calls.end(), [&](const auto& call) { return call.name == name; });
  if (call != calls.end()) return *call;
  std::string known;
  for (const auto& other : calls) known += (known.empty() ? "\"" : ", \"") + other.name + "\"";
  throw IndexError(concat("attention record: no call is named \"", name, "\"; ",
                          known.empty() ? "none was recorded" : "there are " + known));
}

void check_index(int64_t index, int64_t count, const char* what, const std::string& name) {
  HEED_CHECK(index >= 0 && index < count, IndexError, "attention record: \"", name, "\" has ", count, " ",
             what, "s; there is no ", what, " ", index);
}

// A tensor of the call, unchanged.
Tensor unchanged(const Saved& saved, const std::string& name) {
  try {
    return *saved;
  } catch (const AutogradError&) {
    throw StateError(concat("attention record: an input of \"", name,
                            "\" was written to since the call; ask for its weights before that"));
  }
}

// Some heads and queries of one sequence.
struct Part {
  int64_t sequence, first_head, heads, first_query, queries;
};

// Fills weights [queries, keys] of one head.
template <class T>
void rebuild(const AttentionRecord::Call& recorded, const Part& part, int64_t head,
             accumulator_t<T>* weights) {
  const AttentionContext& call = recorded.call;
  for (const Saved* bias : {&call.bias, &call.mask, &call.alibi_slopes, &call.relative})
    unchanged(*bias, recorded.name);
  const Tensor q = unchanged(recorded.q, recorded.name), k = unchanged(recorded.k, recorded.name);
  const auto view = [&](const Tensor& matrix, int64_t column) {
    return heads_view<T, const T>(matrix, column, call.width);
  };
  HEED_DISPATCH(q.device(), attention_weights,
                kernels::AttentionWeights<T>{
                    call.scores<T>(view(q, recorded.q_column), view(k, recorded.k_column), q.device()),
                    recorded.lse.data<accumulator_t<T>>(), weights, part.sequence, head, part.first_query,
                    part.queries});
}

// ---- the gradient of weights

// What the weights of a part were made from.
struct WeightsSaved {
  AttentionRecord::Call recorded;
  Saved weights;  // [heads, queries, keys]
  Part part;

  const Segments& segments() const { return recorded.call.segments; }
};

// What is added to.
Tensor zeroed_slot(GradOut& gx, int input) {
  const GradSlot slot = gx.into_accumulator(input);
  if (!slot.accumulate) slot.tensor.zero_();
  return slot.tensor;
}

// Of q [query_rows, …] what one head has of the part, [queries, width]; of k that which it reads.
Tensor part_of_q(const WeightsSaved& saved, const Tensor& q, int64_t head) {
  const AttentionContext& call = saved.recorded.call;
  const int64_t row = saved.segments().query_first(saved.part.sequence) + saved.part.first_query,
                column = saved.recorded.q_column + head * call.width;
  return q.view({call.query_rows, q.size(-1)})
      .slice(0, row, row + saved.part.queries)
      .slice(1, column, column + call.width);
}

Tensor part_of_k(const WeightsSaved& saved, const Tensor& k, int64_t head) {
  const AttentionContext& call = saved.recorded.call;
  const int64_t row = saved.segments().key_first(saved.part.sequence),
                column = saved.recorded.k_column + head * call.key_heads / call.heads * call.width;
  return k.view({call.key_rows, k.size(-1)})
      .slice(0, row, row + saved.segments().key_length(saved.part.sequence))
      .slice(1, column, column + call.width);
}

// To a bias that was broadcast to [sequences, heads, queries, keys], which may be larger on the last two.
void add_to_bias(const WeightsSaved& saved, const Tensor& gscores, const Tensor& gbias) {
  Shape shape = gbias.shape();
  while (shape.rank() < 4) shape.insert(0, 1);
  Tensor part = gbias.view(shape);
  const Part& of = saved.part;
  const int64_t begin[] = {of.sequence, of.first_head, of.first_query, 0},
                size[] = {1, of.heads, gscores.size(1), gscores.size(2)};
  for (int axis = 0; axis < 4; ++axis)
    if (shape[axis] != 1) part = part.slice(axis, begin[axis], begin[axis] + size[axis]);
  part.add_(sum_to(gscores.unsqueeze(0), part.shape()));
}

// To the entries [heads, 2 * limit + 1] by key - diagonal(query).
void add_to_relative(const WeightsSaved& saved, const Tensor& gscores, const Tensor& grelative) {
  const Part& of = saved.part;
  const int64_t queries = gscores.size(1), keys = gscores.size(2), limit = grelative.size(1) / 2;
  const Tensor entries = empty({1, queries * keys}, {.dtype = DType::i64});
  int64_t* entry = entries.data<int64_t>();
  for (int64_t i = 0; i < queries; ++i) {
    const int64_t diagonal = saved.recorded.call.visibility.diagonal(
        of.first_query + i, saved.segments().query_length(of.sequence), keys);
    for (int64_t j = 0; j < keys; ++j) *entry++ = std::clamp(j - diagonal, -limit, limit) + limit;
  }
  const Tensor part = grelative.slice(0, of.first_head, of.first_head + of.heads);
  const Tensor sums = scatter_add(zeros(part.shape(), part.options()), 1,
                                  entries.to(gscores.device()).expand({of.heads, queries * keys}),
                                  gscores.reshape({of.heads, queries * keys}));
  part.add_(sums);
}

// Inputs: q, k, bias, relative.
void weights_backward(const WeightsSaved& saved, const GradIn& gy, GradOut& gx) {
  const AttentionContext& call = saved.recorded.call;
  const Tensor weights = *saved.weights;
  const Tensor& g = gy[0];
  const Tensor gscores = weights * (g - sum(g * weights, {.axes = {-1}, .keep = true}));
  const Tensor gq = gx.wants(0) ? zeroed_slot(gx, 0) : Tensor(),
               gk = gx.wants(1) ? zeroed_slot(gx, 1) : Tensor(), q = *saved.recorded.q, k = *saved.recorded.k;
  for (int64_t h = 0; h < saved.part.heads; ++h) {
    const int64_t head = saved.part.first_head + h;
    Tensor gproduct = gscores.select(0, h) * call.scale;
    if (call.logit_cap > 0) {
      const Tensor product = matmul(part_of_q(saved, q, head).to(gproduct.dtype()),
                                    part_of_k(saved, k, head).to(gproduct.dtype()).transpose(0, 1));
      gproduct = gproduct * (1.0 - square(tanh(product * (call.scale / call.logit_cap))));
    }
    if (gq.defined())
      part_of_q(saved, gq, head).add_(matmul(gproduct, part_of_k(saved, k, head).to(gproduct.dtype())));
    if (gk.defined())
      part_of_k(saved, gk, head)
          .add_(matmul(gproduct.transpose(0, 1), part_of_q(saved, q, head).to(gproduct.dtype())));
  }
  if (gx.wants(2)) add_to_bias(saved, gscores, zeroed_slot(gx, 2));
  if (gx.wants(3)) add_to_relative(saved, gscores, zeroed_slot(gx, 3));
}

// As the call was recorded: nowhere under NoGrad, or where nothing needed a gradient.
Tensor record_weights(const AttentionRecord::Call& recorded, const Part& part, const Tensor& weights) {
  const auto input = [](const Saved& value, const Node::Edge& edge) {
    return edge.node ? with_edge(*value, edge) : Tensor();
  };
  return record(
      "attention_weights",
      {input(recorded.q, recorded.q_edge), input(recorded.k, recorded.k_edge),
       input(recorded.call.bias, recorded.bias_edge), input(recorded.call.relative, recorded.relative_edge)},
      weights, [saved = WeightsSaved{recorded, save(weights), part}](const GradIn& gy, GradOut& gx) {
        weights_backward(saved, gy, gx);
      });
}

// The weights of a part: [heads, queries, keys].
Tensor rebuild_part(const AttentionRecord::Call& recorded, const Part& part) {
  const int64_t keys = recorded.call.segments.key_length(part.sequence);
  if (recorded.weights.defined())
    return recorded.weights.slice(0, part.sequence, part.sequence + 1)
        .slice(1, part.first_query, part.first_query + part.queries)
        .slice(2, 0, keys)
        .to(recorded.weights.dtype() == DType::f64 ? DType::f64 : DType::f32)
        .contiguous();
  const Tensor q = unchanged(recorded.q, recorded.name);
  const Tensor weights = empty({part.heads, part.queries, keys}, accumulator_options(q));
  visit_floating(q.dtype(), "attention record", [&]<class T>() {
    for (int64_t h = 0; h < part.heads; ++h)
      rebuild<T>(recorded, part, part.first_head + h,
                 weights.data<accumulator_t<T>>() + h * part.queries * keys);
  });
  return record_weights(recorded, part, weights);
}

}  // namespace

AttentionRecord::AttentionRecord() : previous_(std::exchange(innermost, this)) {}
AttentionRecord::~AttentionRecord() { innermost = previous_; }
AttentionRecord* AttentionRecord::current() { return innermost; }

void AttentionRecord::add(Call call) {
  // A later call of a name takes the earlier one's place, and its memory.
  const auto earlier =
      std::find_if(calls_.begin(), calls_.end(), [&](const Call& other) { return other.name == call.name; });
  if (earlier == calls_.end())
    calls_.push_back(std::move(call));
  else
    *earlier = std::move(call);
}

std::vector<std::string> AttentionRecord::names() const {
  std::vector<std::string> names;
  for (const Call& call : calls_) names.push_back(call.name);
  return names;
}

int64_t AttentionRecord::heads(const std::string& name) const { return find(calls_, name).call.heads; }

int64_t AttentionRecord::sequences(const std::string& name) const {
  return find(calls_, name).call.segments.count();
}

int64_t AttentionRecord::fully_masked_rows(const std::string& name) const {
  const Call& recorded = find(calls_, name);
  const Segments& segments = recorded.call.segments;
  if (recorded.weights.defined()) {  // all rows of the sequences without keys
    int64_t blind = 0;
    for (int64_t i = 0; i < segments.count(); ++i)
      blind += segments.key_length(i) > 0 ? 0 : segments.query_length(i);
    return blind;
  }
  const std::vector<double> lse = recorded.lse.to(kCpu).to(DType::f64).to_vector<double>();
  int64_t count = 0;
  for (int64_t head = 0; head < recorded.call.heads; ++head)
    for (int64_t sequence = 0; sequence < segments.count(); ++sequence) {
      const auto first = lse.begin() + head * recorded.call.query_rows + segments.query_first(sequence);
      count += std::count(first, first + segments.query_length(sequence), -HUGE_VAL);
    }
  return count;
}

Tensor AttentionRecord::weights(const std::string& name, int64_t sequence, int64_t head) const {
  check_index(sequence, sequences(name), "sequence", name);
  return weights(name, sequence, head, 0, find(calls_, name).call.segments.query_length(sequence));
}

Tensor AttentionRecord::weights(const std::string& name, int64_t sequence, int64_t head, int64_t first_query,
                                int64_t queries) const {
  const Call& call = find(calls_, name);
  check_index(sequence, sequences(name), "sequence", name);
  check_index(head, call.call.heads, "head", name);
  const int64_t all = call.call.segments.query_length(sequence);
  HEED_CHECK(first_query >= 0 && queries >= 0 && queries <= all - first_query, IndexError,
             "attention record: \"", name, "\" has ", all, " queries in sequence ", sequence,
             "; there are no ", queries, " from ", first_query, " on");
  const Tensor weights = rebuild_part(call, {sequence, head, 1, first_query, queries});
  return weights.view({queries, weights.size(2)});
}

Tensor AttentionRecord::weights(const std::string& name, int64_t sequence) const {
  const Call& call = find(calls_, name);
  check_index(sequence, sequences(name), "sequence", name);
  return rebuild_part(call, {sequence, 0, call.call.heads, 0, call.call.segments.query_length(sequence)});
}

}  // namespace heed
