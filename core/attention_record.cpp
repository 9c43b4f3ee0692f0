#include <algorithm>
#include <cmath>

#include <heed/core/attention.h>
#include <heed/core/creation.h>
#include <heed/core/dispatch.h>
#include <heed/core/ops/attention_call.h>
#include <heed/core/ops/common.h>

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

// Fills weights [queries, keys].
template <class T>
void rebuild(const AttentionRecord::Call& recorded, int64_t sequence, int64_t head,
             accumulator_t<T>* weights) {
  const AttentionCall& call = recorded.call;
  for (const Saved* bias : {&call.bias, &call.mask, &call.alibi_slopes, &call.relative})
    unchanged(*bias, recorded.name);
  const Tensor q = unchanged(recorded.q, recorded.name), k = unchanged(recorded.k, recorded.name);
  const auto view = [&](const Tensor& matrix, int64_t column) {
    return heads_view<T, const T>(matrix, column, call.width);
  };
  HEED_DISPATCH(q.device(), attention_weights,
                kernels::AttentionWeights<T>{
                    call.scores<T>(view(q, recorded.q_column), view(k, recorded.k_column), q.device()),
                    recorded.lse.data<accumulator_t<T>>(), weights, sequence, head});
}

// The weights of heads [first, first + count): [count, queries, keys].
Tensor rebuild_heads(const AttentionRecord::Call& recorded, int64_t sequence, int64_t first, int64_t count) {
  const Segments& segments = recorded.call.segments;
  const int64_t queries = segments.query_length(sequence), keys = segments.key_length(sequence);
  const Tensor q = unchanged(recorded.q, recorded.name);
  const Tensor weights = empty({count, queries, keys}, accumulator_options(q));
  visit_floating(q.dtype(), "attention record", [&]<class T>() {
    for (int64_t h = 0; h < count; ++h)
      rebuild<T>(recorded, sequence, first + h, weights.data<accumulator_t<T>>() + h * queries * keys);
  });
  return weights;
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

int64_t AttentionRecord::blind_rows(const std::string& name) const {
  const Call& recorded = find(calls_, name);
  const Segments& segments = recorded.call.segments;
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
  const Call& call = find(calls_, name);
  check_index(sequence, sequences(name), "sequence", name);
  check_index(head, call.call.heads, "head", name);
  const Tensor weights = rebuild_heads(call, sequence, head, 1);
  return weights.view({weights.size(1), weights.size(2)});
}

Tensor AttentionRecord::weights(const std::string& name, int64_t sequence) const {
  const Call& call = find(calls_, name);
  check_index(sequence, sequences(name), "sequence", name);
  return rebuild_heads(call, sequence, 0, call.call.heads);
}

}  // namespace heed
